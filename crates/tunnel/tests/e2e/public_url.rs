//! `public_url`: the addresses of a server behind a reverse proxy, as clients and people are told
//! them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use testkit::certs::Authority;
use testkit::stage::{Daemon, Running};

use crate::enrol::{code, default_port, enroll, redeem};
use crate::harness::{
    Nginx, Origin, SOON, Scheme, Setup, connect, free_port, program, run, try_connect, tunnel, wait,
};
use crate::reload::{echo, outcome};

/// A server of `ws://`, `tls://` and names behind an nginx that ends TLS.
struct Behind {
    running: Running,
    nginx: Nginx,
    http: u16,
}

/// The line of the server's file.
fn public_url(front: u16) -> String {
    format!("public_url: [\"wss://localhost:{front}/tunnel\", \"https://*:{front}\"]\n")
}

impl Behind {
    fn start() -> Self {
        let mut setup = Setup::new(Scheme::WS);
        let (front, http, own) = (free_port(), free_port(), setup.server_port());
        let dir = setup.dir().to_owned();
        let authority = Authority::new("an authority of a front").unwrap();
        authority.server(&["localhost", "app.example.com"]).unwrap().save(&dir, "front").unwrap();
        authority.save(&dir).unwrap();
        let conf = format!(
            "events {{ }}\n\
             http {{\n\
               map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}\n\
               server {{\n\
                 listen 127.0.0.1:{front} ssl;\n\
                 access_log off;\n\
                 ssl_protocols TLSv1.2 TLSv1.3;\n\
                 ssl_certificate {dir}/front.crt; ssl_certificate_key {dir}/front.key;\n\
                 proxy_http_version 1.1;\n\
                 proxy_set_header Host $http_host;\n\
                 location = /tunnel {{\n\
                   proxy_pass http://127.0.0.1:{own};\n\
                   proxy_set_header Upgrade $http_upgrade;\n\
                   proxy_set_header Connection $connection_upgrade;\n\
                 }}\n\
                 location / {{ proxy_pass http://127.0.0.1:{http}; }}\n\
               }}\n\
             }}\n",
            dir = dir.display()
        );
        let nginx = Nginx::start_with(&dir, &conf, front);
        // The pin of this listener is not that of nginx.
        setup.more_listen.push(format!("tls://127.0.0.1:{}", free_port()));
        writeln!(setup.server_lines, "http: {{ listen: [\"127.0.0.1:{http}\"] }}").unwrap();
        setup.server_lines.push_str(&public_url(front));
        Self { running: setup.start_server(), nginx, http }
    }

    /// `tunnel client --enroll CODE`, on a system that trusts the authority of nginx.
    fn client(&self, dir: &Path, code: &str, publish: &[&str]) -> Daemon {
        let publish: Vec<_> = publish.iter().flat_map(|pair| ["--publish", *pair]).collect();
        let mut command = redeem(dir, code, &publish);
        command.env("SSL_CERT_FILE", self.running.file("ca.pem")).env("SSL_CERT_DIR", "/nowhere");
        Daemon::start("client", dir, &mut command)
    }
}

/// What `tunnel …` says to this control socket.
fn said(control: &Path, args: &[&str]) -> String {
    let mut command = tunnel(&args[..1]);
    let (exit, said, complaint) =
        outcome(run(command.arg("--control").arg(control).args(&args[1..])));
    assert_eq!((exit, complaint.as_str()), (Some(0), ""), "{args:?}: {said}");
    said
}

#[test]
fn a_client_behind_nginx_is_told_the_addresses_of_nginx_and_visitors_come_there() {
    let behind = Behind::start();
    let (running, front) = (&behind.running, behind.nginx.port);
    let url = format!("wss://localhost:{front}/tunnel");
    running.server.wait_line(&[&format!("clients reach this server at {url}")], SOON);
    let file = running.file("server.yaml");
    let checked = outcome(run(tunnel(&["check"]).arg(&file))).1;
    assert!(checked.contains(&format!("clients reach this server at {url}\n")), "{checked}");
    assert!(checked.contains(&format!("visitors reach names at https://*:{front}\n")), "{checked}");

    let rights = ["away", "--allow-http", "app.example.com", "--allow-tcp", "10000-10999"];
    let (exit, text, _) = enroll(running, &rights);
    assert_eq!(exit, Some(0));
    assert!(text.contains(&format!("It will dial {url};")), "{text}");
    assert!(!text.contains("127.0.0.1"), "{text}");
    let (dir, origin) = (TempDir::new().unwrap(), Origin::echo());
    let (port, other) = (default_port(), origin.port());
    let web = Nginx::start(dir.path(), "location = / { return 200 home; }");
    let publish = [
        format!("{port}={other}"),
        format!("http://app.example.com=http://127.0.0.1:{}", web.port),
    ];
    let publish: Vec<_> = publish.iter().map(String::as_str).collect();
    let client = behind.client(dir.path(), &code(running, &rights), &publish);
    client.wait_line(&["connected to", &url], SOON);
    let [tcp, name] =
        [format!("tcp://localhost:{port}"), format!("https://app.example.com:{front}")];
    for address in [&tcp, &name] {
        client.wait_line(&["is published at", address], SOON);
        running.server.wait_line(&["of client away is published at", address], SOON);
    }
    let made = fs::read_to_string(dir.path().join("home.yaml")).unwrap();
    assert!(made.contains(&url) && !made.contains("pin:"), "{made}");
    let control = dir.path().join("c.sock");
    for place in [&control, &running.file("server.sock")] {
        let status = said(place, &["status", "--json"]);
        assert!(status.contains(&format!("\"{tcp}\"")), "{status}");
        assert!(status.contains(&format!("\"{name}\"")), "{status}");
    }
    let mut show = tunnel(&["clients", "show", "away", "--control"]);
    let shown = outcome(run(show.arg(running.file("server.sock")))).1;
    assert!(shown.contains(&tcp) && shown.contains(&name), "{shown}");
    // Visitors reach what was told.
    echo(&connect(port), 1);
    let mut curl = Command::new(program("curl"));
    curl.args(["-sS", "--max-time", "60", "--cacert"]).arg(running.file("ca.pem"));
    curl.args(["--connect-to", &format!("::127.0.0.1:{front}"), &name]);
    let output = run(&mut curl);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "home", "{output:?}");

    // A command is told the same, and a reload tells everybody anew.
    let more = said(&control, &["publish", &other.to_string()]);
    assert!(more.contains("tcp://localhost:"), "{more}");
    let reload = |edit: &dyn Fn(String) -> String| {
        running.edit_server(edit);
        let (exit, said, complaint) = outcome(running.reload("server"));
        assert_eq!((exit, complaint.as_str()), (Some(0), ""), "{said}");
        assert!(said.contains("public_url"), "{said}");
    };
    reload(&|text| text.replace(&public_url(front), "public_url: tls://tunnel.example.net\n"));
    client.wait_line(&[&format!("is published at tcp://tunnel.example.net:{port}")], SOON);
    let own = format!("http://app.example.com:{}", behind.http);
    client.wait_line(&["is published at", &own], SOON);
    let text = enroll(running, &["third"]).1;
    assert!(text.contains("It will dial tls://tunnel.example.net:7000;"), "{text}");
    let text = enroll(running, &["third", "--server", "quic://a.example"]).1;
    assert!(text.contains("It will dial quic://a.example;"), "{text}");
    reload(&|text| text.replace("public_url: tls://tunnel.example.net\n", ""));
    // The client computes the address from the host that it dials.
    wait("the old addresses", SOON, || {
        let status = said(&control, &["status", "--json"]);
        (status.contains(&format!("\"{tcp}\"")) && status.contains(&own)).then_some(())
    });
    assert!(try_connect(port).is_ok());
}

#[test]
fn a_client_enrols_and_renews_its_token_with_the_authority_of_its_choice() {
    let behind = Behind::start();
    let running = &behind.running;
    let dir = TempDir::new().unwrap();
    let start = |name: &str, code: &str, args: &[&str]| {
        let mut command = redeem(dir.path(), code, args);
        command.env("SSL_CERT_FILE", "/nowhere").env("SSL_CERT_DIR", "/nowhere");
        Daemon::start(name, dir.path(), &mut command)
    };
    let ca = running.file("ca.pem").display().to_string();
    let mut first = start("first", &code(running, &["away"]), &["--ca", &ca]);
    first.wait_line(&["client `away` is enrolled"], SOON);
    first.wait_line(&["connected to wss://localhost:"], SOON);
    let file = dir.path().join("home.yaml");
    let made = fs::read_to_string(&file).unwrap();
    assert!(made.contains(&format!("\ntls: {{ ca: \"{ca}\" }}\n")), "{made}");
    first.terminate();
    first.wait_end(SOON);
    // The file has the authority now.
    let second = start("second", &code(running, &["--renew", "away"]), &[]);
    second.wait_line(&["client `away` has a new token"], SOON);
    second.wait_line(&["connected to wss://localhost:"], SOON);
    assert_ne!(fs::read_to_string(&file).unwrap(), made);
}

#[test]
fn a_server_without_a_file_prints_the_command_with_its_public_url() {
    let dir = TempDir::new().unwrap();
    let listen = format!("ws://127.0.0.1:{}/tunnel", free_port());
    let mut command = tunnel(&["server", "--listen", &listen, "--state-dir"]);
    command.arg(dir.path().join("state")).env("HOME", dir.path());
    command.args(["--public-url", "wss://tunnel.example.com/tunnel"]);
    let server = Daemon::start("server", dir.path(), &mut command);
    let line = server.wait_line(&["tunnel client --server"], SOON);
    assert!(line.contains(" --server wss://tunnel.example.com:443/tunnel --name home"), "{line}");
}

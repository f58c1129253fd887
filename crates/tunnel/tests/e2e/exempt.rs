//! Listeners beside `tls.client_ca` that ask clients for no certificate (`client_ca: false`).

use std::fs;

use tempfile::TempDir;
use testkit::certs::Flaw;
use testkit::stage::{Daemon, Nginx, Running};

use crate::harness::{SOON, Scheme, Setup, binary, free_port, run, tunnel};
use crate::mtls::made;
use crate::reload::outcome;

/// A server whose first listener asks for certificates. It has an exempt listener of each scheme as
/// well, and a client `other` without a token. Returns the URLs of the exempt listeners.
fn mixed(asking: Scheme, exempt: &[Scheme]) -> (Setup, Vec<String>) {
    let mut setup = made(asking, |ca, dir| {
        ca.client(&[], "other", Flaw::None).unwrap().save(dir, "other").unwrap();
    });
    let url = |scheme: &Scheme| {
        let path = if scheme.http { "/tunnel" } else { "" };
        format!("{}://127.0.0.1:{}{path}", scheme.name, free_port())
    };
    let urls: Vec<String> = exempt.iter().map(url).collect();
    let map = |url: &String| format!("{{ url: \"{url}\", client_ca: false }}");
    setup.more_listen.extend(urls.iter().map(map));
    setup.server_lines.insert_str(0, "  - name: other\n");
    (setup, urls)
}

/// A client that has the authority of the server, and perhaps a token or a certificate.
fn client(running: &Running, url: &str, name: &str, token: bool, certificate: bool) -> Daemon {
    running.start_another_client(|text| {
        let kept = |line: &&str| {
            let other = ["servers:", "name:", "tls:"].iter().any(|key| line.starts_with(key));
            !other && (token || !line.starts_with("token:"))
        };
        let mut text: String = text.lines().filter(kept).map(|line| format!("{line}\n")).collect();
        let pair = format!(", cert: {name}.crt, key: {name}.key");
        let pair = if certificate { pair.replace("home.", "client.") } else { String::new() };
        text.push_str(&format!(
            "servers: [\"{url}\"]\nname: {name}\ntls: {{ ca: ca.pem{pair} }}\n"
        ));
        text
    })
}

fn end(mut daemon: Daemon) {
    daemon.kill();
    daemon.wait_end(SOON);
}

fn asking_url(running: &Running, scheme: Scheme) -> String {
    let path = if scheme.http { "/tunnel" } else { "" };
    format!("{}://127.0.0.1:{}{path}", scheme.name, running.server_port())
}

/// A token alone logs in at the exempt listener and nowhere else, and so it stays when the server
/// has read its certificates again.
#[test]
fn a_token_alone_logs_in_at_an_exempt_listener_and_at_no_other() {
    for scheme in [Scheme::TLS, Scheme::QUIC, Scheme::KCP, Scheme::WSS] {
        let plain = [Scheme::WS, Scheme::TCP];
        let exempt =
            if scheme == Scheme::TLS { &[scheme, plain[0], plain[1]][..] } else { &[scheme] };
        let (setup, urls) = mixed(scheme, exempt);
        let running = setup.start_server();
        for again in [false, true] {
            for url in &urls {
                let admitted = client(&running, url, "home", true, false);
                admitted.wait_line(&["connected to", url], SOON);
                end(admitted);
            }
            let refused = client(&running, &asking_url(&running, scheme), "home", true, false);
            refused.wait_line(&["the server asks for a client certificate"], SOON);
            end(refused);
            if !again {
                running.edit_server(|text| format!("{text}keepalive: 14s\n"));
                assert_eq!(outcome(running.reload("server")).0, Some(0));
            }
        }
    }
}

#[test]
fn a_client_without_a_token_logs_in_where_it_is_asked_for_its_certificate_and_not_elsewhere() {
    for scheme in [Scheme::TLS, Scheme::QUIC, Scheme::KCP] {
        let (setup, urls) = mixed(scheme, &[scheme]);
        let running = setup.start_server();
        let refused = client(&running, &urls[0], "other", false, true);
        let line = ["it has no token", "this listener asked for no certificate", "127.0.0.1"];
        running.server.wait_line(&line, SOON);
        assert!(!refused.log().contains("connected to"), "{}", refused.log());
        end(refused);
        let admitted = client(&running, &asking_url(&running, scheme), "other", false, true);
        admitted.wait_line(&["connected to"], SOON);
        end(admitted);
    }
}

/// The start, `tunnel check` and a reload refuse it, and the running server stays as it was.
#[test]
fn a_plain_listener_beside_an_authority_is_refused_until_its_map_says_so() {
    let (setup, urls) = mixed(Scheme::TLS, &[Scheme::TCP]);
    let running = setup.start_server();
    let map = format!("{{ url: \"{}\", client_ca: false }}", urls[0]);
    running.edit_server(|text| text.replace(&map, &format!("\"{}\"", urls[0])));
    let file = running.file("server.yaml");
    let check = outcome(run(tunnel(&["check", "--config"]).arg(&file)));
    let start = outcome(run(tunnel(&["server", "--config"]).arg(&file)));
    let reload = outcome(running.reload("server"));
    for (code, said, complaint) in [check, start, reload] {
        assert_eq!((code, said.as_str()), (Some(2), ""), "{complaint}");
        assert!(
            complaint.contains("listen[1]: tcp:// cannot ask for a certificate"),
            "{complaint}"
        );
        assert!(complaint.contains(&map), "{complaint}");
    }
    running.edit_server(|text| text.replace(&format!("\"{}\"", urls[0]), &map));
    let (code, said, complaint) = outcome(run(tunnel(&["check", "--config"]).arg(&file)));
    assert_eq!(code, Some(0), "{complaint}");
    let line = format!("listen {} (no client certificate, tokens alone)\n", urls[0]);
    assert!(said.contains(&line), "{said}");
}

#[test]
fn a_code_leads_to_the_exempt_listener_alone() {
    let (setup, urls) = mixed(Scheme::TLS, &[Scheme::QUIC]);
    let running = setup.start_server();
    let control = running.file("server.sock");
    let (code, said, complaint) =
        outcome(run(tunnel(&["enroll", "away", "--control"]).arg(control)));
    assert_eq!((code, complaint.as_str()), (Some(0), ""));
    let given = said.split_whitespace().find(|word| word.starts_with("enroll1.")).unwrap();
    let dir = TempDir::new().unwrap();
    let mut command = testkit::stage::tunnel(&binary(), &["client", "--enroll", given]);
    command.arg("--config").arg(dir.path().join("away.yaml"));
    command.arg("--control").arg(dir.path().join("away.sock")).env("HOME", dir.path());
    command.args(["--forward", "tcp://127.0.0.1:0=tcp://127.0.0.1:1"]);
    let enrolled = Daemon::start("away", dir.path(), &mut command);
    enrolled.wait_line(&["connected to", &urls[0]], SOON);
    let made = fs::read_to_string(dir.path().join("away.yaml")).unwrap();
    assert!(!made.contains("tls://"), "{made}");
    end(enrolled);
}

/// nginx asks for the certificates of `tls.client_ca`, and its plain listener is exempt.
#[test]
fn a_reverse_proxy_asks_for_the_certificate_in_place_of_an_exempt_listener() {
    let (setup, urls) = mixed(Scheme::TLS, &[Scheme::WS]);
    let running = setup.start_server();
    let (dir, port) = (running.dir().display(), free_port());
    let target = urls[0].strip_prefix("ws://").unwrap();
    let conf = format!(
        "error_log stderr error; events {{ }}\nhttp {{ access_log off;\n\
         server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {dir}/server.crt;\n\
         ssl_certificate_key {dir}/server.key; ssl_protocols TLSv1.3;\n\
         ssl_verify_client on; ssl_client_certificate {dir}/clients.pem;\n\
         location = /tunnel {{ proxy_pass http://{target}; proxy_http_version 1.1;\n\
         proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection \"Upgrade\"; }} }} }}\n"
    );
    let front = running.dir().join("front");
    fs::create_dir(&front).unwrap();
    let _nginx = Nginx::start_with(&front, &conf, port);
    let url = format!("wss://127.0.0.1:{port}/tunnel");
    let refused = client(&running, &url, "home", true, false);
    refused.wait_line(&[&url, "400"], SOON);
    end(refused);
    let admitted = client(&running, &url, "home", true, true);
    admitted.wait_line(&["connected to", &url], SOON);
    end(admitted);
}

//! `tunnel import`: the files of another program become files with which the daemons run.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::TempDir;
use testkit::stage::Daemon;

use crate::harness::{LONG, Origin, SOON, free_port, run, tunnel, wait};
use crate::reload::outcome;

/// `tunnel import …` in this folder.
fn import(dir: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = tunnel(&["import"]);
    outcome(run(command.args(args).current_dir(dir)))
}

/// A daemon with the file in this folder, as on a machine of its own.
fn start(dir: &Path, role: &str, file: &str) -> Daemon {
    let checked = run(tunnel(&["check", file]).current_dir(dir));
    assert!(checked.status.success(), "{checked:?}");
    let home = dir.join(format!("home-{file}"));
    fs::create_dir(&home).unwrap();
    let mut command = tunnel(&[role, "--config", file]);
    command.env("HOME", &home).env("STATE_DIRECTORY", home.join("state"));
    command.env("RUNTIME_DIRECTORY", &home).current_dir(dir);
    Daemon::start(file, dir, &mut command)
}

fn echoes(port: u16) {
    wait("an echo through the tunnel", LONG, || {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(SOON)).ok()?;
        stream.write_all(b"?").ok()?;
        stream.read_exact(&mut [0]).ok()
    });
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_pair_of_frp_becomes_daemons_that_serve_its_visitors() {
    let dir = TempDir::new().unwrap();
    let origin = Origin::echo();
    let (bind, remote, web) = (free_port(), free_port(), free_port());
    let frps = format!(
        "bindAddr = \"127.0.0.1\"\nbindPort = {bind}\nvhostHTTPPort = {web}\n\
         auth.token = \"one-for-all\"\nwebServer.port = 0\n"
    );
    let frpc = format!(
        "serverAddr = \"127.0.0.1\"\nserverPort = {bind}\nauth.token = \"one-for-all\"\n\
         [[proxies]]\nname = \"echo\"\ntype = \"tcp\"\nlocalPort = {}\nremotePort = {remote}\n\
         [[proxies]]\nname = \"site\"\ntype = \"http\"\nlocalPort = {}\n\
         customDomains = [\"site.example.net\"]\n",
        origin.port(),
        page().port(),
    );
    fs::write(dir.path().join("frps.toml"), frps).unwrap();
    fs::write(dir.path().join("frpc.toml"), frpc).unwrap();
    let (exit, said, complaint) = import(dir.path(), &["frps.toml", "frpc.toml"]);
    assert_eq!((exit, complaint.as_str()), (Some(0), ""), "{said}");
    assert!(said.contains("nothing is left"), "{said}");
    for file in ["server.yaml", "client.yaml", "server.key"] {
        assert_eq!(mode(&dir.path().join(file)), 0o600, "{file}");
    }
    let server = start(dir.path(), "server", "server.yaml");
    server.wait_line(&["serving clients"], SOON);
    let client = start(dir.path(), "client", "client.yaml");
    client.wait_line(&["service echo is published"], SOON);
    echoes(remote);
    client.wait_line(&["service site is published"], SOON);
    let mut visitor = std::net::TcpStream::connect(("127.0.0.1", web)).unwrap();
    visitor.set_read_timeout(Some(LONG)).unwrap();
    visitor
        .write_all(b"GET / HTTP/1.1\r\nHost: site.example.net\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    visitor.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("from the attic"), "{answer}");
}

/// A page of HTTP, whatever is asked.
fn page() -> Origin {
    Origin::start(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let page =
            "HTTP/1.1 200 OK\r\nContent-Length: 14\r\nConnection: close\r\n\r\nfrom the attic";
        let _ = stream.write_all(page.as_bytes());
    })
}

#[test]
fn a_secret_service_of_frp_is_visited_although_its_secret_is_weak() {
    let dir = TempDir::new().unwrap();
    let origin = Origin::echo();
    let (bind, near) = (free_port(), free_port());
    let head = format!("serverAddr = \"127.0.0.1\"\nserverPort = {bind}\n");
    let home = format!(
        "user = \"home\"\n{head}[[proxies]]\nname = \"ssh\"\ntype = \"xtcp\"\n\
         secretKey = \"abc\"\nlocalPort = {}\nallowUsers = [\"laptop\"]\n",
        origin.port()
    );
    let laptop = format!(
        "user = \"laptop\"\n{head}[[visitors]]\nname = \"to-ssh\"\ntype = \"xtcp\"\n\
         serverUser = \"home\"\nserverName = \"ssh\"\nsecretKey = \"abc\"\nbindPort = {near}\n"
    );
    fs::write(dir.path().join("home.toml"), home).unwrap();
    fs::write(dir.path().join("laptop.toml"), laptop).unwrap();
    let (exit, said, _) = import(dir.path(), &["home.toml", "laptop.toml"]);
    assert_eq!(exit, Some(0), "{said}");
    let server = start(dir.path(), "server", "server.yaml");
    server.wait_line(&["serving clients"], SOON);
    let home = start(dir.path(), "client", "client-home.yaml");
    home.wait_line(&["service", "ssh", "is private"], SOON);
    let laptop = start(dir.path(), "client", "client-laptop.yaml");
    laptop.wait_line(&["is connected to"], SOON);
    echoes(near);
}

#[test]
fn a_line_without_a_counterpart_is_named_and_decides_the_exit_code() {
    let dir = TempDir::new().unwrap();
    let frpc = "serverAddr = \"a.example\"\nauth.token = \"geheim\"\ndnsServer = \"9.9.9.9\"\n\
                [[proxies]]\nname = \"ssh\"\ntype = \"tcp\"\nlocalPort = 22\nremotePort = 6022\n";
    fs::write(dir.path().join("frpc.toml"), frpc).unwrap();
    let (exit, said, complaint) = import(dir.path(), &["--dry-run", "frpc.toml"]);
    assert_eq!(exit, Some(3));
    assert!(
        said.contains("public: \"tcp://:6022\"") && said.contains("token: \"(secret)\""),
        "{said}"
    );
    let finding = "frpc.toml:3: dnsServer: names are looked up as the system does";
    assert!(complaint.contains(finding), "{complaint}");
    assert!(!said.contains("geheim") && !complaint.contains("geheim"), "{said}{complaint}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a trial writes nothing");

    let (exit, said, _) = import(dir.path(), &["--json", "-o", "new", "frpc.toml"]);
    assert_eq!(exit, Some(3));
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["program"], &said["findings"][0]["line"]), (&"frp".into(), &3.into()));
    assert_eq!(mode(&dir.path().join("new")), 0o700);

    // What is there is never written over, and then nothing is written.
    let text = fs::read_to_string(dir.path().join("new/client.yaml")).unwrap();
    let (exit, _, complaint) = import(dir.path(), &["-o", "new", "frpc.toml"]);
    assert_eq!(exit, Some(1));
    assert!(complaint.contains("never written over"), "{complaint}");
    assert_eq!(fs::read_to_string(dir.path().join("new/client.yaml")).unwrap(), text);
}

#[test]
fn what_no_program_reads_is_a_wrong_source() {
    let dir = TempDir::new().unwrap();
    let wrong = |name: &str, text: &str, why: &str| {
        fs::write(dir.path().join(name), text).unwrap();
        let (exit, said, complaint) = import(dir.path(), &[name]);
        assert_eq!((exit, said.as_str()), (Some(2), ""), "{complaint}");
        assert!(complaint.contains(why), "{complaint}");
    };
    wrong("a.yaml", "colour: green\n", "no configuration of a program that is known");
    wrong("a.toml", "bindPort = \n", "a.toml:1: this is no TOML");
    wrong("a.json", "{ \"ProxyConfig\": [ }", "a.json:1: this is no JSON");
    let (exit, _, complaint) = import(dir.path(), &["missing.toml"]);
    assert_eq!(exit, Some(1), "{complaint}");
    let (exit, _, complaint) = import(dir.path(), &["frpc", "--", "client"]);
    assert_eq!(exit, Some(2), "{complaint}");
}

#[test]
fn a_command_line_and_a_unit_of_systemd_are_sources() {
    let dir = TempDir::new().unwrap();
    let line = ["chisel", "--", "client", "https://a.example", "R:8080:localhost:80"];
    let (exit, said, _) = import(dir.path(), &[&["-o", "one"], line.as_slice()].concat());
    assert_eq!(exit, Some(0), "{said}");
    let client = fs::read_to_string(dir.path().join("one/client.yaml")).unwrap();
    assert!(client.contains("servers: \"wss://a.example:443\""), "{client}");
    assert!(client.contains("public: \"tcp://:8080\""), "{client}");

    let unit = "[Service]\nExecStart=/opt/wstunnel client \\\n  -R tcp://8080:localhost:80 \\\n  \
                wss://a.example\n";
    fs::write(dir.path().join("ws.service"), unit).unwrap();
    let (exit, said, _) = import(dir.path(), &["-o", "two", "ws.service"]);
    assert_eq!(exit, Some(0), "{said}");
    let client = fs::read_to_string(dir.path().join("two/client.yaml")).unwrap();
    assert!(client.contains("target: \"tcp://localhost:80\""), "{client}");
}

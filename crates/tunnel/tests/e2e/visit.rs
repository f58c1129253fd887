//! `tunnel visit`: a code brings a visitor to one private service, and to nothing else.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use testkit::stage::{Daemon, Running};

use crate::enrol::Said;
use crate::harness::{LONG, Origin, SOON, Scheme, Setup, connect, free_port, run, tunnel, wait};
use crate::reload::{echo, outcome};

/// A server, and a client with two private services, which may invite visitors to them.
struct Stage {
    running: Running,
    _origins: [Origin; 2],
}

impl Stage {
    fn new() -> Self {
        let mut setup = Setup::new(Scheme::TLS);
        setup.more_rights.push("invite: true".to_owned());
        let origins = [Origin::echo(), Origin::echo()];
        let private = |name: &str, origin: &Origin| {
            let port = origin.port();
            format!(
                "  - {{ name: {name}, target: \"tcp://127.0.0.1:{port}\", public: private, \
                 visitors: [] }}\n"
            )
        };
        let services = private("ssh", &origins[0]) + &private("web", &origins[1]);
        // The router of this machine is none of ours to ask.
        setup.client_lines =
            format!("p2p: {{ candidates: [host, reflexive] }}\nservices:\n{services}");
        let mut running = setup.start();
        for name in ["ssh", "web"] {
            running.client().wait_line(&["service", name, "is private"], SOON);
        }
        Self { running, _origins: origins }
    }

    /// `tunnel visit …` of the client with the services.
    fn host(&self, args: &[&str]) -> Said {
        let control = self.running.file("client.sock");
        outcome(run(tunnel(&["visit", "--control"]).arg(control).args(args)))
    }

    fn code(&self, args: &[&str]) -> String {
        let (exit, said, complaint) = self.host(args);
        assert_eq!((exit, complaint.as_str()), (Some(0), ""), "{said}");
        let code = said.split_whitespace().find(|word| word.starts_with("visit1."));
        code.unwrap_or_else(|| panic!("no code in {said}")).to_owned()
    }

    /// `tunnel clients show NAME --json` of the server.
    fn client(&self, name: &str) -> Option<serde_json::Value> {
        let control = self.running.file("server.sock");
        let shown = run(tunnel(&["clients", "show", name, "--json", "--control"]).arg(control));
        shown.status.success().then(|| serde_json::from_slice(&shown.stdout).unwrap())
    }

    /// Everything that the server has written, in its log and in its state directory.
    fn of_server(&self) -> String {
        let mut all = self.running.server.log();
        let mut folders = vec![self.running.file("state")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    all.push_str(&String::from_utf8_lossy(&fs::read(path).unwrap()));
                }
            }
        }
        all
    }
}

/// `tunnel visit CODE …` with its file in `dir`, as on a machine of its own.
fn visit(dir: &Path, code: &str, args: &[&str]) -> Command {
    let mut command = tunnel(&["visit", code, "--config"]);
    command.arg(dir.join("client.yaml")).arg("--control").arg(dir.join("c.sock")).args(args);
    command.env("HOME", dir);
    command
}

/// The client `guest`, which the server has enrolled without an inviter.
fn guest(stage: &Stage, dir: &Path, rights: &[&str]) -> Daemon {
    let enrolled = crate::enrol::code(&stage.running, &[&["guest"], rights].concat());
    let mut command = tunnel(&["client", "--enroll", &enrolled, "--config"]);
    command.arg(dir.join("client.yaml")).arg("--control").arg(dir.join("c.sock"));
    command.env("HOME", dir);
    let guest = Daemon::start("guest", dir, &mut command);
    guest.wait_line(&["is connected to"], SOON);
    guest
}

/// A visitor that reaches the echo service at this local port.
fn echoes(port: u16) {
    wait("an echo of the private service", LONG, || {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(SOON)).ok()?;
        std::io::Write::write_all(&mut stream, b"?").ok()?;
        stream.read_exact(&mut [0]).ok()
    });
}

/// The token of the visits in a client's file.
fn token_in(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let (_, forward) = text.split_once("service://").unwrap();
    let (_, token) = forward.split_once("token: ").unwrap();
    token.split([',', ' ', '}', '\n']).next().unwrap().trim_matches('"').to_owned()
}

#[test]
fn a_code_is_all_that_a_second_machine_needs_and_it_reaches_that_service_and_nothing_else() {
    let mut stage = Stage::new();
    let code = stage.code(&["--new", "ssh", "--name", "laptop"]);
    let (exit, said, _) = stage.host(&["--list"]);
    assert_eq!(exit, Some(0));
    assert!(said.starts_with("laptop visits ssh: has not come; the code is valid for"), "{said}");

    let (machine, port) = (TempDir::new().unwrap(), free_port());
    let listen = ["--listen", &port.to_string()];
    let mut command = visit(machine.path(), &code, &listen);
    let visitor = Daemon::start("visitor", machine.path(), &mut command);
    visitor.wait_line(&["client `laptop` is enrolled"], SOON);
    echoes(port);
    echo(&connect(port), 7);
    let file = machine.path().join("client.yaml");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    // The visitor has come: its token has no end any more.
    wait("the visitor has come", SOON, || {
        (stage.host(&["--list"]).1 == "laptop visits ssh: has come\n").then_some(())
    });
    let kept = stage.running.file("client-state/visitors-home.json");
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    let token = token_in(&file);
    assert_eq!(token.len(), 43);
    assert!(!fs::read_to_string(&kept).unwrap().contains(&token), "only its hash is kept");

    // The server knows the one right, and nothing of the token.
    let client = stage.client("laptop").unwrap();
    assert_eq!(client["rights"]["visit"], serde_json::json!(["home/ssh"]));
    for key in ["tcp", "udp", "http", "tls", "forward"] {
        assert_eq!(client["rights"][key], serde_json::json!([]), "{key}");
    }
    let of_server = stage.of_server();
    assert!(of_server.contains("to visit home/ssh; client home asked for it"), "{of_server}");
    assert!(!of_server.contains(&token) && !of_server.contains(&code));

    // The code works once.
    let second = TempDir::new().unwrap();
    let (exit, said, complaint) = outcome(run(&mut visit(second.path(), &code, &["--no-start"])));
    assert_eq!((exit, said.as_str()), (Some(1), ""), "{complaint}");
    assert!(complaint.contains("the code is not good (any more)"), "{complaint}");
    assert!(!second.path().join("client.yaml").exists());

    // Another service of the same client is out of reach, even with the same token.
    drop(visitor);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("service://home/ssh", "service://home/web")).unwrap();
    let mut command = tunnel(&["client", "--config"]);
    command.arg(&file).arg("--control").arg(machine.path().join("c.sock"));
    command.env("HOME", machine.path());
    let visitor = Daemon::start("visitor2", machine.path(), &mut command);
    wait("the port", SOON, || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    wait("a refusal", LONG, || {
        let mut stream = connect(port);
        // Closed or reset without a byte.
        (!matches!(stream.read(&mut [0]), Ok(1))).then_some(())
    });
    visitor.wait_line(&["no visit of the private service home/web", "the server refuses"], LONG);
    // The line of a visit, as the publisher writes it.
    let home = stage.running.client().log();
    assert!(home.contains("client laptop visits the private service ssh"), "{home}");
    assert!(!home.contains("visits the private service web"), "{home}");
}

#[test]
fn a_visitor_that_is_revoked_reaches_nothing_and_is_forgotten_by_the_server() {
    let stage = Stage::new();
    let code = stage.code(&["--new", "ssh", "--name", "laptop"]);
    let (machine, port) = (TempDir::new().unwrap(), free_port());
    let mut command = visit(machine.path(), &code, &["--listen", &port.to_string()]);
    let _visitor = Daemon::start("visitor", machine.path(), &mut command);
    echoes(port);
    let open = connect(port);
    echo(&open, 1);
    let (exit, said, complaint) = stage.host(&["--revoke", "laptop"]);
    assert_eq!((exit, complaint.as_str()), (Some(0), ""));
    assert_eq!(said, "laptop can no longer visit ssh\n");
    let gone = { &open }.read(&mut [0]);
    assert!(!matches!(gone, Ok(1)), "the visit has ended");
    assert!(stage.client("laptop").is_none(), "it had no other right");
    assert!(!stage.running.file("client-state/visitors-home.json").exists());
    let (exit, _, complaint) = stage.host(&["--revoke", "laptop"]);
    assert_eq!(exit, Some(1));
    assert!(complaint.contains("no visitor `laptop` came by a code"), "{complaint}");
}

#[test]
fn a_revocation_that_a_broken_file_keeps_from_coming_into_force_says_so_and_can_be_repeated() {
    let stage = Stage::new();
    let _code = stage.code(&["--new", "ssh", "--name", "laptop"]);
    stage.running.edit_client(|text| text + "nonsense: 1\n");
    let (exit, said, complaint) = stage.host(&["--revoke", "laptop"]);
    assert!(exit.is_some_and(|exit| exit > 0) && said.is_empty(), "{said}");
    assert!(complaint.contains("the visits of laptop go on"), "{complaint}");
    assert!(complaint.contains("nonsense"), "{complaint}");
    stage.running.edit_client(|text| text.replace("nonsense: 1\n", ""));
    let again = stage.host(&["--revoke", "laptop"]);
    assert_eq!(again.1, "laptop can no longer visit ssh\n", "{again:?}");
}

#[test]
fn an_invitation_that_fails_leaves_other_codes_alone_and_no_right_on_the_server() {
    let stage = Stage::new();
    let machine = TempDir::new().unwrap();
    let _guest = guest(&stage, machine.path(), &[]);
    let _code = stage.code(&["--new", "ssh", "--name", "laptop"]);
    stage.running.edit_client(|text| text + "nonsense: 1\n");
    for whom in [["--name", "laptop"], ["--for", "guest"]] {
        let (exit, _, complaint) = stage.host(&["--new", "web", whom[0], whom[1]]);
        assert!(exit.is_some_and(|exit| exit > 0) && complaint.contains("nonsense"), "{complaint}");
    }
    let listed = stage.host(&["--list"]).1;
    assert!(listed.starts_with("laptop visits ssh: ") && listed.lines().count() == 1, "{listed}");
    assert_eq!(stage.client("guest").unwrap()["rights"]["visit"], serde_json::json!([]));
}

#[test]
fn a_client_that_is_there_already_gets_the_forward_and_the_right() {
    let stage = Stage::new();
    // The second machine is a client by an enrolment.
    let machine = TempDir::new().unwrap();
    let enrolled = crate::enrol::code(&stage.running, &["office"]);
    let file = machine.path().join("client.yaml");
    let mut command = tunnel(&["client", "--enroll", &enrolled, "--config"]);
    command.arg(&file).arg("--control").arg(machine.path().join("c.sock"));
    command.env("HOME", machine.path());
    let office = Daemon::start("office", machine.path(), &mut command);
    office.wait_line(&["is connected to"], SOON);

    let code = stage.code(&["--new", "web", "--for", "office"]);
    let port = free_port();
    let mut command = visit(machine.path(), &code, &["--listen", &port.to_string()]);
    let said = outcome(run(&mut command));
    assert_eq!(said.0, Some(0), "{said:?}");
    assert!(said.2.contains("added the forward to service://home/web"), "{said:?}");
    echoes(port);
    let client = stage.client("office").unwrap();
    assert_eq!(client["rights"]["visit"], serde_json::json!(["home/web"]));

    // A code for somebody else says how to get one.
    let other = stage.code(&["--new", "ssh", "--name", "laptop"]);
    let (exit, _, complaint) = outcome(run(&mut visit(machine.path(), &other, &[])));
    assert_eq!(exit, Some(2));
    assert!(complaint.contains("tunnel visit --new ssh --for office"), "{complaint}");

    // The right alone goes; the client stays, because it has others.
    stage.host(&["--revoke", "office"]);
    let client = stage.client("office").unwrap();
    assert_eq!(client["rights"]["visit"], serde_json::json!([]));
}

#[test]
fn an_inviter_does_not_remove_a_client_that_it_did_not_invite() {
    let stage = Stage::new();
    let machine = TempDir::new().unwrap();
    let _guest = guest(&stage, machine.path(), &["--allow-visit", "home/web"]);
    let control = stage.running.file("server.sock");
    let ports = "10000-10999";
    let deny = ["deny", "guest", "--tcp", ports, "--udp", ports, "--control"];
    assert!(run(tunnel(&deny).arg(control)).status.success());
    stage.code(&["--new", "web", "--for", "guest"]);
    assert_eq!(stage.client("guest").unwrap()["rights"]["visit"], serde_json::json!(["home/web"]));
    let (exit, said, complaint) = stage.host(&["--revoke", "guest"]);
    assert_eq!((exit, said.as_str()), (Some(0), "guest can no longer visit web\n"), "{complaint}");
    let client = stage.client("guest").expect("the client stays");
    assert_eq!(client["rights"]["visit"], serde_json::json!([]));
}

#[test]
fn without_the_right_to_invite_there_is_no_code_and_a_wrong_order_says_what_is_wrong() {
    let stage = Stage::new();
    for (args, why) in [
        (&["--new", "smtp"][..], "no private service `smtp` here (hint: there are: ssh, web)"),
        (&["--new"], "which private service? (hint: there are: ssh, web)"),
        (&["--new", "ssh", "--name", "a b"], "visitor `a b`: "),
        (&["--new", "ssh", "--name", "home"], "a client needs no right to its own services"),
    ] {
        let (exit, said, complaint) = stage.host(args);
        assert!(exit.is_some_and(|exit| exit > 0) && said.is_empty(), "{args:?}");
        assert!(complaint.contains(why), "{complaint}");
    }
    // A client that the server does not know yet: the code is made, and what is missing is told.
    let (exit, said, _) = stage.host(&["--new", "ssh", "--for", "nobody"]);
    assert_eq!(exit, Some(0));
    assert!(said.contains("the server knows no client `nobody`); on its machine:"), "{said}");

    stage.running.edit_server(|text| text.replace(", invite: true", ""));
    assert!(stage.running.reload("server").status.success());
    let (exit, said, complaint) = stage.host(&["--new", "ssh"]);
    assert_eq!((exit, said.as_str()), (Some(1), ""));
    assert!(complaint.contains("client `home` has no right to invite visitors"), "{complaint}");
    assert_eq!(stage.host(&["--list"]).1.lines().count(), 1, "the one for nobody");
}

//! The state of targets, as visitors and checks find out, and the access log.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;

use serde_json::Value;
use testkit::stage::Running;

use crate::harness::{
    Origin, SOON, Scheme, Setup, connect, free_port, run, try_connect, tunnel, wait,
};

/// A service, or a forward, in the status of a role.
fn entry(running: &Running, role: &str, list: &str, name: &str) -> Value {
    let status = running.status(role).unwrap();
    let all = status["sessions"][0][list].as_array().unwrap().clone();
    let is_it = |entry: &&Value| entry["name"].as_str().unwrap().starts_with(name);
    all.iter().find(is_it).unwrap_or_else(|| panic!("no {name} in {status}")).clone()
}

fn state(running: &Running, role: &str, list: &str, name: &str) -> String {
    entry(running, role, list, name)["state"].as_str().unwrap().to_owned()
}

fn is_at(running: &Running, role: &str, list: &str, name: &str, wanted: &str) {
    wait(&format!("{name} is {wanted} on the {role}"), SOON, || {
        (state(running, role, list, name) == wanted).then_some(())
    });
}

/// A visitor whom the tunnel refuses: the connection ends without a byte.
fn turned_away(port: u16) {
    // The reset may come before the connection is known to be there.
    let Ok(mut visitor) = try_connect(port) else { return };
    drop(visitor.write_all(b"?"));
    assert!(matches!(visitor.read(&mut [0]), Ok(0) | Err(_)));
}

fn served(port: u16) {
    let mut visitor = connect(port);
    visitor.write_all(b"!").unwrap();
    visitor.read_exact(&mut [0]).unwrap();
}

fn status_text(running: &Running, role: &str) -> String {
    let mut command = tunnel(&["status", "--control"]);
    command.arg(running.file(&format!("{role}.sock")));
    String::from_utf8(run(&mut command).stdout).unwrap()
}

/// Whether a line says that a target is down, for however long.
fn is_down(text: &str, begin: &str, end: &str) -> bool {
    let lines = text.lines().filter_map(|line| line.split_once(begin));
    let mut times = lines.filter_map(|(_, rest)| rest.strip_suffix(end));
    times.any(|time| time.ends_with('s'))
}

#[test]
fn a_target_that_refuses_is_down_on_both_sides_until_it_serves_again() {
    for &scheme in Scheme::ALL {
        let target = free_port();
        let mut running = Setup::new(scheme).service("web", target).start();
        let public = running.public("web");
        for role in ["client", "server"] {
            is_at(&running, role, "services", "web", "up");
        }
        turned_away(public);
        for role in ["client", "server"] {
            is_at(&running, role, "services", "web", "target_down");
            let down = entry(&running, role, "services", "web")["down"].clone();
            assert_eq!(down["reason"], "it refuses connections", "{down}");
            let text = status_text(&running, role);
            assert!(
                is_down(&text, "the target of web is down for ", ": it refuses connections"),
                "{text}"
            );
        }
        running.client().wait_line(&["the target of service web is down: tcp://127.0.0.1:"], SOON);
        running
            .server
            .wait_line(&["the target of service web of client home is down: it refuses"], SOON);
        let _origin = Origin::start_on(&format!("127.0.0.1:{target}"), |mut stream: TcpStream| {
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
        });
        served(public);
        for role in ["client", "server"] {
            is_at(&running, role, "services", "web", "up");
        }
        running.client().wait_line(&["serves again, after ", "web"], SOON);
        running.server.wait_line(&["serves again, after ", "web"], SOON);
    }
}

#[test]
fn a_forward_that_the_server_denies_is_not_up() {
    let origin = Origin::echo();
    let setup = Setup::new(Scheme::TLS).forward(origin.port());
    let running = setup.start();
    let (local, target) = (running.local(), origin.port());
    is_at(&running, "client", "forwards", "tcp://", "up");
    running.edit_server(|text| text.replace(&format!("\"127.0.0.1:{target}\""), ""));
    assert!(running.reload("server").status.success());
    turned_away(local);
    is_at(&running, "client", "forwards", "tcp://", "denied");
    let command = format!("tunnel allow home --forward 127.0.0.1:{target}");
    running.server.wait_line(&["is not allowed", &command], SOON);
    let text = status_text(&running, "client");
    assert!(is_down(&text, " is down for ", ": it is not allowed"), "{text}");
    running.edit_server(|text| {
        text.replace("forward: []", &format!("forward: [\"127.0.0.1:{target}\"]"))
    });
    assert!(running.reload("server").status.success());
    served(local);
    is_at(&running, "client", "forwards", "tcp://", "up");
}

#[test]
fn a_check_finds_out_without_a_visitor() {
    // The port is bound again below, so no other test may get it meanwhile.
    let target = free_port();
    let listener = TcpListener::bind(("127.0.0.1", target)).unwrap();
    let running = Setup::new(Scheme::TLS).service("web", target).start();
    running.edit_client(|text| {
        text.replace("{ name: web,", "{ name: web, health: { interval: 1s, timeout: 1s },")
    });
    assert!(running.reload("client").status.success());
    // A check ends cleanly and sends nothing.
    let (mut check, _) = listener.accept().unwrap();
    assert_eq!(check.read(&mut [0]).unwrap(), 0);
    is_at(&running, "client", "services", "web", "up");
    drop((check, listener));
    is_at(&running, "client", "services", "web", "target_down");
    let _listener = TcpListener::bind(("127.0.0.1", target)).unwrap();
    is_at(&running, "client", "services", "web", "up");
}

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn each_visitor_that_has_left_is_a_line_where_that_is_asked() {
    for &scheme in Scheme::ALL {
        let origin = Origin::echo();
        let mut setup = Setup::new(scheme).service("echo", origin.port()).forward(origin.port());
        setup.server_lines.push_str("log: { access: true, format: json }\n");
        let path = setup.dir().join("access.log");
        setup.client_lines.push_str(&format!("log: {{ access: \"{}\" }}\n", path.display()));
        let mut running = setup.start();
        let public = running.public("echo");
        let mut visitor = connect(public);
        let from = visitor.local_addr().unwrap().to_string();
        visitor.write_all(&[7; 1000]).unwrap();
        visitor.read_exact(&mut [0; 1000]).unwrap();
        assert!(!running.server.log().contains(&from), "only when the visitor has left");
        visitor.shutdown(Shutdown::Write).unwrap();
        assert_eq!(visitor.read(&mut [0]).unwrap(), 0);
        drop(visitor);

        let line = running.server.wait_line(&["\"target\":\"access\"", &from], SOON);
        let line: Value = serde_json::from_str(line.trim()).unwrap();
        assert_eq!((&line["service"], &line["client"]), (&"echo".into(), &"home".into()));
        assert_eq!((&line["bytes_in"], &line["bytes_out"]), (&1000.into(), &1000.into()));
        assert_eq!((&line["end"], &line["level"]), (&"finished".into(), &"INFO".into()));
        assert!(line["seconds"].as_f64().is_some(), "{line}");

        // The client has a file of its own, and its log has no visitor.
        wait("the line of the client", SOON, || (lines(&path).len() == 1).then_some(()));
        let line = lines(&path).remove(0);
        let target = format!("target=tcp://127.0.0.1:{}", origin.port());
        for part in ["service=echo", &target, &from, "bytes_in=1000", "end=\"finished\""] {
            assert!(line.contains(part), "{line}");
        }
        drop(connect(running.local()));
        wait("the forward", SOON, || (lines(&path).len() == 2).then_some(()));
        let address = format!("service=tcp://127.0.0.1:{}", running.local());
        assert!(lines(&path)[1].contains(&address), "{:?}", lines(&path));
        assert!(!running.client().log().contains(&from), "{}", running.client().log());

        // Off for visitors that come afterwards.
        running.edit_client(|text| text.replace("access: \"", "access: false # \""));
        running.edit_client(|text| text.replace("false # \"", "false } # \""));
        assert!(running.reload("client").status.success());
        served(public);
        running.wait_echo(public);
        assert_eq!(lines(&path).len(), 2);
    }
}

#[test]
fn a_test_of_a_service_tells_its_steps_or_why_it_fails_at_both_ends() {
    let origin = Origin::echo();
    let setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    let running = setup.service("dead", free_port()).start();
    running.wait_echo(running.public("echo"));
    let test = |role: &str, name: &str| {
        let mut command = tunnel(&["test", name, "--control"]);
        let output = run(command.arg(running.file(&format!("{role}.sock"))));
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code(), text.concat())
    };
    for role in ["client", "server"] {
        let (exit, said) = test(role, "echo");
        assert_eq!(exit, Some(0), "{said}");
        assert!(said.contains("connect") && said.contains(" ms"), "{said}");
        assert_eq!(said.contains("round trip to client home: "), role == "server", "{said}");
        let (exit, said) = test(role, "dead");
        assert_eq!(exit, Some(1), "{said}");
        assert!(said.contains("fails") && said.contains("refused"), "{said}");
        let (exit, said) = test(role, "nothing");
        assert!(exit == Some(1) && said.contains("service `nothing`"), "{said}");
    }
}

//! What a person reads when something is wrong: one line on each side that says what, where and
//! what to do.

use std::fs;
use std::net::TcpListener;

use crate::harness::{Origin, SOON, Scheme, Setup, free_port, run, tunnel};

#[test]
fn a_wrong_token_is_told_on_both_sides() {
    for scheme in Scheme::ALL {
        let origin = Origin::echo();
        let mut running = Setup::new(scheme).service("echo", origin.port()).start_server();
        running.edit_client(|text| {
            let token = text.split("token: \"").nth(1).unwrap().split('"').next().unwrap();
            let other: String = token.chars().rev().collect();
            text.replace(token, &other)
        });
        running.start_client();
        let address = format!("127.0.0.1:{}", running.server_port());
        running.client().wait_one_line(&["token", &address], SOON);
        running.server.wait_one_line(&["token", "home"], SOON);
        assert!(running.client().is_running(), "it may be mended on the other side");
    }
}

#[test]
fn a_pin_that_does_not_match_is_told_on_both_sides() {
    let origin = Origin::echo();
    let mut running = Setup::new(Scheme::Tls).service("echo", origin.port()).start_server();
    running.edit_client(|text| {
        let start = text.find("sha256:").unwrap() + "sha256:".len();
        let (head, tail) = text.split_at(start);
        // Another key's hash of the same length.
        let swapped = if tail.starts_with('A') { "B" } else { "A" };
        format!("{head}{swapped}{}", &tail[1..])
    });
    running.start_client();
    let address = format!("127.0.0.1:{}", running.server_port());
    running.client().wait_one_line(&["pin", "sha256:", &address], SOON);
    // The server sees an alert and can only guess, but says from whom.
    running.server.wait_one_line(&["127.0.0.1", "certificate"], SOON);
}

#[test]
fn a_public_port_that_is_taken_is_told_on_both_sides() {
    let (origin, port) = (Origin::echo(), free_port());
    let _other_program = TcpListener::bind(("0.0.0.0", port)).unwrap();
    let setup = Setup::new(Scheme::Tls).service_on("echo", origin.port(), port);
    let mut running = setup.start_server();
    running.start_client();
    let port = port.to_string();
    running.client().wait_one_line(&["echo", &port, "use"], SOON);
    running.server.wait_one_line(&["home", &port, "use"], SOON);
}

#[test]
fn a_public_port_that_is_not_allowed_is_told_on_both_sides() {
    let (origin, port) = (Origin::echo(), free_port());
    let setup = Setup::new(Scheme::Tls).service("echo", origin.port());
    let mut running = setup.start_server();
    let public = running.public("echo").to_string();
    let port = port.to_string();
    running
        .edit_client(|text| text.replace(&format!("tcp://:{public}"), &format!("tcp://:{port}")));
    running.start_client();
    running.client().wait_one_line(&["echo", &port, "allow"], SOON);
    running.server.wait_one_line(&["home", &port, "allow"], SOON);
}

#[test]
fn a_forward_that_is_not_allowed_is_reset_and_told() {
    let origin = Origin::echo();
    let setup = Setup::new(Scheme::Tls).forward(origin.port());
    let mut running = setup.start_server();
    let forbidden = free_port();
    let allowed = format!("target: \"tcp://127.0.0.1:{}\"", origin.port());
    let other = format!("target: \"tcp://127.0.0.1:{forbidden}\"");
    running.edit_client(|text| text.replace(&allowed, &other));
    running.start_client();
    running.wait_ready();
    crate::harness::bytes::expect_reset(&crate::harness::connect(running.local()));
    running.server.wait_line(&["home", &forbidden.to_string(), "allow"], SOON);
}

#[test]
fn every_problem_of_a_wrong_file_is_told_at_once_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.yaml");
    let text = "listen:\n  - tls://0.0.0.0:70000\nkeepalive: soon\nclients:\n  - name: home\n    \
                tokn: \"x\"\n";
    fs::write(&file, text).unwrap();
    for command in ["server", "check"] {
        let output = run(tunnel(&[command, "--config"]).arg(&file));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        // Line and column of: the port, the duration, the unknown key.
        for place in ["server.yaml:2:5", "server.yaml:3:12", "server.yaml:6:5"] {
            assert!(said.contains(place), "{command} does not name {place}:\n{said}");
        }
        for word in ["70000", "keepalive", "tokn", "token"] {
            assert!(said.contains(word), "{command} does not name {word}:\n{said}");
        }
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let output = run(&mut tunnel(&["client", "--config", "/nowhere/client.yaml"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("/nowhere/client.yaml"), "{said}");
}

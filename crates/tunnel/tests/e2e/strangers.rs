//! `allow_any_client`: unknown clients are accepted, and a name belongs to the first of them while
//! it is connected.

use testkit::stage::{Daemon, Running};

use crate::harness::{Origin, SOON, Scheme, Setup, connect, try_connect, wait};
use crate::reload::{echo, outcome};

const OTHER_TOKEN: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3uKq";

/// A server that knows somebody else, and lets anybody publish this one's port.
fn open(setup: Setup) -> Running {
    let running = setup.start_server();
    let port = running.public("echo");
    running.edit_server(|text| {
        let text = text.replace("name: home", "name: known");
        format!("{text}allow_any_client: {{ allow: {{ tcp: [\"{port}\"] }} }}\n")
    });
    assert_eq!(outcome(running.reload("server")).0, Some(0));
    running.edit_client(|text| format!("{text}introduce: true\n"));
    running
}

fn with(running: &Running, name: &str, token: &str) -> Daemon {
    running.start_another_client(|text| {
        let own = text.lines().find(|line| line.starts_with("token")).unwrap().to_owned();
        text.replace(&own, &format!("token: {token}"))
            .replace("name: home", &format!("name: {name}"))
    })
}

#[test]
fn whoever_nobody_knows_keeps_a_name_as_long_as_he_is_connected() {
    [Scheme::TLS, Scheme::QUIC, Scheme::KCP].into_iter().for_each(keeps_a_name);
}

fn keeps_a_name(scheme: Scheme) {
    let origin = Origin::echo();
    let mut running = open(Setup::new(scheme).service("echo", origin.port()));
    let port = running.public("echo");
    running.start_client();
    running.wait_echo(port);
    running.server.wait_line(&["home", "introduced itself"], SOON);
    let stays = connect(port);
    echo(&stays, 1);

    let mut other = with(&running, "home", OTHER_TOKEN);
    other.wait_line(&["unknown client name or wrong token"], SOON);
    running.server.wait_line(&["`home`", "did not log in", "another client"], SOON);
    other.kill();
    let mut known = with(&running, "known", OTHER_TOKEN);
    known.wait_line(&["unknown client name or wrong token"], SOON);
    running.server.wait_line(&["`known`", "did not log in", "wrong token"], SOON);
    known.kill();
    echo(&stays, 2);

    // A server that knows nobody any more is told again.
    drop(stays);
    running.server.kill();
    running.server.wait_end(SOON);
    running.start_server_again();
    running.wait_echo(port);

    // The name is free when its client has gone.
    running.client().terminate();
    running.client().wait_end(SOON);
    running.server.wait_line(&["of client home ended"], SOON);
    let mut other = with(&running, "home", OTHER_TOKEN);
    other.wait_line(&["service echo is published at "], SOON);
    other.kill();
}

#[test]
fn whoever_nobody_knows_is_out_when_that_is_switched_off() {
    let origin = Origin::echo();
    let mut running = open(Setup::new(Scheme::TLS).service("echo", origin.port()));
    let port = running.public("echo");
    running.start_client();
    running.wait_echo(port);
    running.edit_server(|text| text.replace("allow_any_client", "# allow_any_client"));
    let (code, said, _) = outcome(running.reload("server"));
    assert_eq!(code, Some(0));
    assert!(said.contains("client home removed"), "{said}");
    wait("the port to close", SOON, || try_connect(port).err());
    running.server.wait_line(&["`home`", "did not log in", "no entry under `clients`"], SOON);
}

#[test]
fn without_tls_nobody_is_taken_at_his_word() {
    let origin = Origin::echo();
    let mut running = open(Setup::new(Scheme::TCP).service("echo", origin.port()));
    running.start_client();
    running.client().wait_line(&["unknown client name or wrong token"], SOON);
    running.server.wait_line(&["`home`", "did not log in", "kcp:// only"], SOON);
    assert!(try_connect(running.public("echo")).is_err());
}

#[test]
fn who_does_not_mean_to_introduce_himself_is_told_how() {
    let origin = Origin::echo();
    let mut running = open(Setup::new(Scheme::TLS).service("echo", origin.port()));
    running.edit_client(|text| text.replace("introduce: true", "introduce: false"));
    running.start_client();
    running.client().wait_line(&["does not know this client", "`introduce: true`"], SOON);
    running.server.wait_line(&["`home`", "did not log in", "introduce: true"], SOON);
    assert!(try_connect(running.public("echo")).is_err());
}

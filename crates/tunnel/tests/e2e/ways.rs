//! The interface and the source address of dials (`interface`, `source`).

use std::io::{Read as _, Write as _};

use crate::harness::{
    LONG, Origin, SOON, Scheme, Setup, connect, run, side_by_side, try_connect, tunnel, wait,
};

/// The address that the target sees, as the target tells it to the visitor.
fn seen_by_target(port: u16) -> String {
    let mut seen = String::new();
    connect(port).read_to_string(&mut seen).unwrap();
    seen
}

#[test]
fn a_reload_moves_a_client_to_another_source_and_dials_its_target_from_there() {
    side_by_side(&[Scheme::TCP, Scheme::TLS, Scheme::WSS, Scheme::QUIC, Scheme::KCP], |scheme| {
        let origin = Origin::start(|mut stream| {
            let from = stream.peer_addr().unwrap().ip();
            write!(stream, "{from}").unwrap();
        });
        let running = Setup::new(scheme).service("web", origin.port()).start();
        assert_eq!(seen_by_target(running.public("web")), "127.0.0.1");
        let is_at = |address: &str| {
            let status = running.status("server")?;
            let carriers = &status["sessions"][0]["links"][0]["carriers"];
            carriers.to_string().contains(&format!("\"{address}")).then_some(())
        };
        wait("the client is at its usual address", SOON, || is_at("127.0.0.1"));
        running.edit_client(|text| {
            text.replace("servers: [\"", "servers: [{ source: 127.0.0.2, url: \"")
                .replace("\"]\n", "\" }]\n")
                .replace("name: web,", "name: web, interface: lo, source: 127.0.0.3,")
        });
        let reloaded = running.reload("client");
        assert!(reloaded.status.success(), "{reloaded:?}");
        wait("the client is at its source", LONG, || is_at("127.0.0.2"));
        wait("the target is dialled from its source", SOON, || {
            (seen_by_target(running.public("web")) == "127.0.0.3").then_some(())
        });
    });
}

#[test]
fn a_check_warns_of_an_interface_that_is_not_there_and_a_dial_names_it() {
    let target = Origin::start(|_| {});
    let mut running = Setup::new(Scheme::TLS).service("web", target.port()).start();
    running.edit_client(|text| text.replace("name: web,", "name: web, interface: absent0,"));
    let checked = run(tunnel(&["check", "--config"]).arg(running.file("client.yaml")));
    let text = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success(), "a warning: {text}");
    assert!(text.contains("service web: this machine has no interface absent0"), "{text}");
    assert!(running.reload("client").status.success());
    let port = running.public("web");
    // The server may reset the connection before it is established here.
    drop(try_connect(port).map(|mut visitor| visitor.read(&mut [0])));
    running.client().wait_line(&["this machine has no interface absent0"], SOON);
}

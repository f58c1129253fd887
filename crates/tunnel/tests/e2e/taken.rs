//! A public port that is in use when a client registers it, and becomes free later.

use std::net::TcpListener;

use crate::harness::{LONG, Origin, SOON, Scheme, Setup, free_port, side_by_side};

#[test]
fn a_service_whose_port_was_taken_is_published_when_it_is_free() {
    side_by_side(Scheme::ALL, |scheme| {
        let (good, late) = (Origin::echo(), Origin::echo());
        let port = free_port();
        let other = TcpListener::bind(("0.0.0.0", port)).unwrap();
        let setup = Setup::new(scheme).service("good", good.port());
        let setup = setup.service_on("late", late.port(), port);
        let mut running = setup.start_server();
        running.start_client();
        for daemon in ["server", "client"] {
            let daemon = if daemon == "server" { &running.server } else { running.client() };
            daemon.wait_line(&["late", "not published", &format!(":{port}"), "in use"], SOON);
        }
        running.wait_echo(running.public("good"));
        let status = running.status("client").unwrap()["sessions"][0]["services"][1].clone();
        assert_eq!(status["state"], "refused", "{status}");
        assert!(status["state_text"].as_str().unwrap().contains("in use"), "{status}");

        drop(other);
        running
            .client()
            .wait_line(&["service late is published at tcp://", &port.to_string()], LONG);
        running.wait_echo(port);
        running.wait_echo(running.public("good"));
        // Once each, whatever was asked meanwhile.
        for log in [running.server.log(), running.client().log()] {
            assert_eq!(log.matches("published at").count(), 2, "{log}");
            assert_eq!(log.matches("not published").count(), 1, "{log}");
        }
    });
}

//! Flows outlive carriers (reliability 39).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{Echo, ask, one_service, start, visitor};
use crate::harness::{LONG, SOON, Scheme, side_by_side, wait};

#[test]
fn a_flow_outlives_its_carrier_with_the_same_socket_at_the_target() {
    side_by_side(Scheme::ALL, |scheme| {
        let echo = Echo::start();
        let (setup, port) = one_service(scheme, echo.port());
        let running = start(setup.wired(), 1);
        let visitor = visitor(port);
        ask(&visitor, b"before");
        let mut got = BTreeSet::new();
        let (mut sent, mut answer) = (0_u32, [0; 64]);
        visitor.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        for death in 1..=5_u32 {
            running.wire().kill();
            let before = sent;
            // Answers to datagrams that were sent after the death.
            let begin = Instant::now();
            while !got.iter().any(|number| *number > before + 20) {
                assert!(begin.elapsed() < LONG, "{scheme:?}: no answer after death {death}");
                sent += 1;
                visitor.send(&sent.to_be_bytes()).unwrap();
                while let Ok(length) = visitor.recv(&mut answer) {
                    let number = u32::from_be_bytes(answer[..length].try_into().unwrap());
                    assert!(got.insert(number), "{scheme:?}: {number} came twice");
                    assert!(number <= sent);
                }
            }
        }
        assert_eq!(echo.peers().len(), 1, "{scheme:?}: the target sees one port");
    });
}

#[test]
fn a_keep_alive_every_25_seconds_keeps_a_flow_whose_idle_time_is_longer() {
    // The same over five minutes of virtual time is in relay/tests; here the idle times are short.
    let echo = Echo::start();
    let (mut setup, port) = one_service(Scheme::TLS, echo.port());
    let keys = ", timeouts: { flow: 3s, flow_unanswered: 1s } }";
    setup.client_lines = setup.client_lines.replace(" }\n", &format!("{keys}\n"));
    let running = start(setup, 1);
    let visitor = visitor(port);
    for _ in 0..8 {
        ask(&visitor, b"keep-alive");
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(echo.peers().len(), 1, "one flow");
    wait("the end of the idle flow", SOON, || {
        let flows = |role| super::service(&running, role, "echo")["flows"].as_u64().unwrap_or(0);
        (flows("server") + flows("client") == 0).then_some(())
    });
    ask(&visitor, b"again");
    assert_eq!(echo.peers().len(), 2, "a new flow");
}

#[test]
fn a_server_that_was_killed_serves_udp_again() {
    side_by_side(&[Scheme::TLS, Scheme::QUIC, Scheme::KCP], |scheme| {
        let echo = Echo::start();
        let (setup, port) = one_service(scheme, echo.port());
        let mut running = start(setup, 1);
        ask(&visitor(port), b"before");
        running.server.kill();
        running.start_server_again();
        ask(&visitor(port), b"after");
    });
}

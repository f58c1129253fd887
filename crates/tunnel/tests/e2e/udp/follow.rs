//! Flows that are in use follow their targets, and a query outlives idle flows.

use super::{Echo, ask, one_service, start, visitor};
use crate::harness::{SOON, Scheme, wait};

/// The visitor goes on sending from its port, as a game or WireGuard does.
#[test]
fn a_visitor_that_goes_on_sending_is_served_by_the_new_target_after_a_reload() {
    let (former, next) = (Echo::start(), Echo::answering(|_| Some(b"next".to_vec())));
    let (setup, port) = one_service(Scheme::TLS, former.port());
    let running = start(setup, 1);
    let visitor = visitor(port);
    ask(&visitor, b"before");
    let from = format!("udp://127.0.0.1:{}", former.port());
    let to = format!("udp://127.0.0.1:{}", next.port());
    running.edit_client(|text| text.replace(&from, &to));
    let outcome = running.reload("client");
    assert!(outcome.status.success(), "{outcome:?}");
    wait("the new target serves", SOON, || {
        visitor.send(b"?").unwrap();
        let mut got = [0; 16];
        let length = visitor.recv(&mut got).ok()?;
        (got.get(..length) == Some(b"next")).then_some(())
    });
    running.edit_client(|text| {
        let (before, services) = text.split_once("services:\n").expect("it has services");
        let after = services.lines().skip_while(|line| line.starts_with([' ', '-']));
        after.fold(before.to_owned(), |text, line| text + line + "\n")
    });
    let outcome = running.reload("client");
    assert!(outcome.status.success(), "{outcome:?}");
    let asked = next.peers().len();
    visitor.send(b"nobody").unwrap();
    assert!(visitor.recv(&mut [0; 16]).is_err());
    assert_eq!(next.peers().len(), asked);
}

/// Each question comes from a new port of one address.
#[test]
fn a_resolver_behind_one_address_gets_every_answer() {
    let echo = Echo::start();
    let (setup, port) = one_service(Scheme::TLS, echo.port());
    let running = start(setup, 1);
    running.edit_server(|text| {
        text.replace("    allow:", "    limits: { source: { flows: 32 } }\n    allow:")
    });
    assert!(running.reload("server").status.success());
    for number in 0..200_u32 {
        ask(&visitor(port), &number.to_be_bytes());
    }
    let status = super::service(&running, "server", "echo");
    assert_eq!(status["dropped"]["evicted"].as_u64(), None, "{status}");
    assert!(status["flows"].as_u64().unwrap() <= 32, "{status}");
}

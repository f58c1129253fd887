//! What `tunnel status` counts.

use serde_json::Value;

use crate::harness::{Origin, SOON, Scheme, Setup, bytes, connect, wait};

const ASKED: u64 = 1_000;
const ANSWERED: u64 = 1_000_000;

fn counts(status: &Value, list: &str) -> [Option<u64>; 2] {
    let service = &status["sessions"][0][list][0];
    ["bytes_in", "bytes_out"].map(|name| service[name].as_u64())
}

#[test]
fn both_ends_count_bytes_from_visitors_in_and_bytes_from_targets_out() {
    let origin = Origin::start(|stream| {
        bytes::expect(&stream, ASKED);
        bytes::send(&stream, ANSWERED);
    });
    let setup = Setup::new(Scheme::Tls).service("web", origin.port()).forward(origin.port());
    let running = setup.start();
    for port in [running.public("web"), running.local()] {
        let visitor = connect(port);
        bytes::send(&visitor, ASKED);
        bytes::expect(&visitor, ANSWERED);
        bytes::expect_end(&visitor);
    }
    for (role, list) in [("server", "services"), ("client", "services"), ("client", "forwards")] {
        wait(&format!("the {role} counts both ways of its {list}"), SOON, || {
            let status = running.status(role)?;
            let counted = counts(&status, list);
            let all = counted.iter().flatten().sum::<u64>() == ASKED + ANSWERED;
            assert!(!all || counted == [Some(ASKED), Some(ANSWERED)], "{role} {list}: {counted:?}");
            assert!(status["tasks"].as_u64() > Some(0), "{role}: {status}");
            all.then_some(())
        });
    }
}

//! Which pairs of networks get a direct path.

use std::io::{Read as _, Write as _};
use std::time::Instant;

use testkit::cage::Network::{
    self, Blocked, Cone, Double, Open, Plain, SameHost, SameNat, Symmetric, V6,
};
use testkit::stage::{LONG, SOON, wait};

use crate::in_a_cage;
use crate::stage::Stage;

/// Two networks, and what has to come of them.
struct Case {
    name: &'static str,
    visitor: Network,
    publisher: Network,
    /// The begin of the outcome: `direct`, or `relayed` with the reason.
    outcome: &'static str,
}

const fn case(
    name: &'static str,
    visitor: Network,
    publisher: Network,
    outcome: &'static str,
) -> Case {
    Case { name, visitor, publisher, outcome }
}

const DIRECT: &str = "direct";
const BOTH_MOVE: &str = "relayed: the NATs of both sides";
const MOVES: &str = "relayed: the NAT of this side";
const MOVES_THERE: &str = "relayed: the NAT of the other side";
const BLOCKED: &str = "relayed: UDP does not pass on this side";
const BLOCKED_THERE: &str = "relayed: UDP does not pass on the other side";
const FAMILIES: &str = "relayed: one side has addresses of IPv4 only";

const CASES: &[Case] = &[
    case("open_open", Open, Open, DIRECT),
    case("plain_plain", Plain, Plain, DIRECT),
    case("cone_cone", Cone, Cone, DIRECT),
    case("symmetric_open", Symmetric, Open, DIRECT),
    case("cone_symmetric", Cone, Symmetric, DIRECT),
    case("double_plain", Double, Plain, DIRECT),
    case("v6_v6", V6, V6, DIRECT),
    case("same_nat", Plain, SameNat, DIRECT),
    case("same_host", Plain, SameHost, DIRECT),
    case("symmetric_symmetric", Symmetric, Symmetric, BOTH_MOVE),
    case("blocked_plain", Blocked, Plain, BLOCKED),
    case("plain_blocked", Plain, Blocked, BLOCKED_THERE),
    // The cases of the module `long`.
    case("open_symmetric", Open, Symmetric, DIRECT),
    case("open_cone", Open, Cone, DIRECT),
    case("open_plain", Open, Plain, DIRECT),
    case("plain_open", Plain, Open, DIRECT),
    case("plain_cone", Plain, Cone, DIRECT),
    case("cone_open", Cone, Open, DIRECT),
    case("cone_plain", Cone, Plain, DIRECT),
    case("symmetric_cone", Symmetric, Cone, DIRECT),
    case("double_double", Double, Double, DIRECT),
    case("double_open", Double, Open, DIRECT),
    case("plain_double", Plain, Double, DIRECT),
    case("symmetric_plain", Symmetric, Plain, MOVES),
    case("plain_symmetric", Plain, Symmetric, MOVES_THERE),
    case("blocked_open", Blocked, Open, BLOCKED),
    case("open_blocked", Open, Blocked, BLOCKED_THERE),
    case("blocked_blocked", Blocked, Blocked, BLOCKED),
    case("v6_plain", V6, Plain, FAMILIES),
];

/// Visits in a cage, and tells by which path.
pub(crate) fn run(name: &str) -> String {
    let case = CASES.iter().find(|case| case.name == name).unwrap();
    let stage = Stage::new([case.visitor, case.publisher]);
    let began = Instant::now();
    let mut visitor = stage.visit();
    let mut echo = |byte: u8| {
        visitor.write_all(&[byte]).unwrap();
        let mut back = [0];
        visitor.read_exact(&mut back).unwrap();
        assert_eq!(back, [byte]);
    };
    echo(1);
    let first = began.elapsed().as_millis();
    // Whatever comes of it, the stream goes on.
    wait("a direct path, or the reason for none", LONG, || {
        echo(2);
        let log = stage.laptop.log();
        let is_told = ["goes on over a direct path", "stays relayed"];
        is_told.iter().any(|is_told_line| log.contains(is_told_line)).then_some(())
    });
    let after = began.elapsed().as_millis();
    echo(3);
    // The status is at most a moment older than the log.
    let path = wait("the status has the outcome", SOON, || {
        let path = stage.paths("laptop").into_iter().next()?;
        (path["state"] == "direct" || path["state_text"] != "relayed").then_some(path)
    });
    for daemon in [&stage.laptop, &stage.home, &stage.server] {
        let log = daemon.log();
        let is_bad = |line: &&str| line.contains("WARN") || line.contains("ERROR");
        let bad: Vec<_> = log.lines().filter(is_bad).collect();
        assert!(bad.is_empty(), "{}: {bad:?}", daemon.name());
    }
    let state = path["state"].as_str().unwrap();
    let why = if state == "direct" { &path["pair"] } else { &path["state_text"] };
    let why = why.as_str().unwrap_or_else(|| panic!("{path}"));
    // What a program reads there, a person reads too.
    let shown = stage.status();
    assert!(shown.contains(why), "{why}: {shown}");
    format!("{state}: {why}; first byte after {first} ms, this after {after} ms")
}

/// Checks the outcome of a case.
fn holds(name: &str) {
    let case = CASES.iter().find(|case| case.name == name).unwrap();
    let (outcome, log) = in_a_cage(name);
    assert!(outcome.starts_with(case.outcome), "{name}: {outcome}\n{log}");
}

macro_rules! tests {
    ($($name:ident)*; long: $($long:ident)*) => {
        $(#[test]
        fn $name() {
            holds(stringify!($name));
        })*

        mod long {
            $(#[test]
            fn $long() {
                super::holds(stringify!($long));
            })*
        }

        #[test]
        fn each_case_is_a_test() {
            let tests: &[&str] = &[$(stringify!($name),)* $(stringify!($long)),*];
            assert!(CASES.iter().map(|case| case.name).eq(tests.iter().copied()));
        }
    };
}

tests! {
    open_open plain_plain cone_cone symmetric_open cone_symmetric double_plain v6_v6 same_nat
    same_host symmetric_symmetric blocked_plain plain_blocked;
    long: open_symmetric open_cone open_plain plain_open plain_cone cone_open cone_plain
    symmetric_cone double_double double_open plain_double symmetric_plain plain_symmetric
    blocked_open open_blocked blocked_blocked v6_plain
}

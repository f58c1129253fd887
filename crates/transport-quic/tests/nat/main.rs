//! Direct paths between real network namespaces with the NAT of the kernel: which pairs of networks
//! meet, that the others say why, and what an inquiry says of each network. `cargo xtask test nat`
//! runs it as root.
//!
//! The server of STUN is in the cage ([`testkit::cage`]), visitor and publisher are on two hosts.
//! Their signals go over their standard input and output through the cage.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]
#![allow(clippy::print_stdout, reason = "the lines are what the runs tell each other, and people")]

mod ends;
mod program;

use testkit::cage::{Network, caged};

/// Names the case to the run in the cage, and the part to the runs inside.
const CASE: &str = "NAT_CASE";
const PART: &str = "NAT_PART";
/// Tells an end that NAT-PMP worked last.
const FIRST: &str = "NAT_FIRST";

/// Two networks, and what has to come of them.
struct Case {
    name: &'static str,
    visitor: Network,
    publisher: Network,
    /// The begin of the outcome: `direct` with the kind of the remote address, or `relayed` with
    /// the reason.
    outcome: &'static str,
}

use Network::{
    Blocked, Bridges, Cone, Double, NatPmp, OldNatPmp, Open, Pcp, Plain, Symmetric, Unfiltered,
    UnfilteredTwice, Upnp, UpnpBehindNat, V6,
};

const fn case(
    name: &'static str,
    visitor: Network,
    publisher: Network,
    outcome: &'static str,
) -> Case {
    Case { name, visitor, publisher, outcome }
}

const BOTH_MOVE: &str = "relayed the NATs of both sides";
const MOVES: &str = "relayed the NAT of this side";
const MOVES_THERE: &str = "relayed the NAT of the other side";
const BLOCKED: &str = "relayed UDP does not pass on this side";
const BLOCKED_THERE: &str = "relayed UDP does not pass on the other side";

const CASES: &[Case] = &[
    case("open_open", Open, Open, "direct host"),
    case("plain_open", Plain, Open, "direct host"),
    case("open_plain", Open, Plain, "direct"),
    case("plain_plain", Plain, Plain, "direct reflexive"),
    case("plain_cone", Plain, Cone, "direct reflexive"),
    case("cone_cone", Cone, Cone, "direct reflexive"),
    case("symmetric_open", Symmetric, Open, "direct host"),
    case("symmetric_cone", Symmetric, Cone, "direct reflexive"),
    case("cone_symmetric", Cone, Symmetric, "direct"),
    case("double_plain", Double, Plain, "direct reflexive"),
    case("double_double", Double, Double, "direct reflexive"),
    case("unfiltered_unfiltered", Unfiltered, Unfiltered, "direct reflexive"),
    case("unfiltered_twice", UnfilteredTwice, UnfilteredTwice, "direct reflexive"),
    case("plain_unfiltered", Plain, Unfiltered, "direct reflexive"),
    case("bridges_bridges", Bridges, Bridges, "direct host"),
    case("v6_v6", V6, V6, "direct host"),
    case("same_nat", Plain, Network::SameNat, "direct host"),
    case("same_host", Plain, Network::SameHost, "direct host"),
    case("plain_symmetric", Plain, Symmetric, MOVES_THERE),
    case("symmetric_plain", Symmetric, Plain, MOVES),
    case("symmetric_symmetric", Symmetric, Symmetric, BOTH_MOVE),
    // One port that a router opens is enough.
    case("symmetric_pcp", Symmetric, Pcp, "direct mapped"),
    case("symmetric_natpmp", Symmetric, NatPmp, "direct mapped"),
    case("symmetric_upnp", Symmetric, Upnp, "direct mapped"),
    case("upnp_symmetric", Upnp, Symmetric, "direct discovered"),
    case("pcp_plain", Pcp, Plain, "direct"),
    case("double_symmetric", UpnpBehindNat, Symmetric, BOTH_MOVE),
    case("blocked_plain", Blocked, Plain, BLOCKED),
    case("plain_blocked", Plain, Blocked, BLOCKED_THERE),
    case("v6_plain", V6, Plain, "relayed one side has addresses of IPv4 only"),
];

/// What an inquiry finds from a network: whether UDP passes, the mapping, the filter. Behind a NAT
/// whose port moves no answer can show the filter.
const INQUIRIES: &[(&str, Network, &str)] = &[
    ("inquiry_open", Open, "found Passes None Open"),
    ("inquiry_plain", Plain, "found Passes Same AddressAndPort"),
    ("inquiry_cone", Cone, "found Passes Same Open"),
    ("inquiry_symmetric", Symmetric, "found Passes PerDestination Unknown"),
    ("inquiry_double", Double, "found Passes Same AddressAndPort"),
    ("inquiry_blocked", Blocked, "found Blocked Unknown Unknown"),
];

/// What an end behind a router is told that asks for a port.
const PORTS: &[(&str, Network, &str)] = &[
    ("port_pcp", Pcp, "found opened by PCP 11.0.113.10:"),
    ("port_natpmp", NatPmp, "found opened by NAT-PMP 11.0.113.10:"),
    ("port_old_natpmp", OldNatPmp, "found opened by NAT-PMP 11.0.113.10:"),
    ("port_upnp", Upnp, "found opened by UPnP 11.0.113.10:"),
    ("port_behind_nat", UpnpBehindNat, "found none: the router refuses by UPnP: it has no public"),
    ("port_plain", Plain, "found none: the router answers neither"),
    ("port_open", Open, "found none: this machine has no router"),
];

/// Runs a case in a cage of its own.
fn in_a_cage(name: &str, expected: &str) {
    let (outcome, log) = caged(CASE, name);
    println!("{name}: {outcome}");
    assert!(outcome.starts_with(expected), "{name}: {outcome}\n{log}");
}

/// What the runs inside do. Outside it has nothing to do: each other test runs it in a cage.
#[test]
fn part() {
    if let Ok(part) = std::env::var(PART) {
        program::run(&part);
    } else if let Ok(name) = std::env::var(CASE) {
        let of = |all: &[(&str, Network, &str)]| {
            all.iter().find(|(known, ..)| *known == name).map(|(_, from, _)| *from)
        };
        let outcome = match (of(INQUIRIES), of(PORTS)) {
            (Some(from), _) => ends::inquire(from),
            (_, Some(from)) => ends::map(from),
            (None, None) => {
                let case = CASES.iter().find(|case| case.name == name).unwrap();
                ends::run(case.visitor, case.publisher)
            }
        };
        println!("outcome {outcome}");
    }
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let case = CASES.iter().find(|case| case.name == stringify!($name)).unwrap();
            in_a_cage(case.name, case.outcome);
        })*

        #[test]
        fn each_case_is_a_test() {
            let tests: &[&str] = &[$(stringify!($name)),*];
            assert!(CASES.iter().map(|case| case.name).eq(tests.iter().copied()));
        }
    };
}

tests! {
    open_open plain_open open_plain plain_plain plain_cone cone_cone symmetric_open symmetric_cone
    cone_symmetric double_plain double_double unfiltered_unfiltered unfiltered_twice
    plain_unfiltered bridges_bridges v6_v6 same_nat same_host plain_symmetric
    symmetric_plain symmetric_symmetric symmetric_pcp symmetric_natpmp symmetric_upnp upnp_symmetric
    pcp_plain double_symmetric blocked_plain plain_blocked v6_plain
}

#[test]
fn an_inquiry_tells_each_network() {
    for (name, _, expected) in INQUIRIES {
        in_a_cage(name, expected);
    }
}

#[test]
fn a_router_opens_one_port_of_udp_and_closes_it_at_the_end() {
    for (name, _, expected) in PORTS {
        in_a_cage(name, expected);
    }
}

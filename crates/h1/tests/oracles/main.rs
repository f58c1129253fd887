//! The tracker of responses against the parsers of nginx, haproxy, Node, Go and hyper.
//!
//! A generator makes responses of a hostile service, well-formed ones and mutations, each with a
//! second response behind it that nobody asked for. What the tracker delivers of them is sent to
//! each parser as the answer to a request, and held back at each place where a parser might see an
//! end. When the parser sees one, it sends the next request over the same connection. The answer
//! to this request must be that of the origin, or an error: never a byte of the service.
//!
//! `ORACLE_CASES=20000 cargo test -p h1 --test oracles` compares more cases than the short
//! suite.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test fails by panicking, and its peers are asked by threads that share a queue"
)]

mod cases;
mod origin;
mod peers;

use std::sync::Arc;

use cases::{Case, End, generate};
use origin::Origin;

/// The number of cases in the short suite: every peer takes at most some seconds for them.
const SHORT: usize = 300;

fn count() -> usize {
    std::env::var("ORACLE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(SHORT)
}

/// Each request that shall follow a case: the number of the case, and the place of the pause.
fn runs(cases: &[Case]) -> Vec<(usize, usize)> {
    let pauses = |(number, case): (usize, &Case)| {
        (0..case.pauses.len()).map(move |pause| (number, pause)).collect::<Vec<_>>()
    };
    cases.iter().enumerate().flat_map(pauses).collect()
}

fn compare(name: &str, peer: impl FnOnce(&Origin, &[(usize, usize)]) -> Vec<String>) {
    let cases = Arc::new(generate(count(), 35));
    let runs = runs(&cases);
    for end in [End::Keep, End::Fin, End::Reset] {
        assert!(cases.iter().filter(|case| case.end == end).count() > count() / 50, "{end:?}");
    }
    let origin = Origin::start(Arc::clone(&cases));
    let wrong = peer(&origin, &runs);
    let shown = wrong.iter().take(10).map(|run| {
        let number = run.split(' ').next().and_then(|number| number.parse::<usize>().ok());
        let case = number.and_then(|number| cases.get(number));
        let delivered = case.map(|case| String::from_utf8_lossy(&case.delivered).into_owned());
        format!("{run}\n  delivered: {delivered:?}\n")
    });
    let shown: String = shown.collect();
    assert!(wrong.is_empty(), "{name}: {} of {} runs\n{shown}", wrong.len(), runs.len());
    assert!(origin.reused() > runs.len() / 10, "{name} keeps connections: {}", origin.reused());
}

#[test]
fn node_sees_no_response_that_the_tracker_does_not_see() {
    compare("Node", peers::node);
}

#[test]
fn go_sees_no_response_that_the_tracker_does_not_see() {
    compare("Go", peers::go);
}

#[test]
fn hyper_sees_no_response_that_the_tracker_does_not_see() {
    compare("hyper", peers::hyper);
}

#[test]
fn nginx_sees_no_response_that_the_tracker_does_not_see() {
    compare("nginx", peers::nginx);
}

#[test]
fn haproxy_sees_no_response_that_the_tracker_does_not_see() {
    compare("haproxy", peers::haproxy);
}

/// The comparison finds what the tracker would let through if it judged as before: a head with bare
/// line feeds, which nginx understands.
#[test]
fn the_comparison_finds_a_response_that_is_delivered_in_doubt() {
    let first = b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok";
    let poison = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    let case = Case {
        method: "GET",
        delivered: [&first[..], poison].concat(),
        pauses: vec![first.len()],
        end: End::Keep,
    };
    let origin = Origin::start(Arc::new(vec![case]));
    let wrong = peers::nginx(&origin, &[(0, 0)]);
    assert!(wrong.len() == 1 && wrong[0].contains("poison"), "{wrong:?}");
}

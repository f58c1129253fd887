//! A client with two paths over two interfaces, of which one fails as networks do: a NAT that loses
//! its connections, a policer of UDP, loss in one direction, a black hole that ends. Streams under
//! load in both directions go on over the other path, and no byte is lost.
//!
//! The client is on a host behind a router, the server in the cage around both.

use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use testkit::cage::{Fault, Router, far_v4, in_cage, routed_uplinks, within};
use testkit::stage::{Over, Running};
use testkit::wire::Way;

use crate::harness::{Origin, SOON, Scheme, Setup, bytes, connect, free_port, wait};

const HOST: &str = "laptop";

/// Mbit/s of each path in each direction.
const MBIT: u32 = 50;

/// The values of `spread`.
const SPREADS: [&str; 3] = ["none", "backup", "by_stream"];

/// The same, with the choice by measurement for one path at a time: otherwise a link leaves no path
/// over TCP that is only slow.
const CHOICES: [&str; 3] = ["none\nchoose: measured", "backup", "by_stream"];

/// A transfer may take so many times as long as over the good path alone. The largest factor seen
/// was 4.2, for `backup` with two paths over TCP.
const SLOWER: u32 = 8;

/// The visitors, each with a stream.
const VISITORS: usize = 4;

/// Each stream sends so many bytes in each of these intervals: together half of what a path takes.
const PIECE: u64 = 16 << 10;
const EVERY: Duration = Duration::from_millis(20);

/// The time before a fault: a carrier that is younger is dialled anew after a pause.
const BEFORE: Duration = Duration::from_secs(3);

/// The longest pause of a stream after a fault that says nothing: the time-out of 3 s, and as long
/// as the work that follows may take on a busy machine.
const SILENT: Duration = Duration::from_secs(5);

/// The longest pause after a reset, on a busy machine.
const TOLD: Duration = Duration::from_secs(2);

/// A path of the client: its transport, and its interface.
type Path = (Scheme, u8);

/// A server with a listener for each path, and a client with `spread` and two links whose service
/// is the origin.
fn start(origin: &Origin, spread: &str, paths: &[Path]) -> Running {
    let mut setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    let url = |(scheme, nth): &Path| {
        let place = if scheme.http { "/tunnel" } else { "" };
        format!("{}://{}:{}{place}", scheme.name, far_v4(*nth), free_port())
    };
    let urls: Vec<_> = paths.iter().map(url).collect();
    setup.more_listen.extend(urls.iter().cloned());
    setup.server_lines.push_str("workers: 1\n");
    let lines = format!("workers: 1\nconnections: 2\nspread: {spread}\nlog: {{ level: debug }}\n");
    setup.client_lines.push_str(&lines);
    setup.client_starter = ["ip", "netns", "exec", HOST].map(Into::into).to_vec();
    let own = format!("tls://127.0.0.1:{}", setup.server_port());
    let mut running = setup.start_server();
    running.edit_client(|text| text.replace(&own, &urls.join("\", \"")));
    running.start_client();
    running.wait_ready();
    running.wait_echo(running.public("echo"));
    running.wait_links(2);
    if ["backup", "by_stream"].contains(&spread) {
        wait("the standbys", SOON, || (carriers(&running, true).len() == 2).then_some(()));
    }
    running
}

/// The transports and addresses of the carriers of the client that are standbys, or are not.
fn carriers(running: &Running, is_standby: bool) -> Vec<String> {
    let status = running.status("client").unwrap();
    let links = status["sessions"][0]["links"].as_array().cloned().unwrap_or_default();
    let all =
        links.iter().flat_map(|link| link["carriers"].as_array().cloned().unwrap_or_default());
    let wanted = all.filter(|one| one["standby"].as_bool().unwrap_or_default() == is_standby);
    wanted.map(|one| one["peer"].to_string()).collect()
}

/// Whether the carrier with this peer has the second path.
fn is_over_the_second(peer: &str) -> bool {
    peer.contains(&format!("{}:", far_v4(1)))
}

/// Streams that send as much as half a path takes, and compare what an echo sends back.
struct Load {
    is_over: Arc<AtomicBool>,
    visitors: Vec<JoinHandle<Vec<Instant>>>,
}

impl Load {
    fn start(port: u16) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let visitors = (0..VISITORS).map(|_| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || visit(port, &is_over))
        });
        Self { visitors: visitors.collect(), is_over }
    }

    /// Ends the streams. Returns the longest pause of a stream since this time.
    fn finish(self, since: Instant) -> Duration {
        let end = Instant::now();
        self.is_over.store(true, Ordering::Relaxed);
        let of = |reads: Vec<Instant>| {
            let inner = reads.into_iter().filter(|at| (since..end).contains(at));
            let times: Vec<_> = [since].into_iter().chain(inner).chain([end]).collect();
            times.iter().zip(&times[1..]).map(|(begin, end)| *end - *begin).max().unwrap()
        };
        self.visitors.into_iter().map(|visitor| of(visitor.join().unwrap())).max().unwrap()
    }
}

/// A visitor: sends until `is_over` is set, and then its end. Returns when a piece was there.
fn visit(port: u16, is_over: &AtomicBool) -> Vec<Instant> {
    let near = connect(port);
    let far = near.try_clone().unwrap();
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let mut pattern = bytes::Pattern::default();
            while !is_over.load(Ordering::Relaxed) {
                pattern.send(&near, PIECE).unwrap();
                sleep(EVERY);
            }
            near.shutdown(Shutdown::Write).unwrap();
            pattern.offset()
        });
        let (mut pattern, mut times) = (bytes::Pattern::default(), Vec::new());
        while pattern.expect(&far, PIECE).unwrap() {
            times.push(Instant::now());
        }
        assert_eq!(pattern.offset(), sender.join().unwrap(), "the end comes after the last byte");
        times
    })
}

/// Streams that send and get back so many bytes each, as fast as they can. Returns the time until
/// the last of them has ended.
fn transfer(port: u16, total: u64) -> Duration {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..VISITORS {
            let near = connect(port);
            let far = near.try_clone().unwrap();
            scope.spawn(move || {
                bytes::send(&near, total);
                near.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                bytes::expect(&far, total);
                bytes::expect_end(&far);
            });
        }
    });
    begin.elapsed()
}

/// The pairs of transports: the first has the fault.
const PAIRS: [[Scheme; 2]; 2] = [[Scheme::TLS, Scheme::TLS], [Scheme::QUIC, Scheme::TLS]];

/// Streams go on within `most` after a fault of the first path. `lasts`: the fault ends again.
fn goes_on(fault: Fault, most: impl Fn(Scheme) -> Duration, lasts: Option<Duration>) {
    let (router, origin) = machines();
    for spread in SPREADS {
        for [first, second] in PAIRS {
            let running = start(&origin, spread, &[(first, 0), (second, 1)]);
            let load = Load::start(running.public("echo"));
            sleep(BEFORE);
            let begin = Instant::now();
            router.suffer(0, fault);
            sleep(most(first));
            let used = carriers(&running, false);
            if let Some(lasts) = lasts {
                sleep(lasts.saturating_sub(begin.elapsed()));
                router.recover();
                // The first path is dialled again meanwhile.
                sleep(most(first));
            }
            let pause = load.finish(begin);
            router.recover();
            let names = format!("{spread}, {} and {}", first.name, second.name);
            println!("{names}: {fault:?}: the longest pause was {pause:?}; then {used:?}");
            assert!(pause < most(first), "{names}: {pause:?}");
            // A NAT that has lost its connections lets new connections pass.
            if fault == Fault::Swallows {
                assert!(used.iter().all(|peer| is_over_the_second(peer)), "{names}: {used:?}");
            }
        }
    }
}

fn machines() -> (Router, Origin) {
    (routed_uplinks(HOST, 2, MBIT), within(HOST, Origin::echo))
}

#[test]
fn a_nat_that_drops_its_connections_costs_a_pause_and_no_byte() {
    in_cage(|| goes_on(Fault::Forgets, |_| SILENT, None));
}

#[test]
fn a_nat_that_resets_its_connections_costs_no_byte() {
    in_cage(|| {
        goes_on(Fault::Resets, |scheme| if scheme.over == Over::Udp { SILENT } else { TOLD }, None)
    });
}

#[test]
fn a_black_hole_that_ends_costs_a_pause_and_no_byte() {
    in_cage(|| goes_on(Fault::Swallows, |_| SILENT, Some(Duration::from_secs(10))));
}

/// The bytes of each stream of a transfer, each way.
const TOTAL: u64 = 10_000_000;

/// A transfer over two paths of which the first has a fault takes little more time than a transfer
/// over the second path alone.
fn is_not_much_slower(fault: Fault, pairs: &[[Scheme; 2]]) {
    let (router, origin) = machines();
    let alone = {
        let running = start(&origin, "none", &[(Scheme::TLS, 1)]);
        transfer(running.public("echo"), TOTAL)
    };
    println!("the good path alone: {alone:?}");
    for spread in CHOICES {
        for [first, second] in pairs {
            let running = start(&origin, spread, &[(*first, 0), (*second, 1)]);
            router.suffer(0, fault);
            let took = transfer(running.public("echo"), TOTAL);
            router.recover();
            let factor = took.as_secs_f64() / alone.as_secs_f64();
            let names = format!("{spread}, {} and {}", first.name, second.name);
            println!("{names}: {fault:?}: {took:?}, {factor:.2} of the good path alone");
            assert!(took < alone * SLOWER, "{names}: {took:?}");
        }
    }
}

#[test]
fn where_udp_is_policed_on_a_path_streams_take_the_other_path() {
    in_cage(|| {
        is_not_much_slower(
            Fault::Polices(125),
            &[[Scheme::QUIC, Scheme::TLS], [Scheme::KCP, Scheme::TLS]],
        )
    });
}

#[test]
fn where_a_path_loses_what_the_client_sends_streams_take_the_other_path() {
    in_cage(|| is_not_much_slower(Fault::Loses(Way::Up, 30), &PAIRS));
}

#[test]
fn where_a_path_loses_what_the_server_sends_streams_take_the_other_path() {
    in_cage(|| is_not_much_slower(Fault::Loses(Way::Down, 30), &PAIRS));
}

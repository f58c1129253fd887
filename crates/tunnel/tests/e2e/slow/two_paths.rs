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

use serde_json::Value;
use testkit::cage::{Fault, Router, far_v4, in_cage, routed_uplinks, within};
use testkit::stage::{Over, Running};
use testkit::wire::Way;

use crate::harness::{Origin, SOON, Scheme, Setup, bytes, connect, free_port, wait};

const HOST: &str = "laptop";

/// Mbit/s of each path in each direction.
const MBIT: u32 = 50;

/// The values of `spread`. With the last two, each link has a standby.
const SPREADS: [&str; 3] = ["none", "backup", "by_stream"];

/// The same, with the choice by measurement for one path at a time: otherwise a link leaves no path
/// over TCP that is only slow.
const CHOICES: [&str; 3] = ["none\nchoose: measured", "backup", "by_stream"];

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

/// The time in which each link has a standby over a path that is back: pauses between dials grow to
/// 15 s, and a dial into a black hole takes 10 s.
const BACK: Duration = Duration::from_secs(40);

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
    if !spread.starts_with("none") {
        wait("both standbys", SOON, || (addresses(&running, true).len() == 2).then_some(()));
    }
    running
}

/// The addresses of the server that the client's links use, or that their standbys use.
fn addresses(running: &Running, is_standby: bool) -> Vec<String> {
    let status = running.status("client").unwrap();
    let links = status["sessions"][0]["links"].as_array().unwrap().clone();
    let carriers = links.iter().flat_map(|link| link["carriers"].as_array().unwrap());
    let of = |one: &Value| one["peer"].as_str().unwrap().split(':').next().unwrap().to_owned();
    let is_it = |one: &&Value| one["standby"].as_bool().unwrap_or_default() == is_standby;
    carriers.filter(is_it).map(of).collect()
}

/// Waits until both links have a standby over this path.
fn wait_standbys(running: &Running, nth: u8) {
    let wanted = vec![far_v4(nth); 2];
    wait("both standbys", BACK, || (addresses(running, true) == wanted).then_some(()));
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

/// A host and a router, and an echo on the host.
fn machines() -> (Router, Origin) {
    (routed_uplinks(HOST, 2, MBIT), within(HOST, Origin::echo))
}

/// The transports of both paths; the first path has the fault.
const PAIRS: [[Scheme; 2]; 2] = [[Scheme::TLS, Scheme::TLS], [Scheme::QUIC, Scheme::TLS]];

/// Under each `spread` and over each of [`PAIRS`], streams go on after a fault of the first path,
/// over the second path where the first lets nothing pass. The fault ends after `lasts`, if it
/// ends.
fn streams_go_on(fault: Fault, lasts: Option<Duration>) {
    let (router, origin) = machines();
    for spread in SPREADS {
        for [first, second] in PAIRS {
            let case = format!("{spread}, {} and {}: {fault:?}", first.name, second.name);
            // A UDP socket ignores what ICMP says, because anybody may say so.
            let is_told = fault == Fault::Resets && first.over == Over::Tcp;
            let most = if is_told { TOLD } else { SILENT };
            let running = start(&origin, spread, &[(first, 0), (second, 1)]);
            let load = Load::start(running.public("echo"));
            sleep(BEFORE);
            let begin = Instant::now();
            router.suffer(0, fault);
            sleep(most);
            let used = addresses(&running, false);
            if let Some(lasts) = lasts {
                sleep(lasts.saturating_sub(begin.elapsed()));
                router.recover();
                let back = Instant::now();
                if spread == "none" {
                    sleep(SILENT);
                } else {
                    wait_standbys(&running, 0);
                    println!("{case}: standbys {:?} after the end", back.elapsed());
                }
            }
            let pause = load.finish(begin);
            println!("{case}: the longest pause was {pause:?}, then {used:?}");
            assert!(pause < most, "{case}: {pause:?}");
            // A NAT that has lost its connections lets new connections pass.
            if fault == Fault::Swallows {
                assert_eq!(used, vec![far_v4(1); 2], "{case}: the other path is used");
            }
            drop(running);
            router.recover();
        }
    }
}

#[test]
fn a_nat_that_drops_its_connections_costs_a_pause_and_no_byte() {
    in_cage(|| streams_go_on(Fault::Forgets, None));
}

#[test]
fn a_nat_that_resets_its_connections_costs_no_byte() {
    in_cage(|| streams_go_on(Fault::Resets, None));
}

#[test]
fn a_black_hole_of_10_s_costs_a_pause_and_no_byte() {
    in_cage(|| streams_go_on(Fault::Swallows, Some(Duration::from_secs(10))));
}

/// The bytes of each stream of a transfer, each way: 40 MB on 50 Mbit/s are 7 s.
const TOTAL: u64 = 10_000_000;

/// A transfer takes at most so many times the time over the good path alone where the bad path is
/// over UDP. The strain of such a path shows after 2 to 3 s, in which little moves: 1.9 times on an
/// idle machine.
const SLOWER: u32 = 3;

/// The same where the bad path is over TCP, which a link with a standby leaves only when it is
/// silent for 3 s: up to 4.2 times on an idle machine, and 4.9 times beside a build.
const SLOWER_OVER_TCP: u32 = 8;

/// Under each of [`CHOICES`], transfers over both paths, of which the first has the fault, take
/// hardly longer than over the second path alone.
fn transfers_avoid(fault: Fault, pairs: &[[Scheme; 2]]) {
    let (router, origin) = machines();
    let running = start(&origin, "none", &[(Scheme::TLS, 1)]);
    let alone = transfer(running.public("echo"), TOTAL);
    drop(running);
    println!("the good path alone: {alone:?}");
    for spread in CHOICES {
        for [first, second] in pairs {
            let case = format!("{spread}, {} and {}: {fault:?}", first.name, second.name);
            let most = if first.over == Over::Udp { SLOWER } else { SLOWER_OVER_TCP };
            let running = start(&origin, spread, &[(*first, 0), (*second, 1)]);
            router.suffer(0, fault);
            let took = transfer(running.public("echo"), TOTAL);
            let factor = took.as_secs_f64() / alone.as_secs_f64();
            println!("{case}: {took:?}, {factor:.2} of the good path alone");
            assert!(took < alone * most, "{case}: {took:?}");
            drop(running);
            router.recover();
        }
    }
}

/// The pairs of transports of which the first is over UDP.
const UDP_PAIRS: [[Scheme; 2]; 2] = [[Scheme::QUIC, Scheme::TLS], [Scheme::KCP, Scheme::TLS]];

/// The pairs for losses. TCP has no part in a policer of UDP.
const LOSSY_PAIRS: [[Scheme; 2]; 3] = [UDP_PAIRS[0], UDP_PAIRS[1], PAIRS[0]];

#[test]
fn where_udp_is_policed_on_a_path_streams_take_the_other_path() {
    in_cage(|| transfers_avoid(Fault::Polices(125), &UDP_PAIRS));
}

#[test]
fn where_a_path_loses_what_the_client_sends_streams_take_the_other_path() {
    in_cage(|| transfers_avoid(Fault::Loses(Way::Up, 30), &LOSSY_PAIRS));
}

#[test]
fn where_a_path_loses_what_the_server_sends_streams_take_the_other_path() {
    in_cage(|| transfers_avoid(Fault::Loses(Way::Down, 30), &LOSSY_PAIRS));
}

//! Runs each load program for a fraction of a second against the origins of this package. The
//! counted operations must be present; their speed does not matter.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use benches::bulk::{self, Direction};
use benches::failures::Kind;
use benches::requests::{self, Exchange};
use benches::udp::{self, Offer};
use benches::{connections, echo, idle, origin, pulse, runtime};
use testkit::origins::{Digest, Ended, Origin};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const LENGTH: Duration = Duration::from_millis(900);

/// Five times the time limit of a program that has nothing to wait for.
const SOON: Duration = Duration::from_secs(15);

/// An origin on a thread of its own, until the test process ends.
fn start(kind: origin::Kind) -> SocketAddr {
    let (tell, started) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        runtime().unwrap().block_on(async {
            let listener = origin::listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            origin::serve(listener, kind).await;
        });
    });
    started.recv().unwrap()
}

/// A port without a listener.
fn nobody() -> SocketAddr {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

/// Answers the first request of each connection with `answer` and closes.
fn answer_once(answer: &'static str) -> Origin {
    let serve = async move |mut socket: TcpStream| {
        let mut request = [0; 1024];
        let asked = socket.read(&mut request).await.is_ok_and(|n| n > 0);
        let answered = socket.write_all(answer.as_bytes()).await;
        Ended { received: Digest::default(), clean: asked && answered.is_ok() }
    };
    Origin::start(serve).unwrap()
}

fn bulk_options(target: SocketAddr, direction: Direction) -> bulk::Options {
    bulk::Options { target, proxy: None, streams: 4, write: 10_000, direction, length: LENGTH }
}

fn requests_options(target: SocketAddr, exchange: Exchange) -> requests::Options {
    requests::Options { target, connections: 20, length: LENGTH, sources: 1, exchange }
}

#[test]
fn bulk_counts_what_has_arrived_in_either_direction() {
    for (kind, direction) in
        [(origin::Kind::Sink, Direction::Up), (origin::Kind::Source, Direction::Down)]
    {
        let options = bulk_options(start(kind), direction);
        let report = runtime().unwrap().block_on(bulk::run(&options));
        assert_eq!(report.errors, 0, "{report:?}");
        assert!(report.bytes >= 4 * 10_000, "{report:?}");
        assert!(report.gbit_per_s > 0.0 && report.by_second.is_empty(), "{report:?}");
    }
}

#[test]
fn bulk_tells_the_rate_of_each_second() {
    let mut options = bulk_options(start(origin::Kind::Source), Direction::Down);
    options.length = Duration::from_millis(2100);
    let report = runtime().unwrap().block_on(bulk::run(&options));
    assert_eq!(report.by_second.len(), 2, "{report:?}");
    assert!(report.by_second.iter().all(|rate| *rate > 0.0), "{report:?}");
}

#[test]
fn requests_are_answered_and_each_latency_is_counted() {
    let web = Origin::http().unwrap();
    let echo = start(origin::Kind::Echo);
    for (target, exchange) in [
        (web.address(), Exchange::Get("/".to_owned())),
        // The answer is longer than one read.
        (web.address(), Exchange::Get("/bytes/100000".to_owned())),
        (echo, Exchange::Echo(1)),
        (echo, Exchange::Echo(60_000)),
    ] {
        let options = requests_options(target, exchange);
        let report = runtime().unwrap().block_on(requests::run(&options));
        assert_eq!((report.errors, report.reconnects), (0, 0), "{report:?}");
        assert!(report.requests >= 20, "{report:?}");
        assert_eq!(report.latency_us.count, report.requests);
        assert!(report.latency_us.p50 > 0.0 && report.latency_us.p50 <= report.latency_us.max);
    }
}

#[test]
fn an_answer_that_is_not_200_is_an_error() {
    let web = answer_once("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n");
    let options = requests_options(web.address(), Exchange::Get("/".to_owned()));
    let report = runtime().unwrap().block_on(requests::run(&options));
    assert_eq!(report.requests, 0, "{report:?}");
    assert!(report.failures[&Kind::Wrong] > 0, "{report:?}");
}

#[test]
fn a_server_that_closes_after_each_answer_is_asked_again() {
    let closing = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let web = answer_once(closing);
    let options = requests_options(web.address(), Exchange::Get("/".to_owned()));
    let report = runtime().unwrap().block_on(requests::run(&options));
    assert_eq!(report.errors, 0, "{report:?}");
    assert!(report.requests > 0 && report.reconnects >= report.requests, "{report:?}");
}

#[test]
fn new_connections_are_counted_from_several_addresses() {
    let web = Origin::http().unwrap();
    let echo = start(origin::Kind::Echo);
    for (target, http, sources) in [(echo, false, 1), (echo, false, 3), (web.address(), true, 1)] {
        let options =
            connections::Options { target, concurrency: 8, length: LENGTH, sources, http };
        let report = runtime().unwrap().block_on(connections::run(&options));
        assert_eq!(report.errors, 0, "{report:?}");
        assert!(report.connections >= 8, "{report:?}");
        assert_eq!(report.latency_us.count, report.connections);
    }
}

#[test]
fn one_byte_goes_back_and_forth_beside_a_transfer() {
    let target = start(origin::Kind::Echo);
    let beside = bulk_options(start(origin::Kind::Sink), Direction::Up);
    for bulk in [None, Some(beside)] {
        let with_bulk = bulk.is_some();
        let options = echo::Options { target, bulk, length: LENGTH, pause: Duration::ZERO };
        let report = runtime().unwrap().block_on(echo::run(&options)).unwrap();
        assert_eq!(report.errors, 0, "{report:?}");
        assert!(report.exchanges > 0, "{report:?}");
        assert_eq!(report.bulk.is_some(), with_bulk);
        assert!(report.bulk.is_none_or(|bulk| bulk.bytes > 0 && bulk.errors == 0));
    }
}

#[test]
fn requests_leave_at_their_times_and_late_answers_are_counted() {
    let every = Duration::from_millis(100);
    let options = |target| pulse::Options { target, length: LENGTH, every, bytes: 1_024 };
    let report = runtime().unwrap().block_on(pulse::run(&options(start(origin::Kind::Echo))));
    assert_eq!((report.requests, report.latency_us.count, report.errors), (9, 9, 0), "{report:?}");
    // It answers the request of the preparation and then no other.
    let serve = async move |mut socket: TcpStream| {
        let mut request = [0; 1_024];
        let asked = socket.read_exact(&mut request).await.is_ok();
        let answered = socket.write_all(&request).await.is_ok();
        tokio::time::sleep(SOON).await;
        Ended { received: Digest::default(), clean: asked && answered }
    };
    let hung = Origin::start(serve).unwrap();
    let report = runtime().unwrap().block_on(pulse::run(&options(hung.address())));
    assert_eq!((report.requests, report.latency_us.count, report.errors), (9, 0, 9), "{report:?}");
    let report = runtime().unwrap().block_on(pulse::run(&options(nobody())));
    assert_eq!((report.requests, report.errors), (0, 1), "{report:?}");
}

#[test]
fn idle_connections_are_verified_when_they_are_open_and_at_the_end() {
    let options = idle::Options {
        target: start(origin::Kind::Echo),
        connections: 300,
        hold: LENGTH,
        sources: 2,
    };
    let mut opened = None;
    let run = idle::run(&options, |report| opened = Some(report.clone()));
    let end = runtime().unwrap().block_on(run);
    let opened = opened.unwrap();
    assert_eq!((opened.event, opened.verified, opened.errors), ("open", 300, 0), "{opened:?}");
    assert_eq!((end.event, end.verified, end.errors), ("end", 300, 0), "{end:?}");
    assert!(end.seconds >= opened.seconds + LENGTH.as_secs_f64());
}

#[test]
fn where_nobody_listens_every_program_says_so_and_ends() {
    let target = nobody();
    let begin = Instant::now();
    runtime().unwrap().block_on(async {
        let report = bulk::run(&bulk_options(target, Direction::Up)).await;
        assert_eq!((report.bytes, report.failures[&Kind::Refused]), (0, 4), "{report:?}");
        let report = requests::run(&requests_options(target, Exchange::Echo(1))).await;
        assert!(report.requests == 0 && report.failures[&Kind::Refused] >= 20, "{report:?}");
        let options = echo::Options { target, bulk: None, length: LENGTH, pause: Duration::ZERO };
        let report = echo::run(&options).await.unwrap();
        assert_eq!((report.exchanges, report.errors), (0, 1), "{report:?}");
        let options =
            idle::Options { target, connections: 5, hold: Duration::from_millis(1), sources: 1 };
        let report = idle::run(&options, |_| {}).await;
        assert_eq!((report.verified, report.errors), (0, 5), "{report:?}");
        let options =
            connections::Options { target, concurrency: 2, length: LENGTH, sources: 1, http: true };
        let report = connections::run(&options).await;
        assert!(report.connections == 0 && report.failures[&Kind::Refused] > 2, "{report:?}");
    });
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

#[test]
fn what_hangs_is_an_error_and_keeps_no_program_from_ending() {
    let hung = Origin::never_reader().unwrap();
    let target = hung.address();
    let begin = Instant::now();
    runtime().unwrap().block_on(async {
        let hung_connections = async {
            let (concurrency, length) = (7, LENGTH);
            let options =
                connections::Options { target, concurrency, length, sources: 1, http: false };
            let report = connections::run(&options).await;
            assert_eq!((report.connections, report.failures[&Kind::Timeout]), (0, 7), "{report:?}");
        };
        let hung_bulk = async {
            for direction in [Direction::Up, Direction::Down] {
                let report = bulk::run(&bulk_options(target, direction)).await;
                assert_eq!((report.bytes, report.failures[&Kind::Timeout]), (0, 4), "{report:?}");
            }
        };
        // These programs first wait for their connections' preparation.
        let hung_requests = async {
            let report = requests::run(&requests_options(target, Exchange::Echo(1))).await;
            assert_eq!((report.requests, report.failures[&Kind::Timeout]), (0, 20), "{report:?}");
        };
        let hung_echo = async {
            let (length, pause) = (LENGTH, Duration::ZERO);
            let options = echo::Options { target, bulk: None, length, pause };
            let report = echo::run(&options).await.unwrap();
            assert_eq!((report.exchanges, report.failures[&Kind::Timeout]), (0, 1), "{report:?}");
        };
        tokio::join!(hung_connections, hung_bulk, hung_requests, hung_echo);
    });
    // 10 s of preparation, 2 s of grace.
    assert!(begin.elapsed() < 5 * SOON, "{:?}", begin.elapsed());
}

/// As [`start`], for datagrams.
fn start_udp() -> SocketAddr {
    let socket = udp::socket::Socket::listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || udp::sink::serve(&socket, || true).unwrap());
    address
}

#[test]
fn datagrams_are_counted_by_the_receiver() {
    let target = start_udp();
    for (flows, payload, offer) in [
        (1, 1_200, Offer::Rate(2_000.0)),
        (5, 68, Offer::Rate(1_000.0)),
        (1, 9_000, Offer::All),
        (3, 1_200, Offer::Search),
    ] {
        let options = udp::Options { target, flows, payload, offer, length: LENGTH / 4 };
        let mut reached = Vec::new();
        let report = udp::run(&options, |report| reached.push(report.reached_per_s)).unwrap();
        let offered = &report.offer;
        assert_eq!(report.errors, 0, "{report:?}");
        assert!(offered.received > 0 && offered.wrong == 0, "{report:?}");
        assert_eq!(offered.sent, offered.received + offered.lost, "{report:?}");
        assert_eq!(reached.len(), usize::from(offer == Offer::Search));
        assert!(reached.iter().all(|rate| *rate == report.reached_per_s && rate.is_some()));
    }
}

#[test]
fn a_target_of_datagrams_that_never_answers_is_an_error() {
    // A bound socket that nobody reads.
    let silent = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = silent.local_addr().unwrap();
    let (payload, offer) = (1_200, Offer::All);
    let options = udp::Options { target, flows: 1, payload, offer, length: LENGTH };
    let report = udp::run(&options, |_| {}).unwrap();
    assert_eq!((report.errors, report.failures[&Kind::Timeout]), (1, 1));
}

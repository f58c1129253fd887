//! Interim answers (RFC 9110 section 15.2) and expectations (section 10.1.1), over HTTP/1 and
//! HTTP/2.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, timeout},
};
use web::{Protocol, Settings};

use crate::{
    frames::{DATA, END_HEADERS, END_STREAM, HEADERS, Peer, request},
    memory::{Crowd, MIB},
    rig::{
        Site, connect, connect_as, expect, field, head, ok, on_worker, send, settle, silent,
        visitor,
    },
};

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\
                     Connection: x-own\r\nX-Own: 1\r\n\r\n";
const HINTS_PASSED: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
const UNKNOWN: &str = "HTTP/1.1 199 \r\n\r\n";

#[test]
fn interim_answers_pass_one_by_one_and_before_the_answer() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        target.serve(HINTS).await;
        expect(&mut client.io, HINTS_PASSED).await;
        // Those that come with the answer go before it.
        send(&mut target.io, &format!("{UNKNOWN}{HINTS}{}", ok("page"))).await;
        expect(&mut client.io, UNKNOWN).await;
        expect(&mut client.io, HINTS_PASSED).await;
        assert_eq!(client.answer().await.1, "page");
        // Nothing of them is left for the next request.
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        target.serve(&ok("next")).await;
        assert_eq!(client.answer().await.1, "next");
    });
}

#[test]
fn an_interim_answer_never_falls_into_an_answer_that_the_visitor_reads_slowly() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        let get = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
        // The requests arrive together, and the first answer does not fit into the socket.
        client.send(&get.repeat(3)).await;
        let mut target = a.accept().await;
        let long = "x".repeat(100_000);
        let (first, second) = (ok(&long), format!("{HINTS}{}", ok("second")));
        let served = tokio::task::spawn_local(async move {
            target.serve(&first).await;
            target.serve(&second).await;
            target.serve(&format!("{HINTS}{HINTS}{}", ok("third"))).await;
            target
        });
        let mut all = Vec::new();
        while !all.ends_with(b"third") {
            // One byte at a time leaves all buffers full.
            let mut piece = [0; 7];
            let length = client.io.read(&mut piece).await.unwrap();
            all.extend_from_slice(&piece[..length]);
            tokio::task::yield_now().await;
        }
        served.await.unwrap();
        let all = String::from_utf8(all).unwrap();
        let (_, rest) = all.split_once(&long).unwrap();
        let second = "HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: 6\r\n\r\nsecond";
        let third = "HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: 5\r\n\r\nthird";
        assert_eq!(rest, format!("{HINTS_PASSED}{second}{HINTS_PASSED}{HINTS_PASSED}{third}"));
    });
}

#[test]
fn a_visitor_of_http_1_0_gets_no_interim_answer() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET / HTTP/1.0\r\nHost: a.example\r\n\r\n").await;
        a.accept().await.serve(&format!("{HINTS}{UNKNOWN}{}", ok("page"))).await;
        let (head, body) = client.answer().await;
        assert!(head.starts_with("HTTP/1.") && head.contains(" 200 OK"), "{head}");
        assert_eq!(body, "page");
    });
}

#[test]
fn a_target_without_end_of_interim_answers_gets_502() {
    on_worker(async {
        for (interim, count) in [
            (UNKNOWN.to_owned(), 64),
            (format!("HTTP/1.1 103 X\r\nLink: {}\r\n\r\n", "x".repeat(30_000)), 2),
        ] {
            let site = Site::new();
            let a = site.plain("a.example");
            let mut client = connect(&site);
            client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
            let mut target = a.accept().await;
            head(&mut target.io).await;
            let feed = tokio::task::spawn_local(async move {
                while target.io.write_all(interim.as_bytes()).await.is_ok() {}
            });
            for _ in 0..count {
                assert!(client.head().await.starts_with("HTTP/1.1 1"));
            }
            assert_eq!(client.status().await, 502);
            feed.await.unwrap();
        }
    });
}

#[test]
fn interim_answers_that_a_visitor_does_not_take_are_bounded() {
    on_worker(async {
        for protocol in [Protocol::H1, Protocol::H2] {
            let crowd = Crowd::new(16 * MIB);
            let mut clients = Vec::new();
            let interim = format!("HTTP/1.1 103 X\r\nLink: {}\r\n\r\n", "x".repeat(30_000));
            for _ in 0..20 {
                let Some(mut client) = crowd.visitor(protocol) else { break };
                if protocol == Protocol::H1 {
                    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
                } else {
                    let mut begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
                    begin.extend(crate::frames::frame(4, 0, 0, b""));
                    for nth in 0..30 {
                        let fields = request("GET", &[]);
                        begin.extend(crate::frames::frame(HEADERS, 5, 2 * nth + 1, &fields));
                    }
                    let _ = client.io.write_all(&begin).await;
                }
                let before = crowd.target.count.get();
                settle().await;
                for _ in before..crowd.target.count.get() {
                    let mut target = crowd.target.accept().await;
                    let interim = interim.clone();
                    tokio::task::spawn_local(async move {
                        while target.io.write_all(interim.as_bytes()).await.is_ok() {}
                    });
                }
                clients.push(client);
            }
            settle().await;
            let peak = crowd.purse.peak.get();
            assert!(peak <= 16 * MIB, "{protocol:?}: {peak}");
            drop(clients);
            settle().await;
            assert_eq!(crowd.purse.used(), 0, "{protocol:?}");
        }
    });
}

#[test]
fn interim_answers_and_the_100_of_a_target_reach_streams() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let peer = Peer::new(connect(&site).io, &[]);
        let begin = Instant::now();
        let fields = request("POST", &[("content-length", "5"), ("expect", "100-continue")]);
        peer.send(HEADERS, END_HEADERS, 1, &fields).await;
        let mut target = a.accept().await;
        let seen = head(&mut target.io).await;
        assert_eq!(field(&seen, "expect"), Some("100-continue"), "{seen}");
        // The target decides when it wants the body.
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(peer.seen(1).heads.len(), 0);
        send(&mut target.io, HINTS).await;
        settle().await;
        assert_eq!(peer.seen(1).heads.len(), 1);
        assert!(silent(&mut target.io, Duration::from_millis(100)).await);
        send(&mut target.io, "HTTP/1.1 100 Continue\r\n\r\n").await;
        settle().await;
        assert!(begin.elapsed() < Duration::from_secs(1));
        assert_eq!(peer.seen(1).heads.len(), 2, "{:?}", peer.seen(1));
        peer.send(DATA, END_STREAM, 1, b"hello").await;
        expect(&mut target.io, "hello").await;
        send(&mut target.io, &ok("done")).await;
        settle().await;
        let seen = peer.seen(1);
        assert!(peer.is_ok(1) && seen.heads.len() == 3 && seen.ended, "{seen:?}");
        assert!(seen.heads[0].len() > 20, "the fields of 103");
    });
}

#[test]
fn the_server_invites_a_body_for_a_target_that_knows_no_expectation() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let peer = Peer::new(connect(&site).io, &[]);
        let begin = Instant::now();
        let fields = request("POST", &[("content-length", "5"), ("expect", "100-continue")]);
        peer.send(HEADERS, END_HEADERS, 1, &fields).await;
        let mut target = a.accept().await;
        head(&mut target.io).await;
        while peer.seen(1).heads.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let waited = begin.elapsed();
        assert!((Duration::from_secs(1)..Duration::from_secs(2)).contains(&waited), "{waited:?}");
        peer.send(DATA, END_STREAM, 1, b"hello").await;
        expect(&mut target.io, "hello").await;
        send(&mut target.io, &ok("done")).await;
        settle().await;
        assert!(peer.is_ok(1) && peer.seen(1).heads.len() == 2);
        // A visitor that sends at once waits for nothing.
        let begin = Instant::now();
        peer.send(HEADERS, END_HEADERS, 3, &fields).await;
        peer.send(DATA, END_STREAM, 3, b"again").await;
        // A request that cannot be repeated has a new connection.
        let mut target = a.accept().await;
        let seen = head(&mut target.io).await;
        assert_eq!(field(&seen, "content-length"), Some("5"));
        expect(&mut target.io, "again").await;
        assert!(begin.elapsed() < Duration::from_millis(100));
        send(&mut target.io, &ok("done")).await;
        settle().await;
        assert!(peer.is_ok(3) && peer.seen(3).heads.len() == 1, "no 100");
    });
}

#[test]
fn an_expectation_that_is_refused_gets_the_answer_and_no_100() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let h1 = web::Visitor { protocol: Protocol::H1, ..visitor() };
        let mut client = connect_as(&site, h1, Settings::default());
        let long = "Content-Length: 500000\r\nExpect: 100-continue\r\n\r\n";
        client.send(&format!("POST / HTTP/1.1\r\nHost: a.example\r\n{long}")).await;
        let refusal = "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n";
        a.accept().await.serve(refusal).await;
        assert_eq!(client.status().await, 417);

        let peer = Peer::new(connect(&site).io, &[]);
        let fields = request("POST", &[("content-length", "500000"), ("expect", "100-continue")]);
        peer.send(HEADERS, END_HEADERS, 1, &fields).await;
        a.accept().await.serve(refusal).await;
        tokio::time::sleep(Duration::from_millis(1_010)).await;
        let seen = peer.seen(1);
        assert!(seen.ended && seen.heads.len() == 1 && seen.reset == Some(0), "{seen:?}");
        assert!(timeout(Duration::from_secs(5), a.accept()).await.is_err());
    });
}

//! Time-outs, sizes and the orderly end, on a clock that jumps.

use std::time::Duration;

use tokio::{io::AsyncReadExt as _, time::Instant};

use web::{Protocol, Settings, Visitor};

use crate::rig::{
    Site, connect, connect_as, field, head, ok, on_worker, send, silent, status, visitor,
};

#[test]
fn a_slow_head_gets_408_after_10_seconds() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        // The first head and a later one, byte by byte.
        for first in [true, false] {
            if !first {
                client = connect(&site);
                client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
                a.accept().await.serve(&ok("")).await;
                assert_eq!(client.status().await, 200);
                tokio::time::sleep(Duration::from_secs(30)).await;
            }
            let begin = Instant::now();
            for byte in "GET / H".chars() {
                client.send(&byte.to_string()).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let (head, _) = client.answer().await;
            assert_eq!((status(&head), field(&head, "connection")), (408, Some("close")));
            assert_eq!(begin.elapsed(), Duration::from_secs(10));
            assert_eq!(client.rest().await, "");
        }
    });
}

#[test]
fn a_visitor_that_says_nothing_is_closed_after_10_seconds() {
    on_worker(async {
        let site = Site::new();
        for protocol in [Protocol::Either, Protocol::H2, Protocol::H1] {
            for begun in ["", "PRI * HTTP"] {
                let visitor = Visitor { protocol, ..visitor() };
                let mut client = connect_as(&site, visitor, Settings::default());
                client.send(begun).await;
                let begin = Instant::now();
                let rest = client.rest().await;
                // For HTTP/1.1 the bytes are an incomplete request, which has an answer.
                let answered = protocol == Protocol::H1 && !begun.is_empty();
                assert_eq!(rest.starts_with("HTTP/1.1 408 "), answered, "{rest}");
                assert_eq!(rest.is_empty(), !answered, "{rest}");
                assert_eq!(begin.elapsed(), Duration::from_secs(10), "{protocol:?} {begun}");
            }
        }
    });
}

#[test]
fn an_idle_connection_is_closed_after_75_seconds() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        head(&mut target.io).await;
        // An answer may take its time.
        tokio::time::sleep(Duration::from_secs(600)).await;
        send(&mut target.io, &ok("")).await;
        assert_eq!(client.status().await, 200);
        tokio::time::sleep(Duration::from_secs(70)).await;
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        target.serve(&ok("")).await;
        assert_eq!(client.status().await, 200);
        let begin = Instant::now();
        assert_eq!(client.rest().await, "");
        assert_eq!(begin.elapsed(), Duration::from_secs(75));
    });
}

#[test]
fn a_large_head_gets_431() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let long = format!("X: {}\r\n", "x".repeat(33_000));
        for fields in [long, "X: 1\r\n".repeat(100)] {
            let mut client = connect(&site);
            client.send(&format!("GET / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n")).await;
            let (head, _) = client.answer().await;
            assert_eq!((status(&head), field(&head, "connection")), (431, Some("close")));
            assert_eq!(client.rest().await, "");
        }
        let mut client = connect(&site);
        let fields = "X: 1\r\n".repeat(99);
        client.send(&format!("GET / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n")).await;
        a.accept().await.serve(&ok("")).await;
        assert_eq!(client.status().await, 200);
    });
}

#[test]
fn an_orderly_end_answers_the_current_request() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        head(&mut target.io).await;
        client.stop();
        assert!(silent(&mut client.io, Duration::from_secs(5)).await);
        send(&mut target.io, &ok("last")).await;
        let (head, body) = client.answer().await;
        assert_eq!((field(&head, "connection"), &*body), (Some("close"), "last"));
        assert_eq!(client.rest().await, "");
        client.served.await.unwrap();
    });
}

#[test]
fn an_orderly_end_closes_idle_connections_at_once() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        for used in [true, false] {
            let mut client = connect(&site);
            if used {
                client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
                a.accept().await.serve(&ok("")).await;
                assert_eq!(client.status().await, 200);
            } else {
                assert!(silent(&mut client.io, Duration::from_secs(1)).await);
            }
            let begin = Instant::now();
            client.stop();
            assert_eq!(client.rest().await, "");
            assert_eq!(begin.elapsed(), Duration::ZERO);
        }
    });
}

#[test]
fn a_refused_visitor_that_goes_on_sending_reads_its_answer() {
    on_worker(async {
        let site = Site::new();
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost : a.example\r\n\r\n").await;
        assert_eq!(client.status().await, 400);
        // The server reads on for a moment, so the network does not reset the connection.
        client.send(&"x".repeat(100_000)).await;
        let begin = Instant::now();
        let mut byte = [0];
        assert_eq!(client.io.read(&mut byte).await.unwrap(), 0);
        client.served.await.unwrap();
        assert_eq!(begin.elapsed(), Duration::from_secs(5));
    });
}

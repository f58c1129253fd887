//! Requests that two parsers could read differently. The gate has the full list of cases; here the
//! visitor's side and the target's side are looked at.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    frames::{END_HEADERS, END_STREAM, HEADERS, Peer, literal, request},
    rig::{Site, connect, expect, field, head, ok, on_worker, rest, send, settle, status},
};

#[test]
fn a_smuggled_request_gets_400_and_the_connection_closes() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        for request in [
            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked, x\r\n\r\n0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example\r\nX : 1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example\r\nX: 1\r\n 2\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example\nX: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
        ] {
            let mut client = connect(&site);
            // The good request before gets its answer first, from the target.
            client.send("GET /good HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
            client.send(request).await;
            client.send("GET /after HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
            let mut target = a.accept().await;
            target.serve(&ok("good")).await;
            assert_eq!(client.answer().await.1, "good");
            let (head, body) = client.answer().await;
            assert_eq!((status(&head), field(&head, "connection")), (400, Some("close")));
            assert!(body.contains("<h1>400 Bad Request</h1>"), "{body}");
            assert_eq!(client.rest().await, "", "{request}");
            assert_eq!(rest(&mut target.io).await, "", "{request}");
        }
    });
}

#[test]
fn a_malformed_chunk_breaks_the_request_and_gets_400() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client
            .send("POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            .await;
        let mut target = a.accept().await;
        head(&mut target.io).await;
        expect(&mut target.io, "3\r\nabc\r\n").await;
        client.send("3\nabc\r\n0\r\n\r\nGET /after HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        // The target does not see an end of the body.
        assert_eq!(rest(&mut target.io).await, "");
        let answer = client.rest().await;
        assert_eq!(status(&answer), 400, "{answer}");
        assert_eq!(a.count.get(), 1);
        // The server reads on for a moment, so the network does not reset the connection.
        let begin = Instant::now();
        client.send("more").await;
        client.served.await.unwrap();
        assert_eq!(begin.elapsed(), Duration::from_secs(5));
    });
}

#[test]
fn an_ambiguous_answer_reaches_the_visitor_with_one_meaning() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        target
            .serve("HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
            .await;
        let answer = client.head().await;
        assert_eq!(field(&answer, "content-length"), None, "{answer}");
        assert_eq!(field(&answer, "transfer-encoding"), Some("chunked"), "{answer}");
        expect(&mut client.io, "3\r\nabc\r\n0\r\n\r\n").await;
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = match a.count.get() {
            1 => target,
            _ => a.accept().await,
        };
        head(&mut target.io).await;
        send(
            &mut target.io,
            "HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\nContent-Length: 3\r\n\r\nabc",
        )
        .await;
        let answer = client.head().await;
        assert_eq!(answer.matches("Content-Length: 3\r\n").count(), 1, "{answer}");
        expect(&mut client.io, "abc").await;
    });
}

/// A part of an answer that may be another answer is no answer, and no visitor waits for the end of
/// the target.
#[test]
fn an_answer_in_doubt_is_refused_at_once_with_its_reason() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let ok = "HTTP/1.1 200 OK\r\n";
        let large = format!("{ok}X: {}\r\n\r\n", "x".repeat(130 << 10));
        let many = format!("{ok}{}\r\n", "X: y\r\n".repeat(501));
        for answer in [
            "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: 2x\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n X: y\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            &large,
            &many,
        ] {
            let begin = Instant::now();
            let mut client = connect(&site);
            client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
            let mut target = a.accept().await;
            head(&mut target.io).await;
            let sending = tokio::task::spawn_local({
                let answer = answer.to_owned();
                async move {
                    let _ = tokio::io::AsyncWriteExt::write_all(&mut target.io, answer.as_bytes())
                        .await;
                    target
                }
            });
            let (answered, page) = client.answer().await;
            assert_eq!(status(&answered), 502, "{answer:.100}");
            assert!(page.contains("not valid HTTP: "), "{page}");
            assert!(begin.elapsed() < Duration::from_secs(1));
            sending.await.unwrap();
        }
    });
}

/// RFC 9112 sections 5.1, 5.2 and 6.3.
#[test]
fn an_answer_that_can_be_mended_reaches_the_visitor() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let chunks = "2\r\nok\r\n0\r\n\r\n";
        let large = format!("X: {}\r\nContent-Length: 2", "x".repeat(100 << 10));
        let many = format!("{}Content-Length: 2", "X: y\r\n".repeat(300));
        for (fields, body) in [
            ("X-Old : y\r\nContent-Length : 2", "ok"),
            ("X: a\r\n  b\r\nContent-Length: 2", "ok"),
            ("Content-Length: 2\r\nContent-Length: 2", "ok"),
            ("Transfer-Encoding: chunked\r\nX: y\r\nTransfer-Encoding: chunked", chunks),
            ("Transfer-Encoding: chunked, chunked", chunks),
            (&*large, "ok"),
            (&*many, "ok"),
        ] {
            let answer = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{body}");
            for size in [answer.len(), 1_000, 1] {
                let mut client = connect(&site);
                client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
                let mut target = a.accept().await;
                head(&mut target.io).await;
                let text = answer.clone();
                let sending = tokio::task::spawn_local(async move {
                    for piece in text.as_bytes().chunks(size) {
                        let io = &mut target.io;
                        tokio::io::AsyncWriteExt::write_all(io, piece).await.unwrap();
                    }
                    target
                });
                assert_eq!(status(&client.head().await), 200, "{fields:.100}");
                expect(&mut client.io, body).await;
                let mut target = sending.await.unwrap();
                client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
                target.serve(&ok("next")).await;
                assert_eq!(client.answer().await.1, "next");
            }
        }
    });
}

/// An extended CONNECT has no body (RFC 8441 section 4): as a GET that tells the length of one, it
/// would make the target take the next request for it.
#[test]
fn a_switch_over_http2_tells_no_length_and_its_connection_takes_no_other_request() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let peer = Peer::new(connect(&site).io, &[]);
        settle().await;
        for (stream, length) in [(1, "50"), (5, "0")] {
            let more = [("content-length", length), ("sec-websocket-version", "13")];
            let block = [literal(":protocol", "websocket"), request("CONNECT", &more)].concat();
            peer.send(HEADERS, END_HEADERS, stream, &block).await;
            let mut target = a.accept().await;
            let seen = head(&mut target.io).await;
            assert!(seen.starts_with("GET / HTTP/1.1\r\n"), "{seen}");
            assert_eq!(field(&seen, "content-length"), None, "{seen}");
            assert_eq!(field(&seen, "transfer-encoding"), None, "{seen}");
            send(&mut target.io, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").await;
            settle().await;
            assert!(peer.seen(stream).ended, "{:?}", peer.seen(stream));
            peer.send(HEADERS, END_HEADERS | END_STREAM, stream + 2, &request("GET", &[])).await;
            a.accept()
                .await
                .serve(&ok("next").replace("OK\r\n", "OK\r\nConnection: close\r\n"))
                .await;
            settle().await;
            assert!(peer.is_ok(stream + 2));
            assert_eq!(rest(&mut target.io).await, "");
        }
    });
}

/// Over HTTP/1.1 the body of such a request passes as every other one.
#[test]
fn a_refused_upgrade_with_a_body_leaves_no_byte_for_the_next_request() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        let begin = "POST / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\n\
                     Upgrade: websocket\r\n";
        let next = "GET /next HTTP/1.1\r\nHost: a.example\r\n\r\n";
        for (field, body) in [
            ("Content-Length: 5", "abcde"),
            ("Transfer-Encoding: chunked", "5\r\nabcde\r\n0\r\n\r\n"),
        ] {
            client.send(&format!("{begin}{field}\r\n\r\n{body}{next}")).await;
            let mut target = a.accept().await;
            let seen = head(&mut target.io).await;
            assert!(seen.to_lowercase().contains(&field.to_lowercase()), "{seen}");
            expect(&mut target.io, body).await;
            send(&mut target.io, &ok("no")).await;
            assert_eq!(client.answer().await.1, "no");
            let mut other = a.accept().await;
            assert!(other.serve(&ok("next")).await.starts_with("GET /next "));
            assert_eq!(client.answer().await.1, "next");
            assert_eq!(rest(&mut target.io).await, "");
        }
    });
}

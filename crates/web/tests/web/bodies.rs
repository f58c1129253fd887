//! Bodies stream in both directions, with back-pressure, trailers and expectations.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    frames::{DATA, END_HEADERS, END_STREAM, HEADERS, Peer, request},
    rig::{
        BUFFER, Site, connect, expect, field, head, ok, on_worker, rest, send, settle, silent,
        status,
    },
};

#[test]
fn a_body_arrives_as_it_was_sent_and_before_it_is_complete() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nhello").await;
        let mut target = a.accept().await;
        assert_eq!(
            head(&mut target.io).await,
            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\n"
        );
        expect(&mut target.io, "hello").await;
        client.send("world").await;
        expect(&mut target.io, "world").await;
        send(&mut target.io, "HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 6\r\n\r\nabc").await;
        assert_eq!(client.head().await, "HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 6\r\n\r\n");
        expect(&mut client.io, "abc").await;
        send(&mut target.io, "def").await;
        expect(&mut client.io, "def").await;

        client
            .send("PUT / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            .await;
        let seen = head(&mut target.io).await;
        assert_eq!(field(&seen, "transfer-encoding"), Some("chunked"), "{seen}");
        expect(&mut target.io, "3\r\nabc\r\n").await;
        client.send("0\r\n\r\n").await;
        expect(&mut target.io, "0\r\n\r\n").await;
        send(&mut target.io, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n")
            .await;
        let answer = client.head().await;
        assert_eq!(field(&answer, "transfer-encoding"), Some("chunked"), "{answer}");
        expect(&mut client.io, "2\r\nxy\r\n").await;
        send(&mut target.io, "0\r\n\r\n").await;
        expect(&mut client.io, "0\r\n\r\n").await;
        assert_eq!(a.count.get(), 1);
    });
}

#[test]
fn requests_without_body_and_answers_without_body_keep_their_form() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("HEAD / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        let answer = "HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 1000\r\n\r\n";
        assert_eq!(target.serve(answer).await, "HEAD / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(client.head().await, answer);
        for answer in [
            "HTTP/1.1 304 Not Modified\r\nDate: x\r\nEtag: \"1\"\r\n\r\n",
            "HTTP/1.1 204 No Content\r\nDate: x\r\n\r\n",
            "HTTP/1.1 299 Own Phrase\r\nDate: x\r\nContent-Length: 0\r\n\r\n",
        ] {
            client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
            target.serve(answer).await;
            assert_eq!(client.head().await, answer);
        }
        client.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n").await;
        assert_eq!(
            target.serve(&ok("x")).await,
            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n"
        );
        assert_eq!(client.answer().await.1, "x");
        assert_eq!(a.count.get(), 1);
    });
}

#[test]
fn a_visitor_that_does_not_read_stops_the_target() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        head(&mut target.io).await;
        send(&mut target.io, "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n").await;
        let mut sent = 0;
        while let Ok(written) =
            tokio::time::timeout(Duration::from_secs(1), target.io.write(&[b'x'; 4096])).await
        {
            sent += written.unwrap();
        }
        // Two sockets, and what hyper reads and has not written.
        assert!(sent < 2 * BUFFER + 1024 * 1024, "{sent} bytes wait");
    });
}

#[test]
fn a_target_that_does_not_read_stops_the_visitor() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client
            .send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100000000\r\n\r\n")
            .await;
        let mut target = a.accept().await;
        head(&mut target.io).await;
        let mut sent = 0;
        while let Ok(written) =
            tokio::time::timeout(Duration::from_secs(1), client.io.write(&[b'x'; 4096])).await
        {
            sent += written.unwrap();
        }
        assert!(sent < 2 * BUFFER + 1024 * 1024, "{sent} bytes wait");
    });
}

#[test]
fn a_target_that_dies_within_a_body_breaks_the_answer() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        for framing in
            ["Content-Length: 100\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"]
        {
            let mut client = connect(&site);
            client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
            let mut target = a.accept().await;
            target.serve(&format!("HTTP/1.1 200 OK\r\n{framing}")).await;
            client.head().await;
            drop(target);
            let rest = client.rest().await;
            assert!(rest.contains("abc") && !rest.ends_with("0\r\n\r\n"), "{rest}");
        }
    });
}

#[test]
fn a_visitor_that_leaves_ends_its_request_at_the_target() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        // Before the answer, within the answer, within the body of the request.
        for (length, answer) in
            [(0, ""), (0, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"), (9, "")]
        {
            let mut client = connect(&site);
            let head =
                format!("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n");
            client.send(&head).await;
            let mut target = a.accept().await;
            target.serve(answer).await;
            drop(client.io);
            assert_eq!(rest(&mut target.io).await, "");
            client.served.await.unwrap();
        }
    });
}

#[test]
fn an_upload_waits_for_the_target_to_want_it() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client
            .send("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
            .await;
        let mut target = a.accept().await;
        let seen = head(&mut target.io).await;
        assert_eq!(field(&seen, "expect"), Some("100-continue"));
        assert!(silent(&mut client.io, Duration::from_millis(900)).await);
        send(&mut target.io, "HTTP/1.1 100 Continue\r\n\r\n").await;
        expect(&mut client.io, "HTTP/1.1 100 Continue\r\n\r\n").await;
        client.send("abc").await;
        expect(&mut target.io, "abc").await;
        send(&mut target.io, &ok("done")).await;
        assert_eq!(client.answer().await.1, "done");
        // The connection to the target takes the next request.
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        target.serve(&ok("next")).await;
        assert_eq!(client.answer().await.1, "next");
    });
}

#[test]
fn an_upload_that_the_target_refuses_is_not_sent() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client
            .send("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
            .await;
        let mut target = a.accept().await;
        target.serve("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno").await;
        let (head, body) = client.answer().await;
        assert_eq!((status(&head), &*body), (413, "no"));
        // The visitor may send the body all the same, so this connection cannot go on.
        assert_eq!(client.rest().await, "");
        assert_eq!(rest(&mut target.io).await, "");
        client.served.await.unwrap();
    });
}

#[test]
fn an_early_answer_is_whole_and_the_visitor_may_send_its_upload_before_it_reads() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let page = "x".repeat(BUFFER / 2);
        let early = format!(
            "HTTP/1.1 413 Content Too Large\r\nContent-Length: {}\r\n\r\n{page}",
            page.len()
        );
        let piece = "y".repeat(BUFFER);
        // The target closes the connection, or ends its direction and reads on, or waits.
        for ending in 0..3 {
            let mut client = connect(&site);
            let pieces = 40;
            let length = pieces * piece.len();
            client
                .send(&format!(
                    "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n"
                ))
                .await;
            let mut target = a.accept().await;
            head(&mut target.io).await;
            let mut sent = piece.clone();
            send(&mut client.io, &sent).await;
            send(&mut target.io, &early).await;
            let target = match ending {
                0 => None,
                1 => {
                    target.io.shutdown().await.unwrap();
                    Some(target)
                }
                _ => Some(target),
            };
            let (head, body) = client.answer().await;
            assert_eq!((status(&head), &body), (413, &page), "{ending}");
            while sent.len() < length {
                send(&mut client.io, &piece).await;
                sent.push_str(&piece);
            }
            assert_eq!(client.rest().await, "", "{ending}");
            drop(client.io);
            client.served.await.unwrap();
            drop(target);
        }
    });
}

#[test]
fn an_upload_starts_where_the_target_knows_no_expectation() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client
            .send("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
            .await;
        let mut target = a.accept().await;
        head(&mut target.io).await;
        expect(&mut client.io, "HTTP/1.1 100 Continue\r\n\r\n").await;
        client.send("abc").await;
        expect(&mut target.io, "abc").await;
        send(&mut target.io, &ok("")).await;
        assert_eq!(client.status().await, 200);
    });
}

#[test]
fn trailers_pass_both_ways() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client
            .send(
                "POST / HTTP/1.1\r\nHost: a.example\r\nTE: trailers, deflate\r\nTrailer: X-Sum\r\n\
                 Connection: TE\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n",
            )
            .await;
        let mut target = a.accept().await;
        let seen = head(&mut target.io).await;
        assert_eq!(field(&seen, "te"), Some("trailers"), "{seen}");
        assert_eq!(field(&seen, "trailer"), Some("X-Sum"), "{seen}");
        assert_eq!(field(&seen, "connection"), Some("te"), "{seen}");
        expect(&mut target.io, "1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n").await;
        send(
            &mut target.io,
            "HTTP/1.1 200 OK\r\nTrailer: X-End\r\nTransfer-Encoding: chunked\r\n\r\n\
             1\r\nb\r\n0\r\nX-End: 2\r\n\r\n",
        )
        .await;
        client.head().await;
        expect(&mut client.io, "1\r\nb\r\n0\r\nX-End: 2\r\n\r\n").await;
    });
}

#[test]
fn a_visitor_of_http_1_0_gets_a_body_that_ends_with_the_connection() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET / HTTP/1.0\r\nHost: a.example\r\n\r\n").await;
        let seen = a
            .accept()
            .await
            .serve("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
            .await;
        assert_eq!(seen, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let answer = client.rest().await;
        assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nabc"), "{answer}");
        assert_eq!(field(&answer, "transfer-encoding"), None, "{answer}");
    });
}

/// The end of the connection would be the end of the body.
#[test]
fn a_visitor_of_http_1_0_is_reset_when_the_target_dies_within_a_body() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET / HTTP/1.0\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        target.serve("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n").await;
        client.head().await;
        drop(target);
        assert!(client.served.await.unwrap(), "the connection is given back for a reset");
    });
}

#[test]
fn a_body_that_ends_with_the_targets_connection_is_complete() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        target.serve("HTTP/1.0 200 OK\r\n\r\nabc").await;
        drop(target);
        let answer = client.head().await;
        assert_eq!(field(&answer, "transfer-encoding"), Some("chunked"), "{answer}");
        expect(&mut client.io, "3\r\nabc\r\n0\r\n\r\n").await;
        let mut none = [0];
        let more = tokio::time::timeout(Duration::from_secs(1), client.io.read(&mut none)).await;
        assert!(more.is_err(), "the connection of the visitor stays open");
    });
}

/// hyper's client drops such a body.
#[test]
fn a_get_with_a_body_of_unknown_length_reaches_the_target_whole() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let chunks = "5\r\nabcde\r\n0\r\n\r\n";
        let mut client = connect(&site);
        for method in ["GET", "HEAD"] {
            let begin = format!("{method} / HTTP/1.1\r\nHost: a.example\r\n");
            client.send(&format!("{begin}Transfer-Encoding: chunked\r\n\r\n{chunks}")).await;
            let mut target = a.accept().await;
            let seen = head(&mut target.io).await;
            assert_eq!(field(&seen, "transfer-encoding"), Some("chunked"), "{seen}");
            assert_eq!(field(&seen, "content-length"), None, "{seen}");
            expect(&mut target.io, chunks).await;
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            send(&mut target.io, answer).await;
            assert_eq!(status(&client.head().await), 200);
        }
        let peer = Peer::new(connect(&site).io, &[]);
        peer.send(HEADERS, END_HEADERS, 1, &request("GET", &[])).await;
        let mut target = a.accept().await;
        let seen = head(&mut target.io).await;
        assert_eq!(field(&seen, "transfer-encoding"), Some("chunked"), "{seen}");
        peer.send(DATA, END_STREAM, 1, b"abcde").await;
        expect(&mut target.io, chunks).await;
        send(&mut target.io, &ok("x")).await;
        settle().await;
        assert!(peer.is_ok(1), "{:?}", peer.seen(1));
        // A request without a body gets none.
        peer.send(HEADERS, END_HEADERS | END_STREAM, 3, &request("GET", &[])).await;
        assert_eq!(target.serve(&ok("x")).await, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    });
}

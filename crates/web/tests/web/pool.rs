//! Connections to targets: kept, counted, repeated on, and reported when they fail.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use web::{OpenFailed, Sender};

use crate::rig::{BUFFER, Remote, Site, connect, expect, head, ok, on_worker, rest, send, status};

#[test]
fn a_request_that_died_on_a_kept_connection_is_repeated_once() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        target.serve(&ok("1")).await;
        client.answer().await;
        client.send("GET /2 HTTP/1.1\r\nHost: a.example\r\nX-Own: 1\r\n\r\n").await;
        let first = head(&mut target.io).await;
        drop(target);
        let mut target = a.accept().await;
        assert_eq!(target.serve(&ok("2")).await, first);
        assert_eq!(client.answer().await.1, "2");
        // The repetition itself, on a new connection, is not repeated.
        client.send("GET /3 HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        head(&mut target.io).await;
        drop(target);
        let mut target = a.accept().await;
        head(&mut target.io).await;
        drop(target);
        assert_eq!(client.status().await, 502);
        assert_eq!(a.count.get(), 3);
    });
}

#[test]
fn a_kept_connection_that_closed_is_not_used() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        target.serve(&ok("1")).await;
        client.answer().await;
        drop(target);
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc").await;
        a.accept().await.serve(&ok("2")).await;
        assert_eq!(client.answer().await.1, "2");
    });
}

/// The end does not wait for the next request of the visitor, which may never come.
#[test]
fn a_kept_connection_ends_when_its_target_closes_or_sends_bytes_without_a_request() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        for excess in ["", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"] {
            let mut client = connect(&site);
            client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
            let mut target = a.accept().await;
            target.serve(&ok("1")).await;
            client.answer().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            if excess.is_empty() {
                target.io.shutdown().await.unwrap();
            } else {
                send(&mut target.io, excess).await;
            }
            let end = tokio::time::timeout(Duration::from_secs(1), rest(&mut target.io)).await;
            assert_eq!(end.as_deref(), Ok(""), "{excess:?}");
        }
    });
}

#[test]
fn a_request_with_an_effect_that_did_not_leave_takes_no_connection_that_was_idle_for_long() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        let post = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n";
        client.send(post).await;
        let mut stale = a.accept().await;
        stale.serve(&ok("1")).await;
        client.answer().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        client.send(post).await;
        let mut fresh = a.accept().await;
        fresh.serve(&ok("2")).await;
        client.answer().await;
        // The end of the connection is seen after the request was given to it.
        client.send(post).await;
        drop(fresh);
        a.accept().await.serve(&ok("3")).await;
        assert_eq!(client.answer().await.1, "3");
        assert_eq!(a.count.get(), 3);
    });
}

/// The head of an HTTP/1.1 message up to its end, and a body of known length.
async fn message(target: &mut Remote, body: &str) -> String {
    let head = head(&mut target.io).await;
    expect(&mut target.io, body).await;
    head
}

#[test]
fn a_request_with_an_effect_is_never_sent_twice_and_its_visitor_may_repeat_it() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        for request in [
            "POST /2 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc",
            "POST /2 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n",
            "PATCH /2 HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
        ] {
            let before = a.count.get();
            let mut client = connect(&site);
            client.send("GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
            let mut target = a.accept().await;
            target.serve(&ok("1")).await;
            client.answer().await;
            client.send(request).await;
            head(&mut target.io).await;
            drop(target);
            // The connection ends as that of the target did, and in order.
            assert_eq!(client.rest().await, "", "{request}");
            assert!(!client.served.await.unwrap(), "{request}");
            assert_eq!(a.count.get(), before + 1, "{request}");
        }
    });
}

#[test]
fn an_answer_before_a_request_without_answer_is_not_lost() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        let long = "x".repeat(3 * BUFFER);
        client
            .send(
                "GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n\
                 POST /2 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc",
            )
            .await;
        let mut target = a.accept().await;
        target.serve(&ok(&long)).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(client.answer().await.1, long);
        message(&mut target, "abc").await;
        drop(target);
        assert_eq!(client.rest().await, "");
    });
}

#[test]
fn a_request_that_may_be_repeated_is_repeated_with_its_body() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        target.serve(&ok("1")).await;
        client.answer().await;
        client.send("PUT /2 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 6\r\n\r\nabc").await;
        let first = message(&mut target, "abc").await;
        drop(target);
        let mut target = a.accept().await;
        assert_eq!(message(&mut target, "abc").await, first);
        client.send("def").await;
        expect(&mut target.io, "def").await;
        send(&mut target.io, &ok("2")).await;
        assert_eq!(client.answer().await.1, "2");
    });
}

#[test]
fn a_body_that_is_too_long_to_be_kept_is_not_repeated() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        target.serve(&ok("1")).await;
        client.answer().await;
        let body = "x".repeat(70_000);
        let request = format!(
            "PUT /2 HTTP/1.1\r\nHost: a.example\r\nContent-Length: {}\r\n\r\n{body}",
            body.len() + 1
        );
        let sent = async { client.send(&request).await };
        let read = async { message(&mut target, &body).await };
        tokio::join!(sent, read);
        drop(target);
        assert_eq!(client.rest().await, "");
        assert_eq!(a.count.get(), 1);
    });
}

#[test]
fn a_request_that_cannot_be_repeated_gets_a_fresh_connection() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut kept = a.accept().await;
        kept.serve(&ok("1")).await;
        client.answer().await;
        tokio::time::sleep(Duration::from_millis(900)).await;
        let post = "POST /2 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc";
        client.send(post).await;
        message(&mut kept, "abc").await;
        send(&mut kept.io, &ok("2")).await;
        client.answer().await;
        tokio::time::sleep(Duration::from_millis(1100)).await;
        client.send(post).await;
        let mut fresh = a.accept().await;
        message(&mut fresh, "abc").await;
        send(&mut fresh.io, &ok("3")).await;
        client.answer().await;
        // A switch takes the connection away from the pool in any case.
        let upgrade =
            "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
        client.send(upgrade).await;
        a.accept().await.serve(&ok("4")).await;
        assert_eq!(client.answer().await.1, "4");
        assert_eq!(a.count.get(), 3);
    });
}

#[test]
fn a_request_whose_answer_began_is_not_repeated() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        target.serve(&ok("1")).await;
        client.answer().await;
        client.send("GET /2 HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        target.serve("HTTP/1.1 20").await;
        drop(target);
        let (head, body) = client.answer().await;
        assert_eq!(status(&head), 502);
        assert!(body.contains("within the head of its answer"), "{body}");
        assert_eq!(a.count.get(), 1);
    });
}

#[test]
fn a_failure_of_the_target_has_its_reason_on_the_page() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        *a.refusal.borrow_mut() =
            Some(OpenFailed { status: 504, reason: "the target does not answer".into() });
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let (head, body) = client.answer().await;
        assert_eq!(status(&head), 504);
        assert!(body.contains("<p>The target does not answer.</p>"), "{body}");

        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        a.accept().await.fail("the target refused the connection");
        let (head, body) = client.answer().await;
        assert_eq!(status(&head), 502);
        assert!(body.contains("<p>The target refused the connection.</p>"), "{body}");

        client.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc").await;
        a.accept().await.fail("the target refused the connection");
        let (head, body) = client.answer().await;
        assert_eq!(status(&head), 502);
        assert!(body.contains("<p>The target refused the connection.</p>"), "{body}");

        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        a.accept().await.serve("SSH-2.0-OpenSSH\r\n\r\n").await;
        let (head, body) = client.answer().await;
        assert_eq!(status(&head), 502);
        assert!(body.contains("not valid HTTP"), "{body}");
    });
}

#[test]
fn connections_to_targets_end_in_order_with_the_visitors_connection() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        target.serve(&ok("1")).await;
        client.answer().await;
        let open = tokio::time::timeout(Duration::from_secs(5), target.io.read_u8()).await;
        assert!(open.is_err(), "the connection is kept");
        drop(client.io);
        assert_eq!(rest(&mut target.io).await, "");
        client.served.await.unwrap();
    });
}

#[test]
fn an_answer_that_closes_the_connection_is_followed_by_a_new_connection() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        for count in 1..=3 {
            client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
            let answer = "HTTP/1.1 200 OK\r\nDate: x\r\nConnection: close, X-Own\r\nX-Own: 1\r\n\
                          Keep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n";
            a.accept().await.serve(answer).await;
            let head = client.head().await;
            assert_eq!(head, "HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(a.count.get(), count);
        }
    });
}

/// The target learns the address of the visitor by the connection, as by the PROXY protocol.
#[test]
fn visitors_behind_a_trusted_proxy_do_not_share_connections_to_the_target() {
    on_worker(async {
        let site = Site::new();
        site.trusted.set(true);
        let a = site.plain("a.example");
        let mut client = connect(&site);
        let get = |visitor| {
            format!("GET / HTTP/1.1\r\nHost: a.example\r\nX-Test-Visitor: {visitor}\r\n\r\n")
        };
        client.send(&get("203.0.113.1:1")).await;
        let mut first = a.accept().await;
        first.serve(&ok("")).await;
        assert_eq!(client.status().await, 200);
        client.send(&get("203.0.113.2:1")).await;
        a.accept().await.serve(&ok("")).await;
        assert_eq!((client.status().await, a.count.get()), (200, 2));
        client.send(&get("203.0.113.1:1")).await;
        first.serve(&ok("")).await;
        assert_eq!((client.status().await, a.count.get()), (200, 2));
        let known = |address: &str| Sender::Known(address.parse().unwrap());
        let (one, two) = (known("203.0.113.1:1"), known("203.0.113.2:1"));
        assert_eq!(*site.senders.borrow(), [one, two, one]);
    });
}

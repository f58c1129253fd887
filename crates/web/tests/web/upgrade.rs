//! Visitors and targets that switch to another protocol.

use std::time::Duration;

use tokio::{io::AsyncWriteExt as _, time::timeout};

use crate::rig::{BUFFER, Site, connect, expect, field, head, ok, on_worker, rest, send, status};

const REQUEST: &str = "GET /ws HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, Upgrade\r\n\
                       Upgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nDate: x\r\nConnection: Upgrade\r\n\
                      Upgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\n";

#[test]
fn an_upgraded_connection_is_a_byte_pipe_whose_directions_end_alone() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        target.serve(&ok("before")).await;
        client.answer().await;
        // Bytes of the new protocol may follow the heads at once.
        client.send(&format!("{REQUEST}early\n")).await;
        // A switch takes no connection that its target may be about to close.
        let mut target = a.accept().await;
        let seen = head(&mut target.io).await;
        assert_eq!(field(&seen, "connection"), Some("upgrade"), "{seen}");
        assert_eq!(field(&seen, "upgrade"), Some("websocket"), "{seen}");
        assert_eq!(field(&seen, "sec-websocket-key"), Some("x"), "{seen}");
        send(&mut target.io, &format!("{SWITCH}first")).await;
        let answer = client.head().await;
        assert_eq!(status(&answer), 101);
        assert_eq!(field(&answer, "connection"), Some("upgrade"), "{answer}");
        assert_eq!(field(&answer, "upgrade"), Some("websocket"), "{answer}");
        assert_eq!(field(&answer, "sec-websocket-accept"), Some("y"), "{answer}");
        expect(&mut client.io, "first").await;
        expect(&mut target.io, "early\n").await;
        // No request is seen in these bytes, and no time-out ends the pipe.
        tokio::time::sleep(Duration::from_secs(600)).await;
        client.send("GET / HTTP/1.1\nHost : x\r\n\r\n").await;
        expect(&mut target.io, "GET / HTTP/1.1\nHost : x\r\n\r\n").await;
        client.io.shutdown().await.unwrap();
        assert_eq!(rest(&mut target.io).await, "");
        send(&mut target.io, "last").await;
        drop(target);
        assert_eq!(client.rest().await, "last");
        client.served.await.unwrap();
    });
}

#[test]
fn a_refused_upgrade_leaves_an_http_connection() {
    on_worker(async {
        let site = Site::new();
        let (a, b) = (site.plain("a.example"), site.plain("b.example"));
        let mut client = connect(&site);
        client.send(&format!("{REQUEST}GET /next HTTP/1.1\r\nHost: b.example\r\n\r\n")).await;
        let mut target = a.accept().await;
        target.serve(&ok("no")).await;
        assert_eq!(client.answer().await.1, "no");
        b.accept().await.serve(&ok("next")).await;
        assert_eq!(client.answer().await.1, "next");
        // What is refused in front of the target is no upgrade either.
        client.send(&REQUEST.replace("a.example", "x.example")).await;
        assert_eq!(client.status().await, 404);
        client.send("GET / HTTP/1.1\r\nHost : b.example\r\n\r\n").await;
        assert_eq!(client.status().await, 400);
    });
}

#[test]
fn bytes_before_the_switch_are_bounded_and_kept() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send(REQUEST).await;
        let mut target = a.accept().await;
        head(&mut target.io).await;
        let mut sent = 0;
        while let Ok(written) =
            timeout(Duration::from_secs(1), client.io.write(&[b'x'; 1000])).await
        {
            sent += written.unwrap();
        }
        assert!((16 * 1024..BUFFER + 64 * 1024).contains(&sent), "{sent} bytes wait");
        send(&mut target.io, SWITCH).await;
        assert_eq!(status(&client.head().await), 101);
        client.io.shutdown().await.unwrap();
        assert_eq!(rest(&mut target.io).await.len(), sent);
    });
}

#[test]
fn a_switch_to_http2_is_never_passed_on() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client
            .send(
                "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, HTTP2-Settings\r\n\
                 Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
            )
            .await;
        let mut target = a.accept().await;
        assert_eq!(target.serve(&ok("")).await, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(client.status().await, 200);
    });
}

#[test]
fn a_switch_that_nobody_asked_for_is_an_error_of_the_target() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        target.serve(&format!("{SWITCH}HTTP/1.1 200 OK\r\n\r\n")).await;
        assert_eq!(client.status().await, 502);
        assert_eq!(rest(&mut target.io).await, "");
        // A switch to another protocol than the visitor asked for.
        client.send(REQUEST).await;
        let mut target = a.accept().await;
        target.serve(&SWITCH.replace("websocket", "h2c")).await;
        assert_eq!(client.status().await, 502);
        assert_eq!(rest(&mut target.io).await, "");
    });
}

#[test]
fn a_visitor_or_target_that_breaks_ends_the_pipe() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        for visitor_breaks in [true, false] {
            let mut client = connect(&site);
            client.send(REQUEST).await;
            let mut target = a.accept().await;
            target.serve(SWITCH).await;
            client.head().await;
            if visitor_breaks {
                client.served.abort();
                assert_eq!(rest(&mut target.io).await, "");
            } else {
                drop(target);
                assert_eq!(client.rest().await, "");
            }
        }
    });
}

//! Visitors that end their direction: some wait for their answers, others have left.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;

use crate::rig::{Client, Site, connect, expect, head, on_worker, rest, send};

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
const SECOND: Duration = Duration::from_secs(1);

async fn ended(client: &mut Client, request: &str) {
    client.send(request).await;
    client.io.shutdown().await.unwrap();
}

/// Everything that a visitor gets, without the date.
async fn all(client: &mut Client) -> String {
    let text = client.rest().await;
    let lines = text.split_inclusive("\r\n").filter(|line| !line.starts_with("Date: "));
    lines.collect()
}

#[test]
fn a_visitor_that_ends_its_direction_gets_its_answer_byte_for_byte() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let post = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello";
        for (request, version) in [
            (GET, "1.1"),
            (post, "1.1"),
            ("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n", "1.1"),
            ("GET / HTTP/1.0\r\nHost: a.example\r\n\r\n", "1.0"),
        ] {
            for pause in [0, 1, 50, 150, 500, 2_000, 60_000] {
                let mut client = connect(&site);
                ended(&mut client, request).await;
                let mut target = a.accept().await;
                head(&mut target.io).await;
                tokio::time::sleep(Duration::from_millis(pause)).await;
                send(&mut target.io, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
                let all = all(&mut client).await;
                let status = format!("HTTP/{version} 200 OK\r\n");
                assert!(all.starts_with(&status) && all.ends_with("\r\n\r\nok"), "{all}");
                assert_eq!(all.matches("HTTP/").count(), 1, "{all}");
                assert!(!client.served.await.unwrap());
            }
        }
        // Each of several requests.
        let mut client = connect(&site);
        ended(&mut client, &GET.repeat(3)).await;
        let mut target = a.accept().await;
        for _ in 0..3 {
            head(&mut target.io).await;
            tokio::time::sleep(Duration::from_millis(400)).await;
            send(&mut target.io, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        }
        let all = all(&mut client).await;
        assert_eq!(all, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".repeat(3));
    });
}

/// The zeros that are sent ahead belong to the size of the next chunk.
#[test]
fn an_answer_in_chunks_goes_on_after_the_end_of_the_visitor() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        for pauses in [[0, 0], [10, 10], [250, 250], [2_000, 0]] {
            let mut client = connect(&site);
            client.send(GET).await;
            let mut target = a.accept().await;
            head(&mut target.io).await;
            let start = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
            send(&mut target.io, start).await;
            client.head().await;
            expect(&mut client.io, "5\r\nhello\r\n").await;
            client.io.shutdown().await.unwrap();
            for pause in pauses {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                send(&mut target.io, "5\r\nhello\r\n").await;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            send(&mut target.io, "0\r\n\r\n").await;
            let all = client.rest().await;
            let (mut rest, mut chunks) = (&*all, 0);
            while let Some((size, data)) = rest.split_once("\r\n") {
                let size = usize::from_str_radix(size, 16).unwrap();
                chunks += usize::from(size > 0);
                assert!(data[..size] == *"hello" || size == 0, "{all}");
                rest = &data[size + 2..];
            }
            assert!(chunks > 0 && rest.is_empty(), "{all}");
        }
    });
}

#[test]
fn a_visitor_that_has_left_is_noticed_at_the_target_within_a_second() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
        let length = "HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n5\r\nhello\r\n";
        for begun in ["", chunked, length] {
            for request in [GET, "GET / HTTP/1.0\r\nHost: a.example\r\n\r\n"] {
                let mut client = connect(&site);
                client.send(request).await;
                let mut target = a.accept().await;
                head(&mut target.io).await;
                send(&mut target.io, begun).await;
                if !begun.is_empty() {
                    client.head().await;
                    let is_chunked = begun == chunked && request == GET;
                    let is_as_sent = begun == length || is_chunked;
                    let body = if is_as_sent { "5\r\nhello\r\n" } else { "hello" };
                    expect(&mut client.io, body).await;
                }
                let left = Instant::now();
                drop(client.io);
                assert_eq!(rest(&mut target.io).await, "");
                assert!(left.elapsed() < SECOND, "{:?}", left.elapsed());
            }
        }
    });
}

/// A body with a length goes on, as long as it makes no long pause just when the visitor ends.
#[test]
fn a_body_with_a_length_goes_on_after_the_end_of_the_visitor() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        for request in [GET, "GET / HTTP/1.0\r\nHost: a.example\r\n\r\n"] {
            let mut client = connect(&site);
            client.send(request).await;
            let mut target = a.accept().await;
            head(&mut target.io).await;
            send(&mut target.io, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc").await;
            client.head().await;
            client.io.shutdown().await.unwrap();
            for (pause, part) in [(500, "def"), (9_000, "ghi")] {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                send(&mut target.io, part).await;
            }
            assert_eq!(client.rest().await, "abcdefghi");
        }
    });
}

/// A request that is not complete cannot be answered.
#[test]
fn a_visitor_that_ends_within_a_body_has_left() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        let post = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 9\r\n\r\nhell";
        ended(&mut client, post).await;
        let left = Instant::now();
        let mut target = a.accept().await;
        head(&mut target.io).await;
        assert_eq!(rest(&mut target.io).await, "hell");
        assert!(left.elapsed() < SECOND);
    });
}

/// What follows a complete request and is no request is nobody's fault.
#[test]
fn a_part_of_a_head_behind_a_request_is_forgotten() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        ended(&mut client, &format!("{GET}GET / HT")).await;
        let mut target = a.accept().await;
        head(&mut target.io).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        send(&mut target.io, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        assert_eq!(all(&mut client).await, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
}

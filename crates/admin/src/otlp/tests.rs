//! Tests of pushes to a collector that fails, answers, or never answers, and of the last push.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};

use config::{Field, Secret, Span};
use ops::status::{Status, sample};
use ops::{Role, SendFuture};
use serde_json::Value as Json;

use super::*;

struct Fixed;

impl Daemon for Fixed {
    fn role(&self) -> Role {
        Role::Server
    }

    fn status(&self) -> SendFuture<'_, Status> {
        Box::pin(async { sample() })
    }
}

fn settings(port: u16, interval: u64) -> Otlp {
    let collector = format!("http://127.0.0.1:{port}/in").parse().unwrap();
    let key = Field { name: "X-Key".into(), value: Secret::new("of the collector") };
    Otlp { collector, interval: Span::from_millis(interval), headers: vec![key] }
}

fn request(stream: &mut TcpStream) -> (String, Json) {
    let mut text = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0, "a request is whole");
        text.extend_from_slice(&piece[..n]);
        let Some(end) = text.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(text[..end].to_vec()).unwrap().to_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap();
        let length: usize = length.lines().next().unwrap().parse().unwrap();
        if text.len() >= end + 4 + length {
            return (head, serde_json::from_slice(&text[end + 4..]).unwrap());
        }
    }
}

/// A collector that accepts one request for each answer, and forwards the request to the test.
fn collector(answers: &'static [&str]) -> (u16, Receiver<(String, Json)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, received) = sync_channel(answers.len());
    std::thread::spawn(move || {
        for answer in answers {
            let mut stream = listener.accept().unwrap().0;
            tell.send(request(&mut stream)).unwrap();
            // An error is ignored: a pusher that has to finish closes the connection.
            drop(write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 2\r\n\r\n{{}}"));
        }
    });
    (port, received)
}

fn next(received: &Receiver<(String, Json)>) -> (String, Json) {
    received.recv_timeout(Duration::from_secs(20)).unwrap()
}

#[test]
fn a_collector_that_fails_is_asked_again() {
    let (port, received) = collector(&["503 Not Now", "200 OK", "200 OK"]);
    let _push = Push::start(settings(port, 50), Arc::new(Fixed)).unwrap();
    for _ in 0..3 {
        assert!(next(&received).0.starts_with("post /in/v1/metrics http/1.1"));
    }
}

#[tokio::test]
async fn sums_and_gauges_arrive_at_the_start_and_once_more_at_the_end() {
    let (port, received) = collector(&["200 OK", "200 OK"]);
    let push = Push::start(settings(port, 3_600_000), Arc::new(Fixed)).unwrap();
    let first = next(&received);
    push.finish().await;
    let requests = [first, next(&received)];
    let (head, message) = &requests[1];
    assert!(head.starts_with("post /in/v1/metrics http/1.1"), "{head}");
    for field in ["x-key: of the collector", "content-type: application/json", "host: 127.0.0.1"] {
        assert!(head.contains(field), "{head}");
    }
    let metrics = &message["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    let metric = |name: &str| {
        let mut all = metrics.as_array().unwrap().iter();
        all.find(|metric| metric["name"] == name).unwrap().clone()
    };
    let sum = &metric("tunnel_service_out_bytes_total")["sum"];
    assert_eq!((&sum["isMonotonic"], &sum["aggregationTemporality"]), (&true.into(), &2.into()));
    let point = &sum["dataPoints"][0];
    assert_eq!(point["asInt"], (3_u64 << 30).to_string());
    let time = |key: &str| point[key].as_str().unwrap().parse::<u128>().unwrap();
    let up = time("timeUnixNano") - time("startTimeUnixNano");
    assert!((3_700..3_710).contains(&(up / 1_000_000_000)), "since the start: {up}");
    let rtt = metric("tunnel_carrier_rtt_seconds");
    assert_eq!(
        (&rtt["unit"], &rtt["gauge"]["dataPoints"][0]["asDouble"]),
        (&"s".into(), &0.012345.into())
    );
    let starts: Vec<_> = requests
        .iter()
        .map(|(_, message)| {
            let metrics = &message["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
            let mut all = metrics.as_array().unwrap().iter();
            let sum = all.find_map(|metric| metric.get("sum")).unwrap();
            sum["dataPoints"][0]["startTimeUnixNano"].clone()
        })
        .collect();
    assert!(starts.iter().all(|start| *start == starts[0]), "{starts:?}");
}

#[tokio::test]
async fn a_collector_that_never_answers_holds_up_the_end_for_a_moment_only() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let push = Push::start(settings(port, 100), Arc::new(Fixed)).unwrap();
    // The collector has received the request, so the push waits for an answer from here on.
    let (tell, received) = sync_channel(1);
    std::thread::spawn(move || {
        let mut silent = listener.accept().unwrap().0;
        request(&mut silent);
        tell.send(silent).unwrap();
    });
    let _silent = received.recv_timeout(Duration::from_secs(20)).unwrap();
    let start = Instant::now();
    push.finish().await;
    assert!(start.elapsed() < LAST * 2, "{:?}", start.elapsed());
}

#[test]
fn who_fails_is_asked_less_and_less_often() {
    assert_eq!([0, 1, 2, 3, 4, 5, 100].map(skipped), [0, 0, 1, 3, 3, 3, 3]);
}

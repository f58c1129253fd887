//! A hostile service and an honest one behind one reverse proxy that keeps its connections: no
//! request for the honest host is answered by the hostile service.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::{Doors, status, talk};
use crate::harness::{Nginx, Origin, SOON, Scheme, free_port, wait};

const POISON: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";

/// Responses, each with the status that nginx may answer: that of a page of the server, or that of
/// the response where every parser sees the same end, if need be because its head was mended.
const RESPONSES: &[(&str, &[&str])] = &[
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", &["200"]),
    ("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", &["502"]),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        &["200"],
    ),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX(: y\r\n\r\nok", &["502"]),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", &["200"]),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: y\r\n z\r\n\r\nok", &["200"]),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", &["502"]),
    ("HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok", &["200"]),
    ("HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok", &["502"]),
    ("HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok", &["502"]),
    ("HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\nok", &["502"]),
    // nginx takes an interim answer for the final one.
    ("HTTP/1.1 103 Hints\r\nContent-Length: 0\r\n\r\n", &["103", "502"]),
    ("HTTP/1.1 101 Switching Protocols\r\n\r\n", &["502"]),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", &["502"]),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", &["502"]),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\n\n", &["200", "502"]),
    ("HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok", &["204"]),
    ("not HTTP at all\r\n\r\n", &["502"]),
];

#[test]
fn a_hostile_service_answers_no_request_for_another_host_behind_a_reverse_proxy() {
    let mut doors = Doors::new(Scheme::TLS);
    doors.setup.server_lines.push_str("trusted_proxies: [ 127.0.0.1 ]\n");
    let (http, dir) = (doors.http, doors.setup.dir().to_owned());
    // Connections of the hostile service.
    let open = Arc::new(AtomicUsize::new(0));
    let held = Arc::clone(&open);
    let hostile = Origin::start(move |mut socket| {
        let _one = Counted::new(&held);
        while let Some(head) = head(&mut socket) {
            let number = head.split(['/', ' ']).nth(2).and_then(|number| number.parse().ok());
            let Some(number) = number.filter(|number: &usize| *number <= RESPONSES.len()) else {
                return;
            };
            let large = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(140_000));
            let response = RESPONSES.get(number).map_or(&*large, |(response, _)| response);
            // With the response, and when the next request may be on its way.
            let _ = write!(socket, "{response}{POISON}");
            thread::sleep(Duration::from_millis(10));
            if write!(socket, "{POISON}").is_err() {
                return;
            }
        }
    });
    let honest = Origin::start(|mut socket| {
        while head(&mut socket).is_some() {
            let _ = write!(socket, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhonest");
        }
    });
    let front = free_port();
    let mut conf = String::from("worker_processes 1; error_log stderr error; events {}\n");
    let shown = dir.display();
    let _ = write!(
        conf,
        "http {{ access_log off; client_body_temp_path {shown}/b; proxy_temp_path {shown}/p;\n\
         fastcgi_temp_path {shown}/f; uwsgi_temp_path {shown}/u; scgi_temp_path {shown}/s;\n\
         upstream tunnel {{ server 127.0.0.1:{http} max_fails=0; keepalive 4; }}\n\
         server {{ listen 127.0.0.1:{front}; location / {{ proxy_pass http://tunnel;\n\
         proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header Host $host;\n\
         proxy_read_timeout 2s; proxy_buffer_size 128k; proxy_buffers 8 128k; }} }} }}\n"
    );
    let _running = doors.start(&[
        ("http://a.example.com", hostile.port(), ""),
        ("http://b.example.com", honest.port(), ""),
    ]);
    let _nginx = Nginx::start_with(&dir, &conf, front);
    let ask = |host: &str, path: usize| {
        let head = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        talk(front, head.as_bytes())
    };
    assert!(ask("b.example.com", 0).ends_with("honest"));
    for number in 0..=RESPONSES.len() {
        let answer = ask("a.example.com", number);
        let wanted = RESPONSES.get(number).map_or(&["502"][..], |(_, wanted)| wanted);
        assert!(wanted.contains(&status(&answer)), "{number}: {answer}");
        assert!(!answer.contains("poison"), "{number}: {answer}");
        for _ in 0..3 {
            let answer = ask("b.example.com", 0);
            assert!(answer.ends_with("honest"), "after {number}: {answer}");
        }
        // A connection that brings bytes that nobody asked for is used no more. Bytes that come
        // behind the next request for the hostile service itself would be its answer.
        wait("the hostile service has lost its connection", SOON, || {
            (open.load(Ordering::SeqCst) == 0).then_some(())
        });
    }
}

/// A connection that is counted as long as this value lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Reads the head of a request.
fn head(socket: &mut std::net::TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if socket.read(&mut byte).unwrap_or(0) == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

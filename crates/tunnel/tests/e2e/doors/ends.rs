//! The manners of connections: visitors that end their direction, that leave, that ask for HTTP/2
//! without TLS, that forget TLS, and that write addresses as no URI has them. On the byte path, by
//! the proxy, and over TLS.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use super::{Doors, certificate, connect, fetch, status, talk};
use crate::harness::{LONG, Origin, Scheme};

/// Reads the head of a request. `None`: the end.
fn head(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        if line.trim_end().is_empty() {
            return Some(lines);
        }
        lines.push(line.trim_end().to_owned());
    }
}

/// A server that answers each path in its way. It tells of each request, and how a connection ends
/// within an answer.
fn origin(got: Sender<String>, gone: Sender<String>) -> Origin {
    Origin::start(move |socket| {
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        while let Some(lines) = head(&mut reader) {
            let path = lines[0].split(' ').nth(1).unwrap().to_owned();
            let _ = got.send(format!("got {path}"));
            let start = match path.as_str() {
                "/slow" => {
                    thread::sleep(Duration::from_millis(1500));
                    let _ = (&socket).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                    continue;
                }
                "/never" => "",
                "/chunks" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
                "/length" => "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
                _ => {
                    // What reached this server.
                    let upgrade = lines.iter().any(|line| line.to_lowercase().contains("h2c"));
                    let body = format!("{path} {}", if upgrade { "h2c" } else { "plain" });
                    let length = body.len();
                    let _ = write!(
                        &socket,
                        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
                    );
                    continue;
                }
            };
            let _ = (&socket).write_all(start.as_bytes());
            // Much longer than the server takes to notice a visitor that left.
            let _ = socket.set_read_timeout(Some(Duration::from_secs(20)));
            let ended = reader.read(&mut [0]);
            let is_kept =
                matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
            let _ = gone.send(format!("{path} {}", if is_kept { "was kept" } else { "ended" }));
            return;
        }
    })
}

/// A name without options, one with options, and one over TLS.
const HOSTS: [&str; 3] = ["plain.example.com", "options.example.com", "ends.example.com"];

fn ended(port: u16, request: &str) -> String {
    let mut socket = connect(port);
    socket.write_all(request.as_bytes()).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

fn leave(socket: TcpStream) {
    drop(socket);
}

#[test]
fn connections_end_speak_and_are_read_alike_on_every_path() {
    let ((got, arrived), (gone, left)) = (channel(), channel());
    let origin = origin(got, gone);
    let doors = Doors::with(Scheme::TLS, "", ", certificates: [{ cert: one.crt, key: one.key }]");
    certificate(doors.setup.dir(), "one", "DNS:ends.example.com");
    let (http, tls) = (doors.http, doors.tls);
    let port = origin.port();
    let _running = doors.start(&[
        ("http://plain.example.com", port, ""),
        ("http://options.example.com", port, ", forwarded: true"),
        ("https://ends.example.com", port, ", forwarded: false"),
    ]);
    for host in &HOSTS[..2] {
        // A visitor that has ended its direction waits for its answer.
        for version in ["1.0", "1.1"] {
            let request = format!("GET /slow HTTP/{version}\r\nHost: {host}\r\n\r\n");
            let answer = ended(http, &request);
            assert_eq!(status(&answer), "200", "{host}: {answer}");
            assert!(answer.ends_with("\r\n\r\nok"), "{host}: {answer}");
            assert_eq!(answer.matches("HTTP/").count(), 1, "{host}: {answer}");
        }
        // One that has left is noticed.
        for path in ["/never", "/chunks", "/length"] {
            let mut socket = connect(http);
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            socket.write_all(request.as_bytes()).unwrap();
            let is_there = |got: String| got == format!("got {path}");
            while !is_there(arrived.recv_timeout(LONG).unwrap()) {}
            if path != "/never" {
                let mut reader = BufReader::new(&socket);
                head(&mut reader).unwrap();
                thread::sleep(Duration::from_millis(100));
                let _ = reader.fill_buf();
            }
            leave(socket);
            assert_eq!(left.recv_timeout(LONG).unwrap(), format!("{path} ended"), "{host}");
        }
        // Addresses as nginx takes them, and HTTP/2 that is not asked for at the target.
        for (path, escaped) in [("/a<b>`", "/a%3Cb%3E%60"), ("/\u{e4}", "/\u{e4}")] {
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let answer = talk(http, request.as_bytes());
            let is_same = answer.ends_with(&format!("{path} plain"));
            assert!(is_same || answer.ends_with(&format!("{escaped} plain")), "{host}: {answer}");
        }
        let h2c = format!(
            "GET /x HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade, HTTP2-Settings\r\n\
             Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
        );
        let after = format!("GET /y HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        for request in [h2c.clone() + &after, after.replace("close", "keep-alive") + &h2c + &after]
        {
            let answer = talk(http, request.as_bytes());
            assert!(answer.ends_with("/y plain") && !answer.contains("h2c"), "{host}: {answer}");
        }
    }
    let text = fetch(tls, &["--insecure", "--http1.1", "https://ends.example.com/a<b"]);
    assert!(text == "/a<b plain" || text == "/a%3Cb plain", "{text}");
    // TLS is forgotten.
    let answer = talk(tls, b"GET / HTTP/1.1\r\nHost: ends.example.com\r\n\r\n");
    assert_eq!(status(&answer), "400");
    assert!(answer.contains("https://"), "{answer}");
}

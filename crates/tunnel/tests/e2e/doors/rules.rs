//! A change of the rules reaches kept connections: each request is judged by the rules of its
//! moment, and so is a visitor that is held. The guesses of one source are bounded.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use testkit::stage::{Daemon, Running};
use testkit::wire::Entry;

use super::{Doors, connect};
use crate::harness::{Origin, SOON, Scheme, wait};
use crate::reload::outcome;

/// A web server that answers each request with its name.
pub(super) fn origin(name: &'static str) -> Origin {
    Origin::start(move |socket| {
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        while head(&mut reader).is_some() {
            if write!(&socket, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{name:4}").is_err() {
                return;
            }
        }
    })
}

/// The next head, or `None` at the end.
fn head(reader: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

/// The name of the origin in a body, or the status of a page.
fn said(body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body);
    let status = body.split_once("<h1>").map(|(_, rest)| rest[..3].to_owned());
    status.unwrap_or_else(|| body.trim().to_owned())
}

/// A kept connection.
enum Kept {
    Http1(BufReader<TcpStream>),
    /// HTTP/2, and the id of its next stream.
    Http2(TcpStream, u32),
}

impl Kept {
    fn http1(port: u16) -> Self {
        Self::Http1(BufReader::new(connect(port)))
    }

    fn http2(port: u16) -> Self {
        let mut socket = connect(port);
        socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
        Self::Http2(socket, 1)
    }

    /// Sends a request, and returns what came of it; "cut" at the end of the connection.
    fn ask(&mut self, host: &str, path: &str) -> String {
        let answer = match self {
            Self::Http1(reader) => ask_http1(reader, host, path),
            Self::Http2(socket, id) => {
                *id += 2;
                ask_http2(socket, *id - 2, host, path)
            }
        };
        answer.map_or_else(|| "cut".to_owned(), |body| said(&body))
    }
}

fn ask_http1(reader: &mut BufReader<TcpStream>, host: &str, path: &str) -> Option<Vec<u8>> {
    write!(reader.get_ref(), "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").ok()?;
    answer(reader)
}

/// The body of the next response.
fn answer(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let head = head(reader)?.to_lowercase();
    let (_, length) = head.split_once("content-length: ")?;
    let mut body = vec![0; length.lines().next()?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some(body)
}

fn ask_http2(socket: &mut TcpStream, id: u32, host: &str, path: &str) -> Option<Vec<u8>> {
    // GET and http from the static table (RFC 7541 appendix A); path and authority as literals.
    let mut block = vec![0x82, 0x86];
    for (name, value) in [(4, path), (1, host)] {
        block.extend([name, u8::try_from(value.len()).unwrap()]);
        block.extend(value.as_bytes());
    }
    let length = u8::try_from(block.len()).unwrap();
    let mut frame = vec![0, 0, length, 1, 5];
    frame.extend(id.to_be_bytes());
    frame.extend(block);
    socket.write_all(&frame).ok()?;
    let mut body = Vec::new();
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let of = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        socket.read_exact(&mut payload).ok()?;
        match kind {
            0 if of == id => body.extend(payload),
            // SETTINGS are acknowledged.
            4 if flags & 1 == 0 => socket.write_all(b"\0\0\0\x04\x01\0\0\0\0").ok()?,
            // RST_STREAM and GOAWAY.
            3 | 7 => return None,
            _ => {}
        }
        if kind <= 1 && of == id && flags & 1 == 1 {
            return Some(body);
        }
    }
}

fn reload(running: &Running, role: &str) {
    let (code, text, complaint) = outcome(running.reload(role));
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{text}");
}

/// Adds a client `next` to the server.
fn admit_next(running: &Running) {
    let entry = "clients:\n  - { name: next, token: Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u, \
                 allow: { http: [\"*\"], tls: [\"*\"] } }\n";
    running.edit_server(|text| text.replace("clients:\n", entry));
    reload(running, "server");
}

/// Starts the client `next` with one service.
fn start_next(running: &Running, public: &str, target: u16) -> Daemon {
    let next = running.start_another_client(|text| {
        let (text, _) = text.split_once("services:").unwrap();
        let is_own = |line: &&str| !line.starts_with("token:") && !line.starts_with("servers:");
        let text: Vec<_> = text.lines().filter(is_own).collect();
        format!(
            "servers: \"tcp://127.0.0.1:{}\"\n{}\ntoken: Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u\n\
             services:\n  - {{ name: next, target: \"tcp://127.0.0.1:{target}\", \
             public: {public} }}\n",
            running.server_port(),
            text.join("\n").replace("name: home", "name: next")
        )
    });
    next.wait_line(&["service next is published"], SOON);
    next
}

#[test]
fn each_request_of_a_kept_connection_is_judged_by_the_rules_of_its_moment() {
    let doors = Doors::new(Scheme::TCP);
    let http = doors.http;
    let (a, b) = (origin("a"), origin("b"));
    let more = ", headers: { set: { X-A: b } }";
    let (ours, theirs) = (a.port(), b.port());
    let running = doors.start(&[
        ("http://password.example", ours, ""),
        ("http://list.example", ours, ""),
        ("http://target.example", ours, ""),
        ("http://path.example", ours, ""),
        ("http://taken.example", ours, ""),
        ("http://proxied.example", ours, more),
        ("http://same.example", ours, ""),
        ("http://*.wild.example", ours, ""),
    ]);
    // What follows the change, on each kept connection.
    let table = [
        ("password.example", "/", "401"),
        ("list.example", "/", "403"),
        ("target.example", "/", "b"),
        ("path.example", "/b", "b"),
        ("path.example", "/c", "a"),
        ("taken.example", "/", "b"),
        ("proxied.example", "/", "401"),
        ("same.example", "/", "a"),
        ("x.wild.example", "/", "b"),
    ];
    let mut kept = Vec::new();
    for (host, path, after) in table {
        for mut one in [Kept::http1(http), Kept::http2(http)] {
            assert_eq!(one.ask(host, path), "a", "{host}");
            assert_eq!(one.ask(host, path), "a", "{host}, again");
            kept.push((one, host, path, after));
        }
    }
    // Begun before the change, and complete after it.
    let mut late = connect(http);
    late.write_all(b"GET / HTTP/1.1\r\nHost: password.example\r\n\r\n").unwrap();
    late.read_exact(&mut [0; 42]).unwrap();
    late.write_all(b"GET / HTTP/1.1\r\nHost: password.example\r\n").unwrap();
    admit_next(&running);
    running.edit_client(|text| {
        let with = |text: String, public: &str, keys: &str| {
            let public = format!("public: \"http://{public}\"");
            assert!(text.contains(&public), "{text}");
            text.replace(&public, &format!("{public}{keys}"))
        };
        let text = with(text, "password.example", ", basic_auth: \"ann:topsecret99\"");
        let text = with(text, "proxied.example", ", basic_auth: \"ann:topsecret99\"");
        let text = with(text, "list.example", ", allow_from: [\"192.0.2.0/24\"]");
        let text: String = text
            .lines()
            .filter(|line| !line.contains("taken.example"))
            .map(|line| {
                let turned = line.replace(&format!(":{ours}"), &format!(":{theirs}"));
                let line = if line.contains("target.example") { &turned } else { line };
                format!("{line}\n")
            })
            .collect();
        format!(
            "{text}  - {{ name: below, target: \"tcp://127.0.0.1:{theirs}\", \
             public: \"http://path.example\", path: /b }}\n"
        )
    });
    reload(&running, "client");
    let names = "[\"http://taken.example\", \"http://x.wild.example\"]";
    let _next = start_next(&running, names, theirs);
    for (one, host, path, after) in &mut kept {
        let what = match one {
            Kept::Http1(_) => "HTTP/1.1",
            Kept::Http2(..) => "HTTP/2",
        };
        assert_eq!(one.ask(host, path), *after, "{host} over {what}");
    }
    late.write_all(b"\r\n").unwrap();
    let mut answer = [0; 12];
    late.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"HTTP/1.1 401");
}

#[test]
fn a_held_visitor_is_judged_by_the_rules_of_the_moment() {
    let mut doors = Doors::new(Scheme::TCP);
    doors.setup = doors.setup.wired();
    let http = doors.http;
    let (a, b) = (origin("a"), origin("b"));
    let running = doors.start(&[("http://*.wild.example", a.port(), "")]);
    assert_eq!(Kept::http1(http).ask("x.wild.example", "/"), "a");
    admit_next(&running);
    running.wire().entry(Entry::Refused);
    running.wire().kill();
    wait("the link of the client is down", SOON, || {
        let status = running.status("server")?;
        let sessions = status["sessions"].as_array()?.clone();
        let links = sessions.iter().filter_map(|session| session["links"].as_array());
        links.flatten().all(|link| link["state"] != "up").then_some(())
    });
    let begin = Instant::now();
    let held = thread::spawn(move || Kept::http1(http).ask("x.wild.example", "/"));
    // The visitor is held; the exact name is published by another client meanwhile.
    thread::sleep(Duration::from_millis(100));
    let _next = start_next(&running, "\"http://x.wild.example\"", b.port());
    assert_eq!(held.join().unwrap(), "b", "after {:?}", begin.elapsed());
}

#[test]
fn guesses_of_one_source_are_bounded_over_all_connections() {
    let doors = Doors::new(Scheme::TCP);
    let http = doors.http;
    let a = origin("a");
    let running =
        doors.start(&[("http://a.example", a.port(), ", basic_auth: \"ann:topsecret99\"")]);
    let ask = move |socket: &TcpStream, basic: &str| {
        let request =
            format!("GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: Basic {basic}\r\n\r\n");
        (&*socket).write_all(request.as_bytes()).unwrap();
    };
    let right = "YW5uOnRvcHNlY3JldDk5";
    let mut admitted = BufReader::new(connect(http));
    ask(admitted.get_ref(), right);
    assert_eq!(answer(&mut admitted).as_deref(), Some(&b"a   "[..]));
    let guessers: Vec<_> = (0..100).map(|_| connect(http)).collect();
    for socket in &guessers {
        ask(socket, "YW5uOmd1ZXNz");
    }
    running.server.wait_line(&["service s0 of client home", "127.0.0.1", "wrong passwords"], SOON);
    // A person behind the same address, on a connection that is admitted and on a new one.
    for mut person in [admitted, BufReader::new(connect(http))] {
        ask(person.get_ref(), right);
        assert_eq!(answer(&mut person).as_deref(), Some(&b"a   "[..]));
    }
    // All 100 would be answered at once without the brake. It answers 4 in the first 1.5 s, and one
    // each 1.6 s after that; after 30 s it refuses the others.
    let answered = guessers.iter().filter(|socket| {
        socket.set_nonblocking(true).unwrap();
        match (&**socket).read(&mut [0]) {
            Ok(read) => read <= 1,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    });
    let answered = answered.count();
    assert!((2..=40).contains(&answered), "{answered} guesses were answered");
    let status = super::status::said(&running, &["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let service = &status["sessions"][0]["services"][0];
    assert!(service["wrong_passwords"].as_u64() >= Some(2), "{service}");
}

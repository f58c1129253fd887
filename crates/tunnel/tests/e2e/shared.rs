//! Shared services: several clients, or several processes of one client, serve the visitors of one
//! address.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use testkit::stage::{Daemon, Running};

use crate::announced::client_hello;
use crate::doors::{certificate, curl};
use crate::enrol::{code, redeem};
use crate::harness::{
    LONG, Origin, SOON, Scheme, Setup, connect, free_port, run, side_by_side, try_connect, tunnel,
    wait, wait_listening,
};
use crate::reload::outcome;

const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// An origin that greets each visitor with its own letter, and then returns what it gets.
fn lettered(letter: u8) -> Origin {
    Origin::start(move |mut stream: TcpStream| {
        if stream.write_all(&[letter]).is_ok() {
            drop(std::io::copy(&mut &stream, &mut &stream));
        }
    })
}

/// A setup whose clients `home` and `office` may share these addresses: entries of `allow`.
fn setup(scheme: Scheme, rights: &str) -> Setup {
    let mut setup = Setup::new(scheme);
    match rights.strip_prefix("tcp: ") {
        Some(port) => setup.allow.push(port.parse().unwrap()),
        None => setup.more_rights.push(rights.to_owned()),
    }
    setup.more_rights.push("shared: true".to_owned());
    write!(
        setup.server_lines,
        "  - name: office\n    token: {TOKEN}\n    allow: {{ {rights}, shared: true }}\nworkers: 2\n"
    )
    .unwrap();
    setup
}

/// A service that two clients share, and its two clients: `home` with the target `a`, and beside it
/// a process of `name` with the target `b`.
fn start(
    mut setup: Setup,
    (public, name, keys): (&str, &str, &str),
    [a, b]: [String; 2],
) -> (Running, Daemon) {
    writeln!(
        setup.client_lines,
        "services:\n  - {{ name: web, public: \"{public}\", target: \"{a}\", shared: true{keys} }}"
    )
    .unwrap();
    let mut running = setup.start();
    running.client().wait_line(&["service web is published at"], SOON);
    let other = running.start_another_client(|text| {
        let text = text.replace(&a, &b);
        match name {
            "home" => text,
            other => {
                text.replace("name: home", &format!("name: {other}")).replace(token(&text), TOKEN)
            }
        }
    });
    other.wait_line(&["service web is published at"], SOON);
    // A worker without a link to a client leads visitors to it less often.
    wait("all links of both clients", LONG, || {
        let status = running.status("server")?;
        let sessions = status["sessions"].as_array()?.iter();
        let links = sessions.filter_map(|one| one["links"].as_array()).flatten();
        (links.filter(|link| link["state"] == "up").count() == 4).then_some(())
    });
    (running, other)
}

/// The token in the file of a client.
fn token(text: &str) -> &str {
    let line = text.lines().find_map(|line| line.strip_prefix("token: ")).unwrap();
    line.trim_matches('"')
}

fn tcp(origin: &Origin) -> String {
    format!("tcp://127.0.0.1:{}", origin.port())
}

/// The letter that a visitor of this port gets within `patience`.
fn letter(port: u16, patience: Duration) -> Option<char> {
    let (mut visitor, mut letter) = (try_connect(port).ok()?, [0]);
    visitor.set_read_timeout(Some(patience)).unwrap();
    visitor.read_exact(&mut letter).ok()?;
    Some(letter[0].into())
}

/// How many of the visitors got which letter.
fn counts(port: u16, visitors: usize) -> BTreeMap<Option<char>, usize> {
    counts_within(port, visitors, LONG)
}

fn counts_within(port: u16, visitors: usize, patience: Duration) -> BTreeMap<Option<char>, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..visitors {
        *counts.entry(letter(port, patience)).or_default() += 1;
    }
    counts
}

#[test]
fn clients_share_a_port_and_a_client_that_has_died_gets_no_visitor() {
    side_by_side(&[Scheme::TLS, Scheme::QUIC], |scheme| {
        for name in ["home", "office"] {
            let (a, b, port) = (lettered(b'a'), lettered(b'b'), free_port());
            let setup = setup(scheme, &format!("tcp: {port}"));
            let service = (format!("tcp://:{port}"), name);
            let (running, mut other) =
                start(setup, (&service.0, service.1, ""), [tcp(&a), tcp(&b)]);
            wait_listening(port, SOON);
            let both = |counts: BTreeMap<Option<char>, usize>| {
                counts.keys().copied().eq([Some('a'), Some('b')]).then_some(())
            };
            let counted = counts(port, 20);
            assert_eq!(counted, [(Some('a'), 10), (Some('b'), 10)].into(), "{name}");
            let mut held = connect(port);
            held.read_exact(&mut [0]).unwrap();
            // Both stand in the status, each with its own figures.
            let status = running.status("server").unwrap();
            let sessions = status["sessions"].as_array().unwrap();
            let served = sessions.iter().filter(|one| one["services"][0]["name"] == "web");
            let totals: Vec<_> =
                served.map(|one| one["services"][0]["streams_total"].as_u64().unwrap()).collect();
            assert_eq!((totals.len(), totals.iter().sum::<u64>()), (2, 21), "{status}");
            other.kill();
            // The link of a killed process ends at once, or is noticed to be dead. A visitor that
            // it has got meanwhile waits for its return, so nobody here waits for the visitor.
            let patience = Duration::from_millis(500);
            wait("only the client that lives gets visitors", LONG, || {
                (counts_within(port, 4, patience) == [(Some('a'), 4)].into()).then_some(())
            });
            let again = running.start_another_client(|text| {
                let text = text.replace(&tcp(&a), &tcp(&b));
                match name {
                    "home" => text,
                    name => text
                        .replace("name: home", &format!("name: {name}"))
                        .replace(token(&text), TOKEN),
                }
            });
            again.wait_line(&["service web is published at"], SOON);
            wait("both serve again", LONG, || both(counts(port, 4)));
        }
    });
}

/// The server keeps what a killed client had for longer than any test waits.
const PATIENT: &str = "resume_timeout: 10m\n";

/// An origin that takes visitors and what they send, and answers nothing. `seen` counts the
/// visitors of whom it has `least` bytes.
fn mute(least: usize) -> (Origin, Arc<AtomicUsize>) {
    let seen = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&seen);
    let origin = Origin::start(move |mut stream: TcpStream| {
        let mut first = vec![0; least];
        if stream.read_exact(&mut first).is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
            while stream.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        }
    });
    (origin, seen)
}

#[test]
fn visitors_that_wait_for_the_first_byte_of_a_killed_client_go_to_the_next_client() {
    side_by_side(&[Scheme::TLS, Scheme::QUIC], |scheme| {
        let (a, (b, seen), port) = (lettered(b'a'), mute(0), free_port());
        let mut setup = setup(scheme, &format!("tcp: {port}"));
        setup.server_lines += PATIENT;
        setup.client_lines += PATIENT;
        let public = format!("tcp://:{port}");
        let (_running, mut other) = start(setup, (&public, "office", ""), [tcp(&a), tcp(&b)]);
        wait_listening(port, SOON);
        let mut visitors: Vec<_> = (0..8).map(|_| connect(port)).collect();
        wait("half of the visitors at the mute target", LONG, || {
            (seen.load(Ordering::Relaxed) >= 4).then_some(())
        });
        other.kill();
        for visitor in &mut visitors {
            let mut letter = [0];
            visitor.set_read_timeout(Some(LONG)).unwrap();
            visitor.read_exact(&mut letter).unwrap();
            assert_eq!(letter, *b"a");
        }
    });
}

#[test]
fn requests_without_effect_at_a_killed_client_are_done_by_the_next_client() {
    // By bytes, and by the proxy, which the header asks for.
    for keys in ["", ", headers: { set: { X-A: b } }"] {
        let good = Origin::start(|mut stream: TcpStream| {
            let mut request = [0; 1024];
            while stream.read(&mut request).is_ok_and(|read| read > 0) {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
            }
        });
        let ((bad, seen), door) = (mute(1), free_port());
        let mut setup = setup(Scheme::TLS, "http: a.example");
        setup.server_lines += PATIENT;
        setup.client_lines += PATIENT;
        writeln!(setup.server_lines, "http: {{ listen: \"127.0.0.1:{door}\" }}").unwrap();
        let service = ("http://a.example", "office", keys);
        let (_running, mut other) = start(setup, service, [tcp(&good), tcp(&bad)]);
        let mut visitors: Vec<_> = (0..8)
            .map(|_| {
                let mut visitor = connect(door);
                visitor.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").unwrap();
                visitor
            })
            .collect();
        wait("half of the requests at the mute target", LONG, || {
            (seen.load(Ordering::Relaxed) >= 4).then_some(())
        });
        other.kill();
        for visitor in &mut visitors {
            let mut status = [0; 12];
            visitor.set_read_timeout(Some(LONG)).unwrap();
            visitor.read_exact(&mut status).unwrap();
            assert_eq!(&status, b"HTTP/1.1 200", "{keys}");
        }
    }
}

#[test]
fn a_service_that_is_not_shared_falls_back_to_the_other_process_that_has_it() {
    let (a, b, [port, own]) = (lettered(b'a'), lettered(b'b'), [free_port(), free_port()]);
    let mut setup = setup(Scheme::TLS, &format!("tcp: {port}"));
    setup.server_lines += PATIENT;
    setup.client_lines += PATIENT;
    setup.allow.push(own);
    let target = tcp(&a);
    writeln!(
        setup.client_lines,
        "services:\n  - {{ name: web, public: \"tcp://:{port}\", target: \"{target}\", shared: true \
         }}\n  - {{ name: own, public: \"tcp://:{own}\", target: \"{target}\" }}"
    )
    .unwrap();
    let mut running = setup.start();
    running.client().wait_line(&["service own is published at"], SOON);
    let another = || {
        let other = running.start_another_client(|text| text.replace(&target, &tcp(&b)));
        other.wait_line(&["service own is published at"], SOON);
        other
    };
    let serves = |whose: char| {
        let what = format!("{whose} serves the port that is not shared");
        // A visitor that came to the process that stops may wait for it.
        let soon = Duration::from_secs(2);
        wait(&what, LONG, || (letter(own, soon) == Some(whose)).then_some(()));
    };
    serves('a');
    let mut other = another();
    serves('b');
    other.kill();
    // Also a visitor that came before the loss of the link was seen.
    assert_eq!(letter(own, LONG), Some('a'));
    let mut other = another();
    serves('b');
    other.signal(Signal::TERM);
    serves('a');
    other.wait_end(LONG);
    assert_eq!(letter(own, LONG), Some('a'));
    // Visitors whose streams wait with the process that is killed.
    let (mute, seen) = mute(0);
    let mut other = running.start_another_client(|text| text.replace(&target, &tcp(&mute)));
    let mut visitors = Vec::new();
    wait("visitors at the mute target", LONG, || {
        visitors.push(connect(own));
        (seen.load(Ordering::Relaxed) >= 4).then_some(())
    });
    other.kill();
    for visitor in &mut visitors {
        let mut letter = [0];
        visitor.set_read_timeout(Some(LONG)).unwrap();
        visitor.read_exact(&mut letter).unwrap();
        assert_eq!(letter, *b"a");
    }
}

#[test]
fn new_visitors_avoid_a_silent_client_before_its_link_is_dead() {
    side_by_side(&[Scheme::TLS, Scheme::QUIC], |scheme| {
        let (a, b, port) = (lettered(b'a'), lettered(b'b'), free_port());
        let setup = setup(scheme, &format!("tcp: {port}"));
        let public = format!("tcp://:{port}");
        let (running, other) = start(setup, (&public, "office", ""), [tcp(&a), tcp(&b)]);
        wait_listening(port, SOON);
        assert_eq!(counts(port, 4).len(), 2);
        other.signal(Signal::STOP);
        // Visitors of the first second: the client owes an answer from now on.
        let mut early: Vec<_> = (0..4).map(|_| connect(port)).collect();
        wait("new visitors get the other client", LONG, || {
            let counted = counts_within(port, 6, Duration::from_millis(500));
            (counted == [(Some('a'), 6)].into()).then_some(())
        });
        let status = running.status("server").unwrap();
        let sessions = status["sessions"].as_array().unwrap();
        let links = |session: &serde_json::Value| session["links"].as_array().unwrap().clone();
        let states: Vec<_> =
            sessions.iter().flat_map(links).map(|one| one["state"].clone()).collect();
        assert!(states.len() >= 2 && states.iter().all(|state| state == "up"), "{status}");
        // The visitors that the silent client has got were waiting for its return.
        other.signal(Signal::CONT);
        for visitor in &mut early {
            visitor.set_read_timeout(Some(LONG)).unwrap();
            visitor.read_exact(&mut [0]).unwrap();
        }
        wait("both serve again", LONG, || (counts(port, 4).len() == 2).then_some(()));
    });
}

#[test]
fn a_drained_service_leaves_its_visitors_to_the_other_client() {
    let (a, b, port) = (lettered(b'a'), lettered(b'b'), free_port());
    let setup = setup(Scheme::TLS, &format!("tcp: {port}"));
    let service = format!("tcp://:{port}");
    let (running, _other) = start(setup, (&service, "office", ""), [tcp(&a), tcp(&b)]);
    wait_listening(port, SOON);
    let drained = run(tunnel(&["drain", "web", "--control"]).arg(running.file("client.sock")));
    let text = String::from_utf8_lossy(&drained.stdout).into_owned();
    assert!(text.contains("service web refuses new visitors"), "{drained:?}");
    assert_eq!(counts(port, 10), [(Some('b'), 10)].into());
}

#[test]
fn a_target_that_refuses_costs_no_visitor_while_another_client_serves() {
    let (a, port) = (lettered(b'a'), free_port());
    let nobody = format!("tcp://127.0.0.1:{}", free_port());
    let setup = setup(Scheme::TLS, &format!("tcp: {port}"));
    let public = format!("tcp://:{port}");
    let (_running, _other) = start(setup, (&public, "office", ""), [tcp(&a), nobody]);
    wait_listening(port, SOON);
    assert_eq!(counts(port, 20), [(Some('a'), 20)].into());
}

/// An origin of HTTP that answers each request, and the bodies that it has got.
fn bodies() -> (Origin, Arc<Mutex<Vec<String>>>) {
    let bodies = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&bodies);
    let origin = Origin::start(move |mut stream: TcpStream| {
        let mut request = Vec::new();
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() {
            request.push(byte[0]);
            let Some(head) = request.windows(4).position(|end| end == b"\r\n\r\n") else {
                continue;
            };
            let body = &request[head + 4..];
            if body.len() == 6 {
                seen.lock().unwrap().push(String::from_utf8_lossy(body).into_owned());
                request.clear();
                if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                    break;
                }
            }
        }
    });
    (origin, bodies)
}

/// The status of a POST with this body over a connection of its own.
fn post(port: u16, host: &str, body: &str) -> String {
    let mut visitor = connect(port);
    visitor.set_read_timeout(Some(LONG)).unwrap();
    write!(visitor, "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 6\r\n\r\n{body}").unwrap();
    let mut answer = [0; 12];
    match visitor.read_exact(&mut answer) {
        Ok(()) => String::from_utf8_lossy(&answer[9..]).into_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_request_at_a_target_that_refuses_is_done_once_by_the_next_client() {
    // By bytes, and by the proxy, which the header asks for.
    for keys in ["", ", headers: { set: { X-A: b } }"] {
        let ((origin, bodies), door) = (bodies(), free_port());
        let nobody = format!("tcp://127.0.0.1:{}", free_port());
        let mut setup = setup(Scheme::TLS, "http: a.example");
        writeln!(setup.server_lines, "http: {{ listen: \"127.0.0.1:{door}\" }}").unwrap();
        let service = ("http://a.example", "office", keys);
        let (running, _other) = start(setup, service, [tcp(&origin), nobody]);
        let all: Vec<_> = (0..8).map(|n| format!("post-{n}")).collect();
        for body in &all {
            assert_eq!(post(door, "a.example", body), "200", "{keys} {body}");
        }
        assert_eq!(*bodies.lock().unwrap(), all, "{keys}");
        // The refusal was seen: one of the clients was asked in vain.
        let status = running.status("server").unwrap();
        assert!(status.to_string().contains("\"refused\""), "{status}");
    }
}

#[test]
fn a_request_whose_bytes_have_reached_a_target_is_not_done_again() {
    let ((good, bodies), door) = (bodies(), free_port());
    // It takes a request and breaks the connection without an answer.
    let bad = Origin::start(|mut stream: TcpStream| {
        let _ = stream.read(&mut [0; 1024]);
    });
    let mut setup = setup(Scheme::TLS, "http: a.example");
    writeln!(setup.server_lines, "http: {{ listen: \"127.0.0.1:{door}\" }}").unwrap();
    let service = ("http://a.example", "office", "");
    let (_running, _other) = start(setup, service, [tcp(&good), tcp(&bad)]);
    let answers: Vec<_> =
        (0..8).map(|n| (n, post(door, "a.example", &format!("post-{n}")))).collect();
    let done = answers.iter().filter(|(_, status)| status == "200");
    let done: Vec<_> = done.map(|(n, _)| format!("post-{n}")).collect();
    assert!(done.len() < answers.len(), "{answers:?}");
    assert_eq!(*bodies.lock().unwrap(), done, "no other request was done");
}

/// The port of a server at which clients share `https://a.example`, whose TLS ends there.
fn secure() -> (Setup, u16) {
    let [http, door] = [(); 2].map(|()| free_port());
    let mut setup = setup(Scheme::TLS, "http: a.example");
    certificate(setup.dir(), "one", "DNS:a.example");
    writeln!(
        setup.server_lines,
        "http: {{ listen: \"127.0.0.1:{http}\" }}\ntls_routes: {{ listen: \"127.0.0.1:{door}\", \
         certificates: [{{ cert: one.crt, key: one.key }}] }}"
    )
    .unwrap();
    (setup, door)
}

/// The status of a POST with this body over TLS, in this version of HTTP.
fn post_secure(door: u16, version: &str, body: &str) -> String {
    let url = "https://a.example/";
    let args = [
        "--insecure",
        version,
        "--data",
        body,
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code}",
    ];
    String::from_utf8(curl(door, &[&args[..], &[url]].concat()).stdout).unwrap()
}

const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];

#[test]
fn a_request_over_tls_at_a_target_that_refuses_is_done_once_by_the_next_client() {
    let ((origin, bodies), (setup, door)) = (bodies(), secure());
    let nobody = format!("tcp://127.0.0.1:{}", free_port());
    let service = ("https://a.example", "office", ", forwarded: false");
    let (running, _other) = start(setup, service, [tcp(&origin), nobody]);
    let all: Vec<_> = (0..8).map(|n| format!("post-{n}")).collect();
    for (body, version) in all.iter().zip(VERSIONS.iter().cycle()) {
        assert_eq!(post_secure(door, version, body), "200", "{version} {body}");
    }
    assert_eq!(*bodies.lock().unwrap(), all);
    // The refusal was seen: one of the clients was asked in vain.
    let status = running.status("server").unwrap();
    assert!(status.to_string().contains("\"refused\""), "{status}");
}

#[test]
fn a_request_over_tls_whose_bytes_have_reached_a_target_is_not_done_again() {
    let ((good, bodies), (setup, door)) = (bodies(), secure());
    // It takes a request and breaks the connection without an answer.
    let bad = Origin::start(|mut stream: TcpStream| {
        let _ = stream.read(&mut [0; 1024]);
    });
    let service = ("https://a.example", "office", ", forwarded: false");
    let (_running, _other) = start(setup, service, [tcp(&good), tcp(&bad)]);
    let posts = (0..8).zip(VERSIONS.iter().cycle());
    let answers: Vec<_> =
        posts.map(|(n, version)| (n, post_secure(door, version, &format!("post-{n}")))).collect();
    let done = answers.iter().filter(|(_, status)| status == "200");
    let done: Vec<_> = done.map(|(n, _)| format!("post-{n}")).collect();
    assert!(!done.is_empty() && done.len() < answers.len(), "{answers:?}");
    assert_eq!(*bodies.lock().unwrap(), done, "no other request was done");
}

/// A target of TLS visitors, and the first records that it has got. It answers a record with a
/// byte, or breaks the connection.
fn records(answers: bool) -> (Origin, Arc<Mutex<Vec<Vec<u8>>>>) {
    let records = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let seen = Arc::clone(&records);
    let origin = Origin::start(move |mut stream: TcpStream| {
        let mut record = vec![0; 5];
        if stream.read_exact(&mut record).is_err() {
            return;
        }
        record.resize(5 + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
        if stream.read_exact(&mut record[5..]).is_ok() {
            seen.lock().unwrap().push(record);
            if answers && stream.write_all(b"a").is_ok() {
                let _ = stream.read(&mut [0]);
            }
        }
    });
    (origin, records)
}

/// Visitors of a shared `tls://` name, whose TLS nobody but the target ends: which of their first
/// records were answered.
fn greet(door: u16) -> [Vec<Vec<u8>>; 2] {
    (0..8)
        .map(|n| client_hello("a.example", n))
        .partition::<Vec<_>, _>(|hello| {
            let mut visitor = connect(door);
            visitor.set_read_timeout(Some(LONG)).unwrap();
            visitor.write_all(hello).unwrap();
            visitor.read_exact(&mut [0]).is_ok()
        })
        .into()
}

/// A server at which clients share `tls://a.example`, and the port of its door.
fn passing() -> (Setup, u16) {
    let (mut setup, door) = (setup(Scheme::TLS, "tls: a.example"), free_port());
    writeln!(setup.server_lines, "tls_routes: {{ listen: \"127.0.0.1:{door}\" }}").unwrap();
    (setup, door)
}

#[test]
fn a_tls_visitor_at_a_target_that_refuses_goes_to_the_next_client_with_its_bytes() {
    let ((origin, seen), (setup, door)) = (records(true), passing());
    let nobody = format!("tcp://127.0.0.1:{}", free_port());
    let service = ("tls://a.example", "office", "");
    let (running, _other) = start(setup, service, [tcp(&origin), nobody]);
    let [answered, lost] = greet(door);
    assert_eq!((answered.len(), lost.len()), (8, 0));
    assert_eq!(*seen.lock().unwrap(), answered);
    let status = running.status("server").unwrap();
    assert!(status.to_string().contains("\"refused\""), "{status}");
}

#[test]
fn a_tls_visitor_whose_bytes_have_reached_a_target_goes_nowhere_else() {
    let ((good, seen), (bad, broken), (setup, door)) = (records(true), records(false), passing());
    let service = ("tls://a.example", "office", "");
    let (_running, _other) = start(setup, service, [tcp(&good), tcp(&bad)]);
    let [answered, lost] = greet(door);
    assert!(!answered.is_empty() && !lost.is_empty(), "{} {}", answered.len(), lost.len());
    assert_eq!(*seen.lock().unwrap(), answered, "no other visitor came");
    assert_eq!(*broken.lock().unwrap(), lost);
}

#[test]
fn an_http_name_is_shared_by_request_and_a_client_on_hold_gets_none() {
    let page = |letter: &'static str| {
        Origin::start(move |mut stream: TcpStream| {
            let mut head = Vec::new();
            while stream.read_exact(&mut [0; 1]).is_ok() {
                head.push(0);
                // The head of the request below has this many bytes at least.
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{letter}");
                if head.len() == REQUEST.len() {
                    head.clear();
                    if stream.write_all(answer.as_bytes()).is_err() {
                        break;
                    }
                }
            }
        })
    };
    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let (a, b, door) = (page("a"), page("b"), free_port());
    let mut setup = setup(Scheme::TLS, "http: a.example");
    writeln!(setup.server_lines, "http: {{ listen: \"127.0.0.1:{door}\" }}").unwrap();
    let (running, _other) = start(setup, ("http://a.example", "office", ""), [tcp(&a), tcp(&b)]);
    let ask = || -> String {
        let mut visitor = connect(door);
        visitor.write_all(REQUEST.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") && visitor.read_exact(&mut byte).is_ok() {
            answer.push(byte[0]);
        }
        let _ = visitor.read_exact(&mut byte);
        let status = String::from_utf8_lossy(&answer[9..12]).into_owned();
        format!("{status} {}", char::from(byte[0]))
    };
    let answers = |count: usize| {
        let mut answers = BTreeMap::new();
        (0..count).for_each(|_| *answers.entry(ask()).or_default() += 1);
        answers
    };
    assert_eq!(answers(10), [("200 a".to_owned(), 5), ("200 b".to_owned(), 5)].into());
    let hold = |more: &[&str]| {
        let socket = running.file("server.sock");
        let mut command = tunnel(&["clients", "hold", "office"]);
        let done = run(command.args(more).arg("--control").arg(socket));
        assert!(done.status.success(), "{done:?}");
    };
    hold(&[]);
    assert_eq!(answers(6), [("200 a".to_owned(), 6)].into());
    hold(&["--off"]);
    assert_eq!(answers(6).len(), 2);
}

#[test]
fn peers_of_a_udp_port_are_spread_over_the_clients_that_live() {
    let echo = |letter: u8| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        thread::spawn(move || {
            while let Ok((_, from)) = socket.recv_from(&mut [0; 64]) {
                let _ = socket.send_to(&[letter], from);
            }
        });
        format!("udp://127.0.0.1:{port}")
    };
    let port = free_port();
    let mut setup = setup(Scheme::TLS, &format!("udp: {port}"));
    setup.server_lines += PATIENT;
    setup.client_lines += PATIENT;
    let public = format!("udp://:{port}");
    let (_running, mut other) = start(setup, (&public, "office", ""), [echo(b'a'), echo(b'b')]);
    let answer = |peer: &UdpSocket| {
        peer.send_to(b"?", ("127.0.0.1", port)).unwrap();
        let mut letter = [0];
        peer.recv(&mut letter).ok().map(|_| char::from(letter[0]))
    };
    let ask = || {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let letter = wait("an answer by datagram", LONG, || answer(&peer));
        (peer, letter)
    };
    let peers: Vec<_> = (0..20).map(|_| ask()).collect();
    let letters: BTreeSet<_> = peers.iter().map(|(_, letter)| *letter).collect();
    assert_eq!(letters, ['a', 'b'].into());
    // The flows of a client that is killed go to the other client.
    other.kill();
    for (peer, _) in &peers {
        wait("an answer of the client that lives", LONG, || {
            (answer(peer) == Some('a')).then_some(())
        });
    }
}

#[test]
fn visitors_of_one_address_stay_with_one_client() {
    let (a, b, port) = (lettered(b'a'), lettered(b'b'), free_port());
    let setup = setup(Scheme::TLS, &format!("tcp: {port}"));
    let service = (format!("tcp://:{port}"), ", balance: source_hash");
    let (_running, _other) = start(setup, (&service.0, "office", service.1), [tcp(&a), tcp(&b)]);
    wait_listening(port, SOON);
    assert_eq!(counts(port, 12).len(), 1);
}

#[test]
fn sharing_needs_the_right_and_the_reason_is_told() {
    let (a, port) = (lettered(b'a'), free_port());
    let mut setup = Setup::new(Scheme::TLS);
    setup.allow.push(port);
    writeln!(
        setup.client_lines,
        "services:\n  - {{ name: web, public: \"tcp://:{port}\", target: \"{}\", shared: true }}",
        tcp(&a)
    )
    .unwrap();
    let mut running = setup.start();
    let words =
        ["sharing is not allowed to client `home`", "run there: tunnel allow home --shared"];
    running.client().wait_line(&words, SOON);
    let order = |verb: &str| {
        let mut command = tunnel(&[verb, "home", "--shared", "--control"]);
        outcome(run(command.arg(running.file("server.sock"))))
    };
    let shows = |text: &str| {
        let mut command = tunnel(&["clients", "show", "home", "--control"]);
        let (_, said, complaint) = outcome(run(command.arg(running.file("server.sock"))));
        assert!(said.contains(&format!("shared        {text}\n")), "{said}{complaint}");
    };
    // The right is given and taken by a command, and takes effect at once each time.
    for _ in 0..2 {
        shows("denied");
        let (exit, said, complaint) = order("allow");
        assert_eq!((exit, complaint.as_str()), (Some(0), ""));
        assert!(said.ends_with(" and may share its addresses with other clients\n"), "{said}");
        wait_listening(port, SOON);
        assert_eq!(letter(port, LONG), Some('a'));
        shows("allowed");
        let (exit, said, complaint) = order("deny");
        assert_eq!((exit, complaint.as_str()), (Some(0), ""));
        assert!(!said.contains("share"), "{said}");
        wait("the end of the service", SOON, || try_connect(port).err());
    }
    let (exit, _, complaint) = order("deny");
    assert_eq!(exit, Some(2));
    assert!(complaint.contains("--shared: client home has no right to share"), "{complaint}");
    assert_eq!(outcome(running.reload("server")).1, "nothing to apply\n");
}

#[test]
fn a_code_may_give_the_right_to_share() {
    let running = Setup::new(Scheme::TLS).start();
    for (name, args, is_allowed) in [("pod", &["--allow-shared"][..], true), ("box", &[], false)] {
        let dir = TempDir::new().unwrap();
        let code = code(&running, &[&[name], args].concat());
        let client = Daemon::start(name, dir.path(), &mut redeem(dir.path(), &code, &[]));
        client.wait_line(&[&format!("client `{name}` is enrolled")], SOON);
        let mut command = tunnel(&["clients", "show", name, "--json", "--control"]);
        let (_, said, complaint) = outcome(run(command.arg(running.file("server.sock"))));
        let shown: serde_json::Value = serde_json::from_str(&said).expect(&complaint);
        assert_eq!(shown["rights"]["shared"], is_allowed, "{said}");
    }
}

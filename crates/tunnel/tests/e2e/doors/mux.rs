//! One port for carriers, TLS by name, HTTP by name and a default target.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use super::origin::Web;
use super::{Doors, certificate, connect, curl, fetch, status, talk};
use crate::harness::{LONG, Nginx, Origin, SOON, Scheme, free_port, start_sshd, wait};

/// A server whose `mux` port has these keys, beside a listener for the client of the setup.
fn with_mux(keys: &str) -> (Doors, u16) {
    let (mut doors, mux) = (
        Doors::with(Scheme::TLS, "", ", certificates: [{ cert: one.crt, key: one.key }]"),
        free_port(),
    );
    certificate(doors.setup.dir(), "one", "DNS:ends.example.com");
    doors.setup.more_listen.push(format!("{{ url: \"mux://127.0.0.1:{mux}/tunnel\"{keys} }}"));
    (doors, mux)
}

#[test]
fn every_kind_of_connection_finds_its_way_at_one_port() {
    let sshd = tempfile::tempdir().unwrap();
    let (ssh, _daemon, _) = start_sshd(sshd.path());
    let (doors, mux) = with_mux(&format!(", default: \"tcp://127.0.0.1:{ssh}\", silence: 200ms"));
    let dir = doors.setup.dir().to_owned();
    let web = Web::start(&dir, "web");
    let inner = free_port();
    certificate(&dir, "inner", "DNS:inner.example.com");
    let text = dir.display();
    let _nginx = Nginx::start(
        &dir,
        &format!(
            "listen 127.0.0.1:{inner} ssl; ssl_certificate {text}/inner.crt;\n\
             ssl_certificate_key {text}/inner.key; location = /who {{ return 200 passed; }}"
        ),
    );
    let running = doors.start(&[
        ("http://a.example.com", web.port, ""),
        ("https://ends.example.com", web.port, ""),
        ("tls://inner.example.com", inner, ""),
    ]);
    assert!(fetch(mux, &["http://a.example.com/"]).contains("\"name\": \"web\""));
    let h2 = fetch(mux, &["--http2-prior-knowledge", "http://a.example.com/"]);
    assert!(h2.contains("\"name\": \"web\""));
    assert!(fetch(mux, &["--insecure", "https://ends.example.com/"]).contains("\"name\": \"web\""));
    assert_eq!(fetch(mux, &["--insecure", "https://inner.example.com/who"]), "passed");
    // The visitor is silent, and the default target speaks first.
    let mut line = String::new();
    BufReader::new(connect(mux)).read_line(&mut line).unwrap();
    assert!(line.starts_with("SSH-2.0-"), "{line}");
    // Other bytes go to the default target at once.
    let mut socket = connect(mux);
    socket.write_all(b"SSH-2.0-test\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    assert!(line.starts_with("SSH-2.0-"), "{line}");
    // Carriers of every transport over TCP.
    let pin = running.server.wait_line(&["sha256:"], SOON);
    let pin = pin.split("pin=").nth(1).unwrap().trim().to_owned();
    for (scheme, path) in [("tls", ""), ("wss", "/tunnel"), ("ws", "/tunnel")] {
        let another = running.start_another_client(|text| {
            let (_, rest) = text.split_once("name: home").unwrap();
            let (rest, _) = rest.split_once("services:").unwrap();
            let rest = rest.lines().filter(|line| !line.starts_with("tls:")).collect::<Vec<_>>();
            let tls =
                if scheme == "ws" { String::new() } else { format!("tls: {{ pin: \"{pin}\" }}\n") };
            let mut file = String::new();
            writeln!(file, "servers: [\"{scheme}://127.0.0.1:{mux}{path}\"]\nname: home").unwrap();
            file + &rest.join("\n") + "\n" + &tls
        });
        another.wait_line(&[&format!("is connected to {scheme}://127.0.0.1:{mux}")], SOON);
        drop(another);
    }
    let shown = running.status("server").unwrap();
    let listen = shown["listen"].as_array().unwrap();
    assert!(listen.iter().any(|at| at == &format!("mux://127.0.0.1:{mux}/tunnel")), "{shown}");
}

/// A first packet that is lost once comes after 1 s. The default target is dialled before.
#[test]
fn a_late_visitor_is_served_by_its_name_until_the_default_target_speaks() {
    let (dialled, dials) = channel();
    let silent = Origin::start(move |mut socket| {
        let _ = dialled.send(());
        let mut byte = [0];
        while socket.read(&mut byte).unwrap_or(0) == 1 {
            let _ = socket.write_all(&byte);
        }
    });
    let port = silent.port();
    let (doors, mux) = with_mux(&format!(", default: \"tcp://127.0.0.1:{port}\", silence: 50ms"));
    let web = Web::start(doors.setup.dir(), "web");
    let running = doors.start(&[
        ("http://a.example.com", web.port, ""),
        ("https://ends.example.com", web.port, ""),
    ]);
    // The default target has the connection before the visitor speaks.
    let dials = Arc::new(Mutex::new(dials));
    let late = move || {
        let socket = connect(mux);
        dials.lock().unwrap().recv_timeout(LONG).unwrap();
        socket
    };
    let mut socket = late();
    let request = "GET / HTTP/1.1\r\nHost: a.example.com\r\nConnection: close\r\n\r\n";
    let (first, rest) = request.split_at(3);
    socket.write_all(first.as_bytes()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    socket.write_all(rest.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"name\": \"web\""), "{answer}");
    // TLS, behind a path on which the first packet is late.
    let path = TcpListener::bind("127.0.0.1:0").unwrap();
    let slow = path.local_addr().unwrap().port();
    let late_too = late.clone();
    std::thread::spawn(move || {
        let (visitor, _) = path.accept().unwrap();
        let server = late_too();
        let (mut from, mut to) = (visitor.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        let _ = std::io::copy(&mut &server, &mut &visitor);
    });
    let said = fetch(slow, &["--insecure", "https://ends.example.com/"]);
    assert!(said.contains("\"name\": \"web\""), "{said}");
    // Other bytes are for the default target, which is connected already.
    let mut socket = late();
    socket.write_all(b"\x01\x02").unwrap();
    let mut echo = [0; 2];
    socket.read_exact(&mut echo).unwrap();
    assert_eq!(echo, [1, 2]);
    drop(socket);
    let shown = running.status("server").unwrap();
    assert!(shown.to_string().contains("default"), "{shown}");
}

/// The name and the subprotocol decide.
#[test]
fn a_site_has_a_web_socket_of_its_own_at_the_path_of_carriers() {
    let origin = Origin::start(|mut socket| {
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if socket.read(&mut byte).unwrap_or(0) == 0 {
                return;
            }
            seen.push(byte[0]);
        }
        let switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                         Connection: Upgrade\r\nX-From: site\r\n\r\n";
        let _ = socket.write_all(switching.as_bytes());
        let _ = socket.read(&mut [0]);
    });
    let (doors, mux) = with_mux("");
    let _running = doors.start(&[("http://a.example.com", origin.port(), "")]);
    let ask = |host: &str, offer: &str| {
        let mut socket = connect(mux);
        let request = format!(
            "GET /tunnel HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n{offer}\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let mut reader = BufReader::new(socket);
        while !answer.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut answer).unwrap() > 0, "{answer}");
        }
        answer
    };
    for (host, offer, is_site) in [
        ("a.example.com", "", true),
        ("a.example.com", "Sec-WebSocket-Protocol: chat\r\n", true),
        ("a.example.com", "Sec-WebSocket-Protocol: tunnel.1\r\n", false),
        ("nobody.example.com", "Sec-WebSocket-Protocol: tunnel.1\r\n", false),
    ] {
        let answer = ask(host, offer);
        assert_eq!(status(&answer), "101", "{host} {offer}");
        assert_eq!(answer.contains("X-From: site"), is_site, "{host} {offer}: {answer}");
    }
    // Just after the start of the server the host may be about to come.
    wait("a carrier without a subprotocol at a host that nobody has", LONG, || {
        (status(&ask("nobody.example.com", "")) == "101").then_some(())
    });
}

#[test]
fn without_a_default_target_strangers_are_closed_and_garbage_is_bounded() {
    let (doors, mux) = with_mux("");
    let (tls, dir) = (doors.tls, doors.setup.dir().to_owned());
    let web = Web::start(&dir, "web");
    let _running = doors.start(&[("http://a.example.com", web.port, "")]);
    assert_eq!(talk(mux, b"\x01\x02\x03"), "");
    // A tunnel greeting without TLS is not for a public port.
    assert_eq!(talk(mux, b"TNL1\x00\x00\x00\x00"), "");
    let answer =
        talk(mux, b"GET / HTTP/1.1\r\nHost: nobody.example.com\r\nConnection: close\r\n\r\n");
    assert_eq!(status(&answer), "404");
    // A name that nobody has meets the carriers' WebSocket, which answers with 404.
    let page = curl(
        mux,
        &[
            "--insecure",
            "--http1.1",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
            "https://nobody.example.com/",
        ],
    );
    assert_eq!(page.stdout, b"404", "{page:?}");
    let refused = curl(tls, &["--insecure", "https://nobody.example.org/"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("unrecognized name"), "{text}");
    let long =
        format!("GET / HTTP/1.1\r\nHost: a.example.com\r\nX: {}\r\n\r\n", "y".repeat(40 << 10));
    assert_eq!(status(&talk(mux, long.as_bytes())), "431");
}

#[test]
fn a_default_target_gets_every_byte_and_both_ends() {
    let origin = Origin::start(|mut socket| {
        let mut all = Vec::new();
        let _ = socket.read_to_end(&mut all);
        let _ = socket.write_all(&all);
    });
    let port = origin.port();
    let (doors, mux) = with_mux(&format!(", default: \"tcp://127.0.0.1:{port}\""));
    let web = Web::start(doors.setup.dir(), "web");
    let _running = doors.start(&[("http://a.example.com", web.port, "")]);
    let mut socket = connect(mux);
    let sent: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let mut writer = socket.try_clone().unwrap();
    let copy = sent.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&copy).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut got = Vec::new();
    socket.read_to_end(&mut got).unwrap();
    writing.join().unwrap();
    assert!(got == sent, "{} bytes", got.len());
}

//! Hostile visitors on each path that HTTP and the default target take, with a budget of 64 MiB:
//! the memory of the server stays within the budget and 32 MB.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use testkit::stage::Running;

use crate::harness::{LONG, Origin, SOON, Scheme, Setup, connect, free_port, wait};

const BUDGET: u64 = 64 << 20;
const BEYOND: u64 = 32_000_000;

/// A target whose answer the path of the request chooses.
fn target() -> Origin {
    Origin::start(|mut socket| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if socket.read_exact(&mut byte).is_err() {
                return;
            }
            head.push(byte[0]);
        }
        let has = |path: &str| head.windows(path.len()).any(|part| part == path.as_bytes());
        if has(" /deaf ") {
            std::thread::sleep(LONG);
        } else if has(" /small ") {
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        } else {
            let begin = if has(" /ws ") {
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
            } else {
                "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"
            };
            if socket.write_all(begin.as_bytes()).is_ok() {
                while socket.write_all(&[7; 64 << 10]).is_ok() {}
            }
        }
    })
}

fn request(method: &str, path: &str, fields: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n").into_bytes()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![size[1], size[2], size[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A hundred requests over HTTP/2, with a window of 0 for each answer, and bytes of each body in
/// frames of at most `size` bytes.
fn streams(path: &str, body: usize, size: usize) -> Vec<u8> {
    let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    all.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
    // `:method` and `:scheme: http` of the static table, `:path` and `:authority` as literals.
    let mut fields = vec![if body > 0 { 0x83 } else { 0x82 }, 0x86, 0x44];
    fields.push(u8::try_from(path.len()).unwrap());
    fields.extend_from_slice(path.as_bytes());
    fields.extend_from_slice(b"\x41\x09a.example");
    for nth in 0..100 {
        let flags = if body > 0 { 4 } else { 5 };
        all.extend(frame(1, flags, 2 * nth + 1, &fields));
    }
    for nth in 0..100 {
        for piece in vec![7; body].chunks(size) {
            all.extend(frame(0, 0, 2 * nth + 1, piece));
        }
    }
    all
}

/// Sends what the socket takes.
fn push(socket: &mut TcpStream, bytes: &[u8]) {
    let mut rest = bytes;
    socket.set_nonblocking(true).unwrap();
    // The other side has time to read before the socket counts as full.
    for _ in 0..3 {
        while let Ok(size @ 1..) = socket.write(rest) {
            rest = &rest[size..];
        }
        if rest.is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Case {
    name: &'static str,
    visitors: usize,
    bytes: Vec<u8>,
}

fn cases() -> Vec<Case> {
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    let length = "Content-Length: 1000000000\r\n";
    let mut upload = request("POST", "/deaf", length);
    upload.resize(4 << 20, 7);
    let mut head = request("GET", "/small", "");
    head.extend_from_slice(b"GET / HTTP/1.1\r\nX: ");
    head.resize(head.len() + (31 << 10), b'x');
    let case = |name, visitors, bytes| Case { name, visitors, bytes };
    vec![
        case("answers that nobody reads", 400, request("GET", "/", "")),
        case("upgraded connections that nobody reads", 1000, request("GET", "/ws", upgrade)),
        case("bodies that no target reads", 400, upload),
        case("long heads that do not end", 1500, head),
        case("requests without answers", 150, request("HEAD", "/small", "").repeat(500)),
        case("HTTP/2 with windows of 0", 120, streams("/", 0, 1)),
        case("HTTP/2 bodies that no target reads", 120, streams("/deaf", 10_000, 10_000)),
        case(
            "HTTP/2 with full windows that no target empties",
            40,
            streams("/deaf", 65_000, 16_000),
        ),
        case("HTTP/2 bodies in frames of one byte", 40, streams("/deaf", 5_000, 1)),
    ]
}

/// A server with the budget, its client, a door for HTTP and a port for everything.
fn start(target: &Origin) -> (Running, u16, u16) {
    let mut setup = Setup::alone(Scheme::TLS);
    let (http, mux) = (free_port(), free_port());
    setup.more_rights.push("http: \"*\"".to_owned());
    setup.server_lines =
        format!("http: {{ listen: \"127.0.0.1:{http}\" }}\nmemory_budget: 64MiB\n");
    setup.more_listen.push(format!(
        "{{ url: \"mux://127.0.0.1:{mux}/tunnel\", default: \"tcp://127.0.0.1:{}\" }}",
        target.port()
    ));
    // An option that needs the proxy.
    setup.client_lines = format!(
        "services: [{{ name: a, public: \"http://a.example\", target: \"tcp://127.0.0.1:{}\", \
         response_headers: {{ set: {{ X-A: b }} }} }}]\n",
        target.port()
    );
    let running = setup.start();
    wait("the service is published", SOON, || {
        running.server.log().contains("is published at").then_some(())
    });
    (running, http, mux)
}

/// The growth of the server's memory stays within the bound for some time.
fn watch(running: &Running, before: u64, name: &str) {
    let mut peak = 0;
    for _ in 0..20 {
        peak = peak.max(running.server.resident().saturating_sub(before));
        std::thread::sleep(Duration::from_millis(200));
    }
    println!("{name}: {} KiB, {}", peak >> 10, running.status("server").unwrap()["memory"]);
    assert!(peak <= BUDGET + BEYOND, "{name}: {peak} bytes with a budget of {BUDGET}");
}

#[test]
fn hostile_visitors_on_each_path_cost_the_budget() {
    let target = target();
    for Case { name, visitors, bytes } in cases() {
        let (running, http, _) = start(&target);
        let before = running.server.resident();
        let crowd: Vec<_> = (0..visitors)
            .map(|_| {
                let mut socket = connect(http);
                push(&mut socket, &bytes);
                socket
            })
            .collect();
        watch(&running, before, name);
        drop(crowd);
    }
}

#[test]
fn a_default_target_with_both_directions_stuck_costs_the_budget() {
    let target = target();
    let (running, _, mux) = start(&target);
    let before = running.server.resident();
    let mut crowd: Vec<_> = (0..1000).map(|_| connect(mux)).collect();
    for socket in &mut crowd {
        // No HTTP and no TLS.
        push(socket, &[&b"SSH-2.0- /endless \r\n\r\n"[..], &[7_u8; 256 << 10][..]].concat());
    }
    watch(&running, before, "default target");
    let status = running.status("server").unwrap();
    assert_eq!(status["default_targets"][0]["streams"], 1000, "{status}");
    drop(crowd);
}

//! HTTP/2 by programs that others wrote: many streams at once, uploads that wait, interim answers.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::{Doors, certificate, fetch};
use crate::harness::{Origin, Scheme, program, run};

const KEYS: &str = ", certificates: [{ cert: one.crt, key: one.key }]";

/// The head of a request, and the reader behind it.
fn head(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

fn length(head: &str) -> usize {
    let field = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse().ok()).flatten()
    };
    head.lines().find_map(field).unwrap_or(0)
}

/// 127 uploads that the target takes after the last request, on one connection.
const UPLOADS: &str = r"
const [, , port, ca] = process.argv;
const http2 = require('node:http2');
const session = http2.connect(`https://127.0.0.1:${port}`, {
  ca: require('node:fs').readFileSync(ca), servername: 'a.example.com',
});
const ask = (path, body) => new Promise((resolve, reject) => {
  const stream = session.request({ ':method': 'POST', ':path': path, ':authority': 'a.example.com' });
  let text = '', status;
  stream.on('response', (fields) => { status = fields[':status']; });
  stream.on('data', (data) => { text += data; });
  stream.on('end', () => resolve(`${status} ${text}`));
  stream.on('error', reject);
  stream.end(body);
});
session.on('error', (error) => { console.log(String(error)); process.exit(1); });
session.on('remoteSettings', async () => {
  const body = Buffer.alloc(100_000, 'x');
  const waiting = Array.from({ length: 127 }, (_, nth) => ask(`/${nth}`, body));
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const last = await ask('/last', Buffer.alloc(3_000_000, 'y'));
  const answers = new Set(await Promise.all(waiting));
  console.log(last, [...answers].join());
  session.close();
});
";

#[test]
fn uploads_of_node_that_wait_leave_room_for_the_last_one() {
    let doors = Doors::with(Scheme::TLS, "", KEYS);
    let (tls, dir) = (doors.tls, doors.setup.dir().to_owned());
    certificate(&dir, "one", "DNS:a.example.com");
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let origin = Origin::start(move |socket| {
        let mut reader = BufReader::new(socket);
        while let Some(head) = head(&mut reader) {
            let (open, opens) = &*gate;
            let is_last = head.starts_with("POST /last ");
            if !is_last {
                // The body waits unread until the last request has its answer.
                let wait = Duration::from_secs(60);
                drop(opens.wait_timeout_while(open.lock().unwrap(), wait, |open| !*open).unwrap());
            }
            let mut body = Vec::new();
            let is_whole = if head.to_ascii_lowercase().contains("chunked") {
                chunked(&mut reader, &mut body)
            } else {
                reader.by_ref().take(length(&head) as u64).read_to_end(&mut body).is_ok()
            };
            if !is_whole {
                return;
            }
            let said = format!("got {}", body.len());
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{said}", said.len());
            if reader.get_mut().write_all(answer.as_bytes()).is_err() {
                return;
            }
            if is_last {
                *open.lock().unwrap() = true;
                opens.notify_all();
            }
        }
    });
    let _running = doors.start(&[("https://a.example.com", origin.port(), "")]);
    let script = dir.join("uploads.js");
    fs::write(&script, UPLOADS).unwrap();
    let mut node = Command::new(program("node"));
    node.arg(script).arg(tls.to_string()).arg(dir.join("one.crt"));
    let done = run(&mut node);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(said.trim(), "200 got 3000000 200 got 100000", "{done:?}");
}

fn chunked(reader: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> bool {
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return false;
        }
        let Ok(size) = u64::from_str_radix(line.trim(), 16) else { return false };
        if reader.by_ref().take(size).read_to_end(body).is_err() {
            return false;
        }
        let mut end = [0; 2];
        if reader.read_exact(&mut end).is_err() {
            return false;
        }
        if size == 0 {
            return true;
        }
    }
}

#[test]
fn streams_of_h2load_are_all_answered() {
    let doors = Doors::with(Scheme::TLS, "", KEYS);
    let (tls, dir) = (doors.tls, doors.setup.dir().to_owned());
    certificate(&dir, "one", "DNS:a.example.com");
    let origin = Origin::start(|socket| {
        let mut reader = BufReader::new(socket);
        while head(&mut reader).is_some() {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
            if reader.get_mut().write_all(answer).is_err() {
                return;
            }
        }
    });
    let _running = doors.start(&[("https://a.example.com", origin.port(), "")]);
    let mut h2load = Command::new(program("h2load"));
    h2load.args(["-n", "3000", "-c", "4", "-m", "100"]);
    h2load.arg(format!("--connect-to=127.0.0.1:{tls}")).arg("https://a.example.com/");
    let done = run(&mut h2load);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(said.contains("3000 succeeded, 0 failed, 0 errored, 0 timeout"), "{said}");
    assert!(said.contains("3000 2xx"), "{said}");
}

#[test]
fn curl_sees_interim_answers_and_the_100_that_it_expects() {
    let doors = Doors::with(Scheme::TLS, "", KEYS);
    let (http, tls, dir) = (doors.http, doors.tls, doors.setup.dir().to_owned());
    certificate(&dir, "one", "DNS:a.example.com");
    let origin = Origin::start(|socket| {
        let mut reader = BufReader::new(socket);
        while let Some(head) = head(&mut reader) {
            let mut answer = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n".to_owned();
            if head.to_ascii_lowercase().contains("expect: 100-continue") {
                answer.push_str("HTTP/1.1 100 Continue\r\n\r\n");
            }
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            let mut body = vec![0; length(&head)];
            reader.read_exact(&mut body).unwrap();
            let said = format!("got {}", body.len());
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{said}", said.len());
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    let _running = doors.start(&[
        ("https://a.example.com", origin.port(), ""),
        ("http://a.example.com", origin.port(), ", forwarded: true"),
        ("http://b.example.com", origin.port(), ""),
    ]);
    let (ca, body) = (dir.join("one.crt"), dir.join("body"));
    fs::write(&body, vec![b'x'; 200_000]).unwrap();
    let (ca, body) = (ca.to_str().unwrap(), format!("@{}", body.display()));
    for (port, version, url) in [
        (tls, "--http2", "https://a.example.com/"),
        (tls, "--http1.1", "https://a.example.com/"),
        (http, "--http2-prior-knowledge", "http://b.example.com/"),
        (http, "--http1.1", "http://a.example.com/"),
        (http, "--http1.1", "http://b.example.com/"),
    ] {
        let common = ["--cacert", ca, version, "--dump-header", "-"];
        // Without a 100, curl gives up before it would go on.
        let wait = ["--expect100-timeout", "600"];
        let expects = ["--header", "Expect: 100-continue", "--data-binary", &body, url];
        let said = fetch(port, &[&common[..], &wait, &expects].concat());
        let statuses: Vec<_> = said
            .lines()
            .filter(|line| line.starts_with("HTTP/"))
            .filter_map(|line| line.split(' ').nth(1))
            .collect();
        assert_eq!(statuses, ["103", "100", "200"], "{version} {url}: {said}");
        assert!(said.contains("got 200000"), "{said}");
    }
}

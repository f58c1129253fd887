//! Requests for `http://` addresses without CONNECT, at a forward and at an exit.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use proto::ResetCode;
use relay::{Credentials, ProxyKind, Settings};
use testkit::origins::Origin;

use super::exit::ExitRig;
use super::rig::{ClosedPort, Options, ProxyRig};
use crate::rig::{DEADLINE, run, visit};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n";

/// The proxies of a test.
enum Rig {
    Forward(Box<ProxyRig>),
    Exit(Box<ExitRig>),
}

impl Rig {
    /// A forward with and without reports of the far end, and an exit that reaches this port alone.
    fn all(port: u16) -> [Self; 3] {
        let forward = |reports| {
            let options = Options { kind: ProxyKind::Http, reports, ..Options::default() };
            Self::Forward(ProxyRig::new(options).into())
        };
        [forward(true), forward(false), Self::Exit(ExitRig::new(ProxyKind::Http, port).into())]
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Forward(_) => "forward",
            Self::Exit(_) => "exit",
        }
    }

    /// Sends `said`, and returns the complete answer of the proxy.
    async fn ask(&self, said: impl Into<Vec<u8>>) -> String {
        let (address, said) = (self.address(), said.into());
        let talk = move |mut socket: TcpStream| {
            socket.write_all(&said).unwrap();
            let mut answer = String::new();
            socket.read_to_string(&mut answer).unwrap();
            answer
        };
        visit(address, talk).await
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Forward(rig) => rig.address,
            Self::Exit(rig) => rig.address,
        }
    }

    /// The settings of the end that speaks with the visitor.
    fn settings(&self) -> &Settings {
        match self {
            Self::Forward(rig) => &rig.near,
            Self::Exit(rig) => &rig.far,
        }
    }

    async fn settled(&self) {
        match self {
            Self::Forward(rig) => rig.settled().await,
            Self::Exit(rig) => rig.settled().await,
        }
    }
}

/// A web server that answers each connection once the received bytes end in a given text, and that
/// reports all bytes of each connection.
struct Server {
    address: SocketAddr,
    heard: mpsc::Receiver<String>,
}

impl Server {
    fn new(answer: &'static str, after: &'static str) -> Self {
        let (sender, heard) = mpsc::channel();
        let address = each(move |mut connection| {
            connection.set_read_timeout(Some(DEADLINE)).unwrap();
            let (mut all, mut answered) = (Vec::new(), false);
            loop {
                if !answered && all.ends_with(after.as_bytes()) {
                    connection.write_all(answer.as_bytes()).unwrap();
                    answered = true;
                }
                let mut buffer = [0; 4096];
                match connection.read(&mut buffer).unwrap() {
                    0 => break,
                    n => all.extend_from_slice(&buffer[..n]),
                }
            }
            let _ = sender.send(String::from_utf8(all).unwrap());
        });
        Self { address, heard }
    }

    /// What the next connection brought.
    fn heard(&self) -> String {
        self.heard.recv_timeout(DEADLINE).unwrap()
    }
}

/// Serves each connection in turn, and closes it then.
fn each(serve: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().for_each(|connection| serve(connection.unwrap())));
    address
}

#[test]
fn a_target_gets_the_request_as_a_web_server_expects_it() {
    run(async {
        let server = Server::new(OK, "\r\n\r\n");
        let port = server.address.port();
        for rig in Rig::all(port) {
            let said = format!(
                "GET http://localhost:{port}/a?b HTTP/1.1\r\nHost: other.example\r\n\
                 Proxy-Connection: keep-alive\r\nConnection: X-One\r\nX-One: 1\r\nX-Two: 2\r\n\r\n"
            );
            assert_eq!(rig.ask(said).await, OK, "{}", rig.name());
            let expected = format!(
                "GET /a?b HTTP/1.1\r\nHost: localhost:{port}\r\nX-Two: 2\r\nConnection: close\r\n\r\n"
            );
            assert_eq!(server.heard(), expected, "{}", rig.name());
            rig.settled().await;
            assert_eq!(rig.settings().stats.opened(), 1, "{}", rig.name());
        }
    });
}

#[test]
fn no_byte_behind_a_request_reaches_its_target() {
    run(async {
        let second = "GET http://second.example/ HTTP/1.1\r\nHost: second.example\r\n\r\n";
        for (framing, body) in [
            ("", ""),
            ("Content-Length: 5\r\n", "hello"),
            ("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
            // What the connection names is not removed, and so the body has the same end.
            ("Content-Length: 5\r\nConnection: content-length\r\n", "hello"),
        ] {
            let server = Server::new(OK, if body.is_empty() { "\r\n\r\n" } else { body });
            let port = server.address.port();
            for rig in Rig::all(port) {
                let line = format!("POST http://localhost:{port}/ HTTP/1.1\r\nHost: a\r\n");
                let said = format!("{line}{framing}\r\n{body}{second}{second}");
                assert_eq!(rig.ask(said).await, OK, "{framing}");
                let heard = server.heard();
                assert!(heard.ends_with(&format!("\r\n\r\n{body}")), "{heard}");
                assert!(!heard.contains("second"), "{heard}");
                rig.settled().await;
            }
        }
    });
}

#[test]
fn a_request_that_fails_has_a_page_that_says_why() {
    run(async {
        let closed = ClosedPort::new();
        let port = closed.address().port();
        let status = |answer: &str| answer.split(' ').nth(1).map(str::to_owned);
        for rig in Rig::all(port) {
            let name = rig.name();
            let ask = async |method: &str, to: String, fields: &str| {
                let head = format!("{method} {to} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
                rig.ask(head).await
            };
            let answer = ask("GET", format!("http://localhost:{port}/"), "").await;
            assert_eq!(status(&answer).as_deref(), Some("502"), "{name}: {answer}");
            assert!(answer.ends_with("The target refused the connection.\n"), "{name}: {answer}");
            let answer = ask("HEAD", format!("http://localhost:{port}/"), "").await;
            assert!(
                answer.starts_with("HTTP/1.1 502 ") && answer.ends_with("\r\n\r\n"),
                "{answer}"
            );
            // Port 1 is denied everywhere.
            let answer = ask("GET", "http://127.0.0.1:1/".into(), "").await;
            assert!(answer.ends_with("The target is not allowed.\n"), "{name}: {answer}");
            assert_eq!(status(&answer).as_deref(), Some("403"), "{name}");
            let answer = ask("GET", "https://localhost/".into(), "").await;
            assert_eq!(status(&answer).as_deref(), Some("400"), "{name}");
            assert!(answer.contains("CONNECT"), "{name}: {answer}");
            let both = "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n";
            let answer = ask("GET", format!("http://localhost:{port}/"), both).await;
            assert!(answer.contains("both Content-Length and"), "{name}: {answer}");
            rig.settled().await;
            let stats = &rig.settings().stats;
            assert_eq!(
                (stats.refused(ResetCode::Refused), stats.refused(ResetCode::Denied)),
                (2, 1)
            );
        }
    });
}

#[test]
fn a_target_that_is_no_web_server_is_no_empty_answer() {
    run(async {
        let banner = Origin::banner("SSH-2.0-OpenSSH_9.2\r\n").unwrap();
        let silent = Server::new("", "\r\n\r\n");
        let ends = each(|socket| socket.shutdown(Shutdown::Write).unwrap());
        for (address, expected) in [(banner.address(), "not safe"), (ends, "target")] {
            for rig in Rig::all(address.port()) {
                let said = format!("GET http://{address}/ HTTP/1.1\r\nHost: a\r\n\r\n");
                let answer = rig.ask(said).await;
                assert!(answer.starts_with("HTTP/1.1 502 "), "{}: {answer:?}", rig.name());
                assert!(answer.contains(expected), "{}: {answer}", rig.name());
                rig.settled().await;
            }
        }
        // The body of the request has no end that can be found.
        for rig in Rig::all(silent.address.port()) {
            let line = format!("POST http://{}/ HTTP/1.1\r\n", silent.address);
            let said = format!("{line}Host: a\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n");
            let answer = rig.ask(said).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{}: {answer:?}", rig.name());
            rig.settled().await;
        }
    });
}

#[test]
fn an_answer_before_the_end_of_an_upload_reaches_the_program() {
    run(async {
        let early =
            "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let target = each(move |mut socket| {
            socket.read_exact(&mut [0; 1]).unwrap();
            socket.write_all(early.as_bytes()).unwrap();
        });
        let closed = ClosedPort::new();
        for (to, expected) in [(target, "413"), (closed.address(), "502")] {
            for rig in Rig::all(to.port()) {
                let head = format!("PUT http://{to}/ HTTP/1.1\r\nHost: a\r\n");
                let mut said = format!("{head}Content-Length: 3000000\r\n\r\n").into_bytes();
                said.resize(said.len() + 3_000_000, b'x');
                let answer = rig.ask(said).await;
                assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{answer:?}");
                rig.settled().await;
            }
        }
    });
}

#[test]
fn the_password_is_asked_for_before_anything_else() {
    run(async {
        let server = Server::new(OK, "\r\n\r\n");
        let rig = ProxyRig::new(Options {
            kind: ProxyKind::Http,
            credentials: Credentials::new("anna", "one"),
            ..Options::default()
        });
        let rig = Rig::Forward(rig.into());
        let line = format!("GET http://{}/ HTTP/1.1\r\nHost: a\r\n", server.address);
        let answer = rig.ask(format!("{line}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 407 "), "{answer}");
        assert!(answer.contains("Proxy-Authenticate: Basic"), "{answer}");
        let right = "Proxy-Authorization: Basic YW5uYTpvbmU=\r\n";
        assert_eq!(rig.ask(format!("{line}{right}\r\n")).await, OK);
        assert!(!server.heard().contains("Proxy"), "the password is not for the target");
        rig.settled().await;
    });
}

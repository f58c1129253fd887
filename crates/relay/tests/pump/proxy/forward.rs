//! A proxy at a forward: after its handshake the connection is that of an ordinary forward.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::process::Command;

use proto::{Priority, ResetCode, Target};
use relay::{Credentials, ProxyKind, Socket, serve_connect};
use testkit::origins::{Origin, Pattern};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::rig::{ClosedPort, Options, ProxyRig, reply, request, socks5};
use crate::rig::{exchange, receive, reset, run};

const MB: u64 = 1_000_000;

#[test]
fn all_bytes_arrive_in_both_directions_and_a_half_close_stays_one() {
    run(async {
        let origin = Origin::half_close_echo().unwrap();
        let target = origin.address();
        let rig = ProxyRig::new(Options::default());
        let got = rig
            .visit(move |socket| {
                assert_eq!(socks5(&socket, target).unwrap(), 0);
                exchange(&socket, 10 * MB).unwrap()
            })
            .await;
        assert_eq!(got, Pattern.digest(10 * MB));
        rig.settled().await;
        assert_eq!(rig.targets(), [Target::Reported(format!("tcp://{target}"))]);
        assert_eq!((rig.near.stats.opened(), rig.far.stats.opened()), (1, 1));
        assert_eq!(rig.near.stats.bytes_in(), 10 * MB);
        assert_eq!(rig.near.stats.bytes_out(), 10 * MB, "the report is no byte of the stream");
    });
}

#[test]
fn bytes_behind_the_request_are_not_lost() {
    for kind in [ProxyKind::Socks5, ProxyKind::Http] {
        run(async move {
            let origin = Origin::echo().unwrap();
            let target = origin.address();
            let rig = ProxyRig::new(Options { kind, ..Options::default() });
            let got = rig
                .visit(move |mut socket| {
                    let mut said = match kind {
                        ProxyKind::Socks5 => [&[5, 1, 0][..], &request(1, target)].concat(),
                        ProxyKind::Http => {
                            format!("CONNECT {target} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
                        }
                    };
                    said.extend_from_slice(Pattern.at(0, 5000));
                    socket.write_all(&said).unwrap();
                    match kind {
                        ProxyKind::Socks5 => {
                            socket.read_exact(&mut [0; 2]).unwrap();
                            assert_eq!(reply(&socket).unwrap(), 0);
                        }
                        ProxyKind::Http => {
                            let expected = b"HTTP/1.1 200 Connection established\r\n\r\n";
                            let mut answer = vec![0; expected.len()];
                            socket.read_exact(&mut answer).unwrap();
                            assert_eq!(answer, expected);
                        }
                    }
                    socket.shutdown(Shutdown::Write).unwrap();
                    receive(&socket).unwrap()
                })
                .await;
            assert_eq!(got, Pattern.digest(5000), "{kind:?}");
            rig.settled().await;
            assert_eq!(rig.near.stats.bytes_in(), 5000);
        });
    }
}

#[test]
fn names_are_looked_up_at_the_far_end() {
    run(async {
        let origin = Origin::echo().unwrap();
        let port = origin.address().port();
        let rig = ProxyRig::new(Options::default());
        rig.visit(move |mut socket| {
            let mut said = b"\x05\x01\x00\x05\x01\x00\x03\x09localhost".to_vec();
            said.extend_from_slice(&port.to_be_bytes());
            socket.write_all(&said).unwrap();
            socket.read_exact(&mut [0; 2]).unwrap();
            assert_eq!(reply(&socket).unwrap(), 0);
        })
        .await;
        rig.settled().await;
        assert_eq!(rig.targets(), [Target::Reported(format!("tcp://localhost:{port}"))]);
    });
}

#[test]
fn a_refusal_has_the_code_of_its_reason_and_a_clean_end() {
    run(async {
        let port = ClosedPort::new();
        let closed = port.address();
        let rig = ProxyRig::new(Options { denied: 7, ..Options::default() });
        let refused = async |to: SocketAddr| {
            rig.visit(move |mut socket| {
                let code = socks5(&socket, to).unwrap();
                // The end is clean also for bytes that nobody reads.
                let _ = socket.write_all(b"hello");
                assert_eq!(socket.read(&mut [0]).unwrap(), 0);
                code
            })
            .await
        };
        assert_eq!(refused(closed).await, 5);
        assert_eq!(refused((Ipv4Addr::LOCALHOST, 7).into()).await, 2);
        assert_eq!(rig.near.stats.refused(ResetCode::Refused), 1);
        assert_eq!(rig.near.stats.refused(ResetCode::Denied), 1);
        rig.link.refuse.set(true);
        assert_eq!(refused(closed).await, 3, "the link takes no more streams");
        rig.ways.0.take();
        assert_eq!(refused(closed).await, 3, "there is no link");
        assert_eq!(rig.near.stats.refused(ResetCode::Shutdown), 2);
        rig.settled().await;
    });
}

#[test]
fn http_has_a_page_for_each_refusal() {
    run(async {
        let port = ClosedPort::new();
        let closed = port.address();
        let rig = ProxyRig::new(Options { kind: ProxyKind::Http, ..Options::default() });
        let ask = async |head: String| {
            rig.visit(move |mut socket| {
                socket.write_all(head.as_bytes()).unwrap();
                let mut answer = String::new();
                socket.read_to_string(&mut answer).unwrap();
                answer.split(' ').nth(1).unwrap().to_owned()
            })
            .await
        };
        assert_eq!(ask(format!("CONNECT {closed} HTTP/1.1\r\n\r\n")).await, "502");
        assert_eq!(ask("CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n".into()).await, "403");
        assert_eq!(ask("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".into()).await, "400");
        assert_eq!(ask("CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n".into()).await, "400");
        rig.settled().await;
    });
}

#[test]
fn a_reset_after_the_handshake_is_a_reset_on_the_other_side() {
    run(async {
        let origin = Origin::resetter(5).unwrap();
        let target = origin.address();
        let rig = ProxyRig::new(Options::default());
        let error = rig
            .visit(move |mut socket| {
                assert_eq!(socks5(&socket, target).unwrap(), 0);
                socket.write_all(b"hello").unwrap();
                receive(&socket).unwrap_err().kind()
            })
            .await;
        assert_eq!(error, ErrorKind::ConnectionReset);
        rig.settled().await;

        let origin = Origin::sink().unwrap();
        let target = origin.address();
        rig.visit(move |mut socket| {
            assert_eq!(socks5(&socket, target).unwrap(), 0);
            socket.write_all(b"hello").unwrap();
            reset(socket);
        })
        .await;
        rig.settled().await;
        let ended = origin.wait_ended(1, crate::rig::DEADLINE).unwrap();
        assert!(!ended[0].clean);
    });
}

#[test]
fn a_far_end_that_does_not_report_is_connected_at_once_and_refuses_by_a_reset() {
    run(async {
        let origin = Origin::half_close_echo().unwrap();
        let port = ClosedPort::new();
        let (target, closed) = (origin.address(), port.address());
        let rig = ProxyRig::new(Options { reports: false, ..Options::default() });
        let got = rig
            .visit(move |socket| {
                assert_eq!(socks5(&socket, target).unwrap(), 0);
                exchange(&socket, MB).unwrap()
            })
            .await;
        assert_eq!(got, Pattern.digest(MB));
        assert_eq!(rig.targets(), [Target::Forward(format!("tcp://{target}"))]);
        let error = rig
            .visit(move |socket| {
                assert_eq!(socks5(&socket, closed).unwrap(), 0);
                receive(&socket).unwrap_err().kind()
            })
            .await;
        assert_eq!(error, ErrorKind::ConnectionReset);
        rig.settled().await;
    });
}

#[test]
fn a_command_gets_one_line_before_the_bytes_or_the_reason() {
    run(async {
        let origin = Origin::half_close_echo().unwrap();
        let port = ClosedPort::new();
        let (target, closed) = (origin.address(), port.address());
        let rig = ProxyRig::new(Options::default());
        let connectors = rig.ways.0.borrow().clone().unwrap();
        for (target, heard_by_it, outcome) in
            [(target, &b"ok\nhello"[..], Ok(())), (closed, b"", Err(ResetCode::Refused))]
        {
            let (mut command, socket) = tokio::net::UnixStream::pair().unwrap();
            let target = format!("tcp://{target}");
            let socket = Socket::from(socket);
            let priority = Priority::Interactive;
            let place = (target.as_str(), &b"ok\n"[..]);
            let served = serve_connect(socket, place, &connectors, priority, &rig.near).await;
            assert_eq!(served, outcome);
            if outcome.is_err() {
                // The socket is closed, and nothing was written to it.
                assert_eq!(command.read(&mut [0; 8]).await.unwrap(), 0);
                continue;
            }
            command.write_all(b"hello").await.unwrap();
            command.shutdown().await.unwrap();
            let mut heard = Vec::new();
            command.read_to_end(&mut heard).await.unwrap();
            assert_eq!(heard, heard_by_it);
        }
        rig.settled().await;
        assert_eq!(rig.opened.borrow()[0].priority, Priority::Interactive);
    });
}

/// Runs curl beside the proxy. `None`: curl is not installed.
async fn curl(arguments: Vec<String>) -> Option<(Option<i32>, String)> {
    let run = move || {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-q", "--max-time", "30", "-o", "-", "-w", "%{http_code}"]);
        curl.args(arguments).env_clear();
        match curl.output() {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            output => {
                let output = output.unwrap();
                let text = String::from_utf8(output.stdout).unwrap();
                Some((output.status.code(), text))
            }
        }
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[test]
fn curl_speaks_with_both_kinds_and_their_passwords() {
    run(async {
        let origin = Origin::http().unwrap();
        let port = ClosedPort::new();
        let (url, closed) = (format!("http://{}/", origin.address()), port.address());
        let anna = || Credentials::new("anna", "one:two");
        let socks = ProxyRig::new(Options { credentials: anna(), ..Options::default() });
        let http = ProxyRig::new(Options {
            credentials: anna(),
            kind: ProxyKind::Http,
            ..Options::default()
        });
        let (socks_at, http_at) = (socks.address.to_string(), http.address.to_string());
        let through = |flags: &[&str], at: &str, user: &str, url: &str| {
            let mut arguments: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
            arguments.extend([at, "--proxy-user", user, url].map(str::to_owned));
            curl(arguments)
        };
        for (flags, at) in
            [(&["--socks5-hostname"][..], &socks_at), (&["--proxytunnel", "--proxy"], &http_at)]
        {
            let Some(outcome) = through(flags, at, "anna:one:two", &url).await else { return };
            assert_eq!(outcome, (Some(0), "ok\n200".to_owned()), "{flags:?}");
            let (code, _) = through(flags, at, "anna:two", &url).await.unwrap();
            assert_ne!(code, Some(0), "{flags:?}");
            let nobody = format!("http://{closed}/");
            let (code, _) = through(flags, at, "anna:one:two", &nobody).await.unwrap();
            assert!(matches!(code, Some(7 | 56 | 97)), "{flags:?} {code:?}");
        }
        socks.settled().await;
        http.settled().await;
    });
}

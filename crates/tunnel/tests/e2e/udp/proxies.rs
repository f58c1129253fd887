//! Forwards whose programs name their targets: SOCKS5 and HTTP CONNECT, by curl and by hand.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Output};

use testkit::stage::Running;

use super::{Echo, LARGEST, pattern};
use crate::harness::{
    Nginx, SOON, Scheme, Setup, connect, free_port, program, run, side_by_side, wait,
    wait_listening,
};

struct Proxies {
    running: Running,
    nginx: Nginx,
    socks: u16,
    guarded: u16,
    http: u16,
}

/// Proxies whose programs may reach nginx, over TCP and UDP, by its address and by name.
fn proxies(scheme: Scheme, more: &[String]) -> Proxies {
    let mut setup = Setup::new(scheme);
    let nginx = Nginx::start(setup.dir(), "");
    let [socks, guarded, http] = [free_port(), free_port(), free_port()];
    let port = nginx.port;
    setup.more_targets.extend(["127.0.0.1", "localhost"].map(|host| format!("{host}:{port}")));
    setup.more_targets.extend_from_slice(more);
    writeln!(
        setup.client_lines,
        "forwards:\n  - {{ listen: \"socks5://127.0.0.1:{socks}\" }}\n  \
         - {{ listen: \"socks5://127.0.0.1:{guarded}\", basic_auth: [\"ann:secret\", \"bob:other\"] }}\n  \
         - {{ listen: \"http-proxy://127.0.0.1:{http}\", basic_auth: [\"ann:secret\"] }}"
    )
    .unwrap();
    let running = setup.start();
    [socks, guarded, http].iter().for_each(|port| wait_listening(*port, SOON));
    Proxies { running, nginx, socks, guarded, http }
}

fn curl(args: &[&str]) -> Output {
    let mut curl = Command::new(program("curl"));
    curl.args(["--silent", "--show-error", "--max-time", "60", "--fail", "--output", "/dev/null"]);
    curl.args(["--write-out", "%{http_code} %{size_download}"]);
    run(curl.args(args))
}

fn fetched(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn curl_reaches_targets_through_socks_and_http_proxies() {
    side_by_side(&[Scheme::TLS, Scheme::QUIC, Scheme::KCP, Scheme::WSS], |scheme| {
        let Proxies { running: _running, nginx, socks, guarded, http } = proxies(scheme, &[]);
        let by_name = format!("http://localhost:{}/small", nginx.port);
        let by_address = format!("http://127.0.0.1:{}/small", nginx.port);
        for url in [&by_name, &by_address] {
            let proxy = format!("127.0.0.1:{socks}");
            assert!(fetched(&curl(&["--socks5-hostname", &proxy, url])).starts_with("200"));
            for user in ["ann:secret", "bob:other"] {
                let proxy = format!("socks5h://{user}@127.0.0.1:{guarded}");
                assert!(fetched(&curl(&["--proxy", &proxy, url])).starts_with("200"));
            }
            let proxy = format!("http://ann:secret@127.0.0.1:{http}");
            assert!(fetched(&curl(&["--proxytunnel", "--proxy", &proxy, url])).starts_with("200"));
        }
        // Wrong or missing credentials; 97: SOCKS, 22: the proxy answers 407.
        for (proxy, code) in [
            (format!("socks5h://127.0.0.1:{guarded}"), 97),
            (format!("socks5h://ann:wrong@127.0.0.1:{guarded}"), 97),
            (format!("http://ann:wrong@127.0.0.1:{http}"), 22),
            (format!("http://127.0.0.1:{http}"), 22),
        ] {
            let refused = curl(&["--proxytunnel", "--proxy", &proxy, &by_address]);
            assert_eq!(refused.status.code(), Some(code), "{proxy}: {refused:?}");
        }
    });
}

#[test]
fn a_refused_or_denied_target_has_its_code() {
    let closed = free_port();
    let more = [format!("127.0.0.1:{closed}")];
    let Proxies { running, nginx: _nginx, socks, http, .. } = proxies(Scheme::TLS, &more);
    // 5: refused; 2: not allowed (RFC 1928 section 6).
    for (target, code) in [(closed, 5), (free_port(), 2)] {
        let proxy = format!("127.0.0.1:{socks}");
        let output = curl(&["--socks5-hostname", &proxy, &format!("http://127.0.0.1:{target}/")]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(&format!("({code})")), "{error}");
    }
    let connect_to = |target: u16, auth: &str| {
        let mut stream = connect(http);
        write!(stream, "CONNECT 127.0.0.1:{target} HTTP/1.1\r\nHost: x\r\n{auth}\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let auth = "Proxy-Authorization: Basic YW5uOnNlY3JldA==\r\n";
    assert!(connect_to(closed, auth).starts_with("HTTP/1.1 502 "));
    assert!(connect_to(free_port(), auth).starts_with("HTTP/1.1 403 "));
    assert!(connect_to(closed, "").starts_with("HTTP/1.1 407 "));
    let line = running.server.wait_line(&["is not allowed"], SOON);
    assert!(line.contains("tunnel allow"), "{line}");
    // What the server reaches is no matter of the forward itself.
    let status = running.status("client").unwrap();
    let forwards = status["sessions"][0]["forwards"].as_array().unwrap();
    assert!(forwards.iter().all(|forward| forward["state"] == "up"), "{status}");
}

/// A program of SOCKS5 that asks for UDP (RFC 1928 section 7).
struct Associated {
    _control: std::net::TcpStream,
    socket: UdpSocket,
}

impl Associated {
    fn new(proxy: u16) -> Self {
        let mut control = connect(proxy);
        control.write_all(&[5, 1, 0]).unwrap();
        let mut answer = [0; 2];
        control.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [5, 0]);
        control.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        let mut reply = [0; 10];
        control.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..4], [5, 0, 0, 1], "{reply:?}");
        let ip = Ipv4Addr::new(reply[4], reply[5], reply[6], reply[7]);
        let relay = SocketAddr::from((ip, u16::from_be_bytes([reply[8], reply[9]])));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(relay).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
        Self { _control: control, socket }
    }

    /// Asks a target; returns the payload of the answer.
    fn ask(&self, host: &[u8], port: u16, payload: &[u8]) -> Vec<u8> {
        let head = [&[0, 0, 0], host, &port.to_be_bytes()].concat();
        let datagram = [&head[..], payload].concat();
        wait("an answer by UDP", SOON, || {
            self.socket.send(&datagram).ok()?;
            let mut answer = vec![0; LARGEST];
            let length = self.socket.recv(&mut answer).ok()?;
            assert_eq!(answer[..head.len()], head, "it names its sender");
            Some(answer[head.len()..length].to_vec())
        })
    }
}

#[test]
fn udp_over_socks_reaches_several_targets_by_address_and_by_name() {
    side_by_side(&[Scheme::TLS, Scheme::QUIC, Scheme::KCP], |scheme| {
        let echoes = [
            Echo::start(),
            Echo::answering(|datagram| Some(datagram.iter().rev().copied().collect())),
        ];
        let targets =
            |echo: &Echo| ["127.0.0.1", "localhost"].map(|host| format!("{host}:{}", echo.port()));
        let more: Vec<String> = echoes.iter().flat_map(targets).collect();
        let Proxies { running: _running, nginx: _nginx, socks, .. } = proxies(scheme, &more);
        let program = Associated::new(socks);
        let by_address: &[u8] = &[1, 127, 0, 0, 1];
        let by_name: &[u8] = b"\x03\x09localhost";
        for size in [0, 1, 500, 1_200, 9_000, 60_000] {
            let payload = pattern(size);
            let backwards: Vec<_> = payload.iter().rev().copied().collect();
            for host in [by_address, by_name] {
                assert!(program.ask(host, echoes[0].port(), &payload) == payload, "{size}");
                assert!(program.ask(host, echoes[1].port(), &payload) == backwards, "{size}");
            }
        }
    });
}

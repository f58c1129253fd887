//! UDP services and forwards, SOCKS5, HTTP proxies, exits and files: everything beside TCP and
//! names that can be reached.

mod carriers;
mod connect;
mod dns;
mod exits;
mod follow;
mod http3;
mod iperf;
mod neighbours;
mod ports;
mod proxies;
mod sizes;
mod status;

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use testkit::stage::Running;

use crate::harness::{SOON, Scheme, Setup, free_port, wait};

/// Bytes of the largest datagram.
const LARGEST: usize = 65_507;

/// Adds services: a name, public addresses, a target or a list of targets, and further keys.
fn services(setup: &mut Setup, all: &[(&str, &str, &str, &str)]) {
    setup.client_lines.push_str("services:\n");
    for (name, public, target, keys) in all {
        let is_list = target.starts_with('[');
        let target = if is_list { (*target).to_owned() } else { format!("\"{target}\"") };
        writeln!(
            setup.client_lines,
            "  - {{ name: {name}, target: {target}, public: {public}{keys} }}"
        )
        .unwrap();
    }
}

/// A setup with a UDP service on the returned port that leads to this loopback port.
pub(crate) fn one_service(scheme: Scheme, target: u16) -> (Setup, u16) {
    let (mut setup, port) = (Setup::new(scheme), free_port());
    setup.more_rights.push(format!("udp: [\"{port}\"]"));
    let (public, target) = (format!("\"udp://:{port}\""), format!("udp://127.0.0.1:{target}"));
    services(&mut setup, &[("echo", &public, &target, "")]);
    (setup, port)
}

/// Starts the setup and waits until `count` services are published.
pub(crate) fn start(setup: Setup, count: usize) -> Running {
    let running = setup.start();
    wait("the services are published", SOON, || {
        (running.server.log().matches("is published at").count() >= count).then_some(())
    });
    running
}

/// Returns every datagram to its sender until it is dropped.
pub(crate) struct Echo {
    address: SocketAddr,
    /// Who sent, in the order of the first datagrams.
    peers: Arc<Mutex<Vec<SocketAddr>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    pub(crate) fn start() -> Self {
        Self::answering(|datagram| Some(datagram.to_vec()))
    }

    /// As [`Self::start`], on this port.
    pub(crate) fn start_on(port: u16) -> Self {
        Self::answering_on(port, |datagram| Some(datagram.to_vec()))
    }

    /// Answers with what `answer` makes of a datagram. `None`: there is no answer, and the peer is
    /// not noted.
    pub(crate) fn answering(answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static) -> Self {
        Self::answering_on(0, answer)
    }

    fn answering_on(port: u16, answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static) -> Self {
        let socket = UdpSocket::bind(("127.0.0.1", port)).unwrap();
        let address = socket.local_addr().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (peers, stop) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default());
        let thread = {
            let (peers, stop) = (Arc::clone(&peers), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut buf = vec![0; LARGEST];
                while !stop.load(Ordering::Relaxed) {
                    let Ok((length, peer)) = socket.recv_from(&mut buf) else { continue };
                    let Some(answer) = answer(&buf[..length]) else { continue };
                    let mut peers = peers.lock().unwrap();
                    if !peers.contains(&peer) {
                        peers.push(peer);
                    }
                    drop(peers);
                    // A visitor that has gone is no matter of the echo.
                    let _ = socket.send_to(&answer, peer);
                }
            })
        };
        Self { address, peers, stop, thread: Some(thread) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn peers(&self) -> Vec<SocketAddr> {
        self.peers.lock().unwrap().clone()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A socket of a visitor that is connected to this loopback port.
pub(crate) fn visitor(port: u16) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket
}

/// Bytes whose order matters.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n.wrapping_mul(31) ^ (n >> 8) ^ length) as u8).collect()
}

/// Sends until the answer is the same datagram. UDP may lose one on a busy machine, and a link may
/// not be ready at first; another datagram than the one sent fails the test at once, unless it is a
/// late answer to the same datagram.
pub(crate) fn ask(visitor: &UdpSocket, datagram: &[u8]) {
    let mut answer = vec![0; LARGEST + 1];
    wait(&format!("an answer of {} bytes", datagram.len()), SOON, || {
        visitor.send(datagram).ok()?;
        match visitor.recv(&mut answer) {
            Ok(length) => {
                assert!(answer[..length] == *datagram, "cut or mixed: {length} bytes");
                Some(())
            }
            // ECONNREFUSED: the port was closed for a moment.
            Err(error) => {
                let is_silence = matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::ConnectionRefused
                );
                assert!(is_silence, "{error}");
                None
            }
        }
    });
    // Answers to a datagram that was sent twice.
    visitor.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    while let Ok(length) = visitor.recv(&mut answer) {
        assert!(answer[..length] == *datagram, "cut or mixed: {length} bytes");
    }
    visitor.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
}

/// The service of this name in the status of a role.
pub(crate) fn service(running: &Running, role: &str, name: &str) -> serde_json::Value {
    let status = running.status(role).unwrap();
    let services = status["sessions"][0]["services"].as_array().unwrap();
    services.iter().find(|service| service["name"] == name).unwrap().clone()
}

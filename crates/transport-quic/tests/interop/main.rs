//! Tests against aioquic, a QUIC implementation that shares no code with quinn, driven by
//! `peer.py`. They cover handshake, streams of both kinds, datagrams, Retry, resumption, key
//! updates and changes of the port, in both roles.
//!
//! `cargo xtask test interop` installs aioquic and names its Python in [`PYTHON`].

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]
#![allow(clippy::print_stdout, reason = "what the peer says is for people")]

#[path = "../setup/mod.rs"]
mod setup;

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proto::Priority;
use setup::{Setup, dialer, pattern, read_all, run, write_all};
use testkit::certs::Authority;
use testkit::path::{self, Fate};
use tls::{Trust, client_config};
use tokio::task::spawn_local;
use tokio::time::timeout;
use transport::{ALPN, Carrier, Datagrams, Dialer, Lane, Lanes, Listener};
use transport_quic::QuicSettings;

/// The variable that names the Python of an environment with aioquic.
const PYTHON: &str = "QUIC_PEER_PYTHON";

fn peer() -> Command {
    let python = std::env::var_os(PYTHON);
    let python = python.unwrap_or_else(|| panic!("{PYTHON} is not set: cargo xtask test interop"));
    let mut command = Command::new(python);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/peer.py"));
    command
}

/// Runs `command` to its end beside the tasks of this thread.
async fn to_its_end(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The next bytes of the first lane; empty at its end.
async fn read(lane: &mut dyn Lane) -> Bytes {
    let mut buf = BytesMut::with_capacity(64 << 10);
    poll_fn(|cx| lane.poll_read(cx, &mut buf)).await.unwrap();
    buf.freeze()
}

async fn write(lane: &mut dyn Lane, bytes: Bytes) {
    let mut frames = VecDeque::from([bytes]);
    while !frames.is_empty() {
        poll_fn(|cx| lane.poll_write(cx, &mut frames)).await.unwrap();
    }
}

/// Sends the bytes of the first lane back until its end.
async fn echo_first(lane: &mut dyn Lane) {
    loop {
        let bytes = read(lane).await;
        if bytes.is_empty() {
            return poll_fn(|cx| lane.poll_close(cx)).await.unwrap();
        }
        write(lane, bytes).await;
    }
}

/// Sends each lane back over a lane of its own. Like the echo of datagrams it never ends; only the
/// first lane ends the test.
async fn echo_lanes(lanes: &mut dyn Lanes) {
    while let Ok(mut lane) = poll_fn(|cx| lanes.poll_accept(cx)).await {
        let all = read_all(&mut *lane).await.unwrap();
        let mut back = lanes.open(Priority::Normal).unwrap().unwrap();
        write_all(&mut *back, all.freeze()).await.unwrap();
        back.finish();
    }
    std::future::pending().await
}

/// Sends one datagram, and waits for room.
async fn send(datagrams: &mut dyn Datagrams, datagram: Bytes) {
    let mut queue = VecDeque::from([datagram]);
    poll_fn(|cx| datagrams.poll_send(cx, &mut queue)).await.unwrap();
}

async fn echo_datagrams(datagrams: &mut dyn Datagrams) {
    while let Ok(datagram) = poll_fn(|cx| datagrams.poll_recv(cx)).await {
        send(datagrams, datagram).await;
    }
    std::future::pending().await
}

/// Echoes everything until the peer ends the first lane.
async fn echo(carrier: Carrier) {
    let Carrier { peer, mut lane, lanes, datagrams } = carrier;
    assert_eq!(peer.transport, transport_quic::QUIC);
    let (mut lanes, mut datagrams) = (lanes.unwrap(), datagrams.unwrap());
    lanes.authenticated(32 << 20);
    tokio::select! {
        () = echo_first(&mut *lane) => {}
        () = echo_lanes(&mut *lanes) => {}
        () = echo_datagrams(&mut *datagrams) => {}
    }
}

/// The peer checks the echo, and prints `says`.
fn talks_to_us(settings: QuicSettings, says: &str) {
    run(async {
        let setup = Setup::with(settings);
        let mut listener = setup.listener();
        let mut client = peer();
        client.args(["client", &listener.local_addr().port().to_string()]);
        let client = to_its_end(client);
        tokio::pin!(client);
        let mut carriers = Vec::new();
        let output = loop {
            tokio::select! {
                output = &mut client => break output,
                incoming = poll_fn(|cx| listener.poll_accept(cx)) => {
                    let handshake = incoming.unwrap().handshake();
                    carriers.push(spawn_local(async { echo(handshake.await.unwrap()).await }));
                }
            }
        };
        let said = String::from_utf8_lossy(&output.stdout);
        println!("{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "the peer complains");
        assert!(said.contains("handshake of a resumed session"), "both of its connections");
        assert!(said.contains(says), "{says}");
        assert_eq!(carriers.len(), 2);
        for carrier in carriers {
            carrier.await.unwrap();
        }
    });
}

#[test]
fn a_client_of_another_implementation_is_served() {
    talks_to_us(QuicSettings::default(), "retried: False");
}

#[test]
fn a_client_of_another_implementation_proves_its_address_when_it_is_told_to() {
    talks_to_us(QuicSettings { handshakes: 0, ..QuicSettings::default() }, "retried: True");
}

/// A server process that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server that makes each client prove its address first; returns the server and its
/// address.
async fn server(folder: &Path) -> (Server, SocketAddr) {
    let (file, mut command) = (folder.join("port"), peer());
    command.arg("server").args([&file, &folder.join("server.crt"), &folder.join("server.key")]);
    let mut server = Server(command.stdin(Stdio::null()).spawn().unwrap());
    loop {
        if let Ok(port) = std::fs::read_to_string(&file) {
            return (server, SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap())));
        }
        assert!(server.0.try_wait().unwrap().is_none(), "the peer has ended");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sends lanes, and waits until the same number of lanes with the same bytes has returned.
async fn lanes_there_and_back(lanes: &mut dyn Lanes, seeds: std::ops::Range<u64>, length: usize) {
    let (mut sent, mut back) = (BTreeSet::new(), BTreeSet::new());
    for seed in seeds {
        let bytes = pattern(seed, 0, length);
        let mut lane = lanes.open(Priority::Normal).unwrap().unwrap();
        write_all(&mut *lane, bytes.clone()).await.unwrap();
        lane.finish();
        sent.insert(bytes);
    }
    while back.len() < sent.len() {
        let mut lane = poll_fn(|cx| lanes.poll_accept(cx)).await.unwrap();
        back.insert(read_all(&mut *lane).await.unwrap().freeze());
    }
    assert!(back == sent, "not the bytes that were sent");
}

#[test]
fn a_server_of_another_implementation_is_dialled() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("of the peer").unwrap();
        let trust = Trust::Authority(authority.save(folder.path()).unwrap());
        authority.server(&["peer.example"]).unwrap().save(folder.path(), "server").unwrap();
        let (_server, address) = server(folder.path()).await;
        let tls = client_config(&trust, None, &[ALPN]).unwrap();
        let dialer = dialer(Arc::clone(&tls), "peer.example", &QuicSettings::default());
        for turn in 0..2 {
            let path = path::Path::new(address, |_, _| Fate::Passes);
            let carrier = dialer.dial(path.address()).await.unwrap();
            let (mut lane, mut lanes) = (carrier.lane, carrier.lanes.unwrap());
            let mut datagrams = carrier.datagrams.unwrap();
            lanes.authenticated(32 << 20);

            let word = pattern(turn, 0, 100_000);
            write(&mut *lane, word.clone()).await;
            let mut back = BytesMut::new();
            while back.len() < word.len() {
                back.extend_from_slice(&read(&mut *lane).await);
            }
            assert!(back == word, "the first lane: not the bytes that were sent");
            lanes_there_and_back(&mut *lanes, 0..40, 50_000).await;

            let datagram = loop {
                for _ in 0..3 {
                    send(&mut *datagrams, Bytes::from_static(b"datagram")).await;
                }
                // A datagram may be lost, on a busy machine on loopback as well.
                let answer = poll_fn(|cx| datagrams.poll_recv(cx));
                if let Ok(answer) = timeout(Duration::from_secs(2), answer).await {
                    break answer.unwrap();
                }
            };
            assert_eq!(datagram, "datagram");

            // What is in flight comes first: see `CHANGE_KEYS` in `peer.py`.
            tokio::time::sleep(Duration::from_millis(300)).await;
            let mut asking = lanes.open(Priority::Normal).unwrap().unwrap();
            write_all(&mut *asking, Bytes::from_static(b"change keys")).await.unwrap();
            asking.finish();
            let mut answer = poll_fn(|cx| lanes.poll_accept(cx)).await.unwrap();
            assert_eq!(read_all(&mut *answer).await.unwrap(), "change keys");

            path.rebind();
            lanes_there_and_back(&mut *lanes, 100..110, 20_000).await;

            poll_fn(|cx| lane.poll_close(cx)).await.unwrap();
            assert!(read(&mut *lane).await.is_empty(), "its end");
            println!("turn {turn}: all came back");
        }
    });
}

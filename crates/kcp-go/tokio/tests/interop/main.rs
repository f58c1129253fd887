//! Streams and listeners against kcp-go itself, over real sockets. `tests/interop/` of crate
//! `kcp-go` has the same for each cipher, each ratio and each loss.
//!
//! `cargo xtask test kcp-interop` builds the peer, a program in Go, and names it.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

#[path = "../../../sessions/tests/interop/peer.rs"]
#[expect(dead_code, reason = "the other crate's tests use all of it")]
mod peer;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kcp_go::envelope::Seal;
use kcp_go::fec::Ratio;
use kcp_go::session;
use kcp_go::wire::Conversation;
use kcp_go_crypto::{Crypt, derive};
use kcp_tokio::{Config, Listener, Stream, Udp};
use sha2::{Digest as _, Sha256};
use testkit::netem::Rng;

use peer::Peer;

const BYTES: usize = 2 << 20;
const PATIENCE: Duration = Duration::from_secs(120);

/// A cipher of each class, and the data and parity shards of both ends; 0: no FEC.
const CASES: [(&str, usize, usize); 3] =
    [("aes-128-gcm", 10, 3), ("salsa20", 3, 2), ("null", 0, 0)];

/// The flags of both roles of the peer: the peer receives and sends.
fn flags((cipher, data, parity): (&str, usize, usize)) -> Vec<String> {
    vec![
        format!("-crypt={cipher}"),
        format!("-datashard={data}"),
        format!("-parityshard={parity}"),
        format!("-receive={BYTES}"),
        format!("-send={BYTES}"),
    ]
}

fn config((_, data, parity): (&str, usize, usize)) -> Config {
    let mut session = session::Config::new(Conversation(0));
    session.encode = Ratio::new(data, parity);
    session.decode = Ratio::new(data, parity);
    Config::new(session)
}

/// The envelope with the default passphrase of the peer.
fn seal((cipher, ..): (&str, usize, usize)) -> Arc<dyn Seal> {
    let crypt: Crypt = cipher.parse().unwrap();
    Arc::from(crypt.envelope(&derive("it's a secrect")))
}

async fn socket() -> Udp {
    Udp::bind("127.0.0.1:0".parse().unwrap()).await.unwrap()
}

/// The number of bytes and their hash, as the peer says it.
fn summary(bytes: &[u8]) -> String {
    let mut text = format!("{} ", bytes.len());
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

/// Both send at once, and each side tells the hash of what came.
async fn exchange(stream: &Stream, peer: Peer, has_fec: bool) {
    let mut rng = Rng::new(3);
    let bytes: Bytes = (0..BYTES).map(|_| rng.bits().to_le_bytes()[7]).collect();
    let mut received = Vec::new();
    let both = async {
        tokio::join!(stream.write_bytes(bytes.clone()), async {
            while received.len() < BYTES {
                received.extend_from_slice(&stream.read_bytes(BYTES).await.unwrap());
            }
            stream.flushed().await.unwrap();
        })
    };
    tokio::time::timeout(PATIENCE, both).await.unwrap().0.unwrap();
    // The two lines come in any order.
    let lines = tokio::task::spawn_blocking(move || [peer.next(""), peer.next("")]);
    let mut lines = lines.await.unwrap();
    lines.sort_unstable();
    let wanted = [format!("received {}", summary(&bytes)), format!("sent {}", summary(&received))];
    assert_eq!(lines, wanted);
    assert_eq!(stream.counters().parity_out > 0, has_fec);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_and_a_listener_of_kcp_go_exchange_bytes() {
    for case in CASES {
        let flags = flags(case);
        let (peer, port) = Peer::serve(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        let address = ([127, 0, 0, 1], port).into();
        let conversation = Conversation(0x8123_4567);
        let socket = socket().await;
        let stream = Stream::connect(socket, address, conversation, config(case), seal(case));
        exchange(&stream.unwrap(), peer, case.1 > 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_and_a_client_of_kcp_go_exchange_bytes() {
    for case in CASES {
        let listener = Listener::bind(socket().await, config(case), seal(case)).unwrap();
        let mut flags = flags(case);
        flags.push(format!("-dial=127.0.0.1:{}", listener.address().port()));
        let peer = Peer::start(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        let (stream, _) = tokio::time::timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        exchange(&stream, peer, case.1 > 0).await;
    }
}

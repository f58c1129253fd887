//! Streams over real sockets on loopback, with batches of the system.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kcp_go::envelope::Seal;
use kcp_go::fec::Ratio;
use kcp_go::session;
use kcp_go::wire::Conversation;
use kcp_go_crypto::{Crypt, derive};
use kcp_tokio::{Config, Listener, PacketSocket as _, Run, Stream, Udp};
use sha2::{Digest as _, Sha256};
use testkit::netem::Rng;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const CONVERSATION: Conversation = Conversation(0xf123_4567);
const BYTES: usize = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

async fn socket() -> Udp {
    Udp::bind("127.0.0.1:0".parse().unwrap()).await.unwrap()
}

fn seal() -> Arc<dyn Seal> {
    let crypt: Crypt = "aes-128-gcm".parse().unwrap();
    Arc::from(crypt.envelope(&derive("a long passphrase")))
}

fn payload() -> Bytes {
    let mut rng = Rng::new(4);
    (0..BYTES).map(|_| rng.bits().to_le_bytes()[7]).collect()
}

/// Reads so many bytes and returns their hash.
async fn hash_of(stream: &Stream, length: usize) -> Vec<u8> {
    let (mut hash, mut read) = (Sha256::new(), 0);
    while read < length {
        let bytes = stream.read_bytes(length - read).await.unwrap();
        hash.update(&bytes);
        read += bytes.len();
    }
    hash.finalize().to_vec()
}

async fn exchange(config: Config) -> (Stream, Stream, Listener) {
    let listener = Listener::bind(socket().await, config.clone(), seal()).unwrap();
    let peer = listener.address();
    let client = Stream::connect(socket().await, peer, CONVERSATION, config, seal()).unwrap();
    let bytes = payload();
    let wanted = Sha256::digest(&bytes).to_vec();
    client.write_bytes(bytes.slice(..1)).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    let (up, down, at_server, at_client) = tokio::join!(
        client.write_bytes(bytes.slice(1..)),
        server.write_bytes(bytes.clone()),
        hash_of(&server, BYTES),
        hash_of(&client, BYTES),
    );
    up.and(down).unwrap();
    assert_eq!((&at_server, &at_client), (&wanted, &wanted));
    (client, server, listener)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_megabytes_arrive_in_both_directions() {
    let config = Config::new(session::Config::new(CONVERSATION));
    let done = tokio::time::timeout(PATIENCE, exchange(config)).await.unwrap();
    let (mut client, _server, listener) = done;
    tokio::time::timeout(PATIENCE, client.shutdown()).await.unwrap().unwrap();
    let counters = listener.counters();
    assert!(counters.datagrams_out > counters.runs_out, "runs are gathered: {counters:?}");
}

#[tokio::test]
async fn four_megabytes_arrive_with_fec_on_one_thread() {
    let mut session = session::Config::new(CONVERSATION);
    session.encode = Ratio::new(10, 3);
    let done = tokio::time::timeout(PATIENCE, exchange(Config::new(session))).await.unwrap();
    assert!(done.0.counters().engine.bytes_in == BYTES as u64);
}

#[tokio::test]
async fn a_driver_serves_streams_of_its_thread_without_spawning() {
    let config = Config::new(session::Config::new(CONVERSATION));
    let (listener, server) = Listener::with_driver(socket().await, config.clone(), seal()).unwrap();
    let peer = listener.address();
    let (mut client, driver) =
        Stream::with_driver(socket().await, peer, CONVERSATION, config, seal()).unwrap();
    let talk = async {
        client.write_all(b"hello").await.unwrap();
        let (mut accepted, _) = listener.accept().await.unwrap();
        let mut hello = [0; 5];
        accepted.read_exact(&mut hello).await.unwrap();
        assert_eq!(&hello, b"hello");
    };
    tokio::select! {
        () = talk => {}
        ended = driver => panic!("{ended:?}"),
        ended = server => panic!("{ended:?}"),
        () = tokio::time::sleep(PATIENCE) => panic!("nothing arrives"),
    }
}

#[tokio::test]
async fn runs_arrive_as_the_datagrams_that_were_sent() {
    let (mut from, mut to) = (socket().await, socket().await);
    let address = to.local_address().unwrap();
    let bytes: Vec<u8> = (0..250_u8).collect();
    let run = Run { to: address, bytes: &bytes, segment: 100 };
    assert!(from.longest_run() >= 1 && to.buffer() >= 2048);
    std::future::poll_fn(|cx| from.poll_send(cx, &run)).await.unwrap();
    let mut received = Vec::new();
    let mut buffers = vec![vec![0; to.buffer()]; 4];
    while received.len() < 3 {
        let mut slices: Vec<_> =
            buffers.iter_mut().map(|buffer| io::IoSliceMut::new(buffer)).collect();
        let mut arrivals = [kcp_tokio::Arrival::default(); 4];
        let read = std::future::poll_fn(|cx| to.poll_recv(cx, &mut slices, &mut arrivals));
        let count = tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
        for (arrival, buffer) in arrivals.iter().zip(&buffers).take(count) {
            assert_eq!(arrival.from, from.local_address().unwrap());
            received.extend(buffer[..arrival.length].chunks(arrival.segment).map(<[u8]>::to_vec));
        }
    }
    assert_eq!(received, bytes.chunks(100).map(<[u8]>::to_vec).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_peer_that_starts_late_is_reached() {
    let config = Config::new(session::Config::new(CONVERSATION));
    let reserved = socket().await;
    let peer = reserved.local_address().unwrap();
    drop(reserved);
    let client = Stream::connect(socket().await, peer, CONVERSATION, config.clone(), seal());
    let client = client.unwrap();
    client.write_bytes(Bytes::from_static(b"early")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let listener = Listener::bind(Udp::bind(peer).await.unwrap(), config, seal()).unwrap();
    let (server, _) = tokio::time::timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    assert_eq!(server.read_bytes(9).await.unwrap(), "early");
}

//! What strangers may do to a listener.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kcp_go::session::{self, Session};
use kcp_go::wire::{Conversation, oob_head};

use crate::net::address;
use crate::{CLIENT, CONVERSATION, SERVER, World, config, seal, within};

/// The first datagram of a new session.
fn first(conversation: u32) -> Vec<u8> {
    let now = Instant::now();
    let config = session::Config::new(Conversation(conversation));
    let mut session = Session::new(config, seal(), now);
    session.write(now, &mut Bytes::from_static(b"new"));
    let mut out = Vec::new();
    let mut nonce = conversation;
    let mut random = |bytes: &mut [u8]| {
        bytes.fill(9);
        nonce += 1;
        bytes[..4].copy_from_slice(&nonce.to_le_bytes());
    };
    // The pacer of a new session lets nothing leave at once.
    let now = now + Duration::from_secs(1);
    session.poll_transmit(now, &mut random, &mut out).unwrap();
    out
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_may_begin_so_many_sessions_per_second() {
    let mut config = config();
    config.limits.per_source = 10;
    let world = World::new(config, 0.0);
    for port in 0..100 {
        let from = SocketAddr::new(address(9).ip(), 2_000 + port);
        world.net.send(from, address(SERVER), &first(u32::from(port) * 100));
    }
    settle().await;
    let counters = world.listener.counters();
    let counted = (counters.sessions, counters.limited, counters.foreign);
    assert_eq!(counted, (10, 90, 0));
    // Others are served.
    world.accept_among(10).await;
}

#[tokio::test(start_paused = true)]
async fn sessions_are_limited_in_total_and_in_the_backlog() {
    let mut config = config();
    config.limits.sessions = 20;
    config.limits.backlog = 15;
    let world = World::new(config, 0.0);
    for (part, sessions) in [(0, 15), (1, 20)] {
        for n in 0..30_u16 {
            let from = address(100 + part * 30 + n);
            world.net.send(from, address(SERVER), &first(u32::from(part * 30 + n) * 100));
        }
        settle().await;
        assert_eq!(world.listener.counters().sessions, sessions);
        // Streams that are gone leave after a while.
        let mut streams = Vec::new();
        while let Ok(accepted) =
            tokio::time::timeout(Duration::from_millis(1), world.listener.accept()).await
        {
            streams.push(accepted.unwrap().0);
        }
        std::mem::forget(streams);
    }
}

#[tokio::test(start_paused = true)]
async fn a_captured_beginning_neither_ends_nor_begins_a_session() {
    let world = World::new(config(), 0.0);
    let server = world.accept().await;
    let captured = first(7_000);
    let from = address(CLIENT);
    // From the address of a live session.
    world.net.send(from, address(SERVER), &captured);
    settle().await;
    world.client.write_bytes(Bytes::from_static(b"alive")).await.unwrap();
    assert_eq!(within(10, server.read_bytes(9)).await.unwrap(), "alive");
    assert_eq!(world.listener.counters().foreign, 1);
    // The same bytes from elsewhere are a copy.
    world.net.send(address(77), address(SERVER), &captured);
    settle().await;
    let counters = world.listener.counters();
    assert_eq!((counters.sessions, counters.replayed), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_begins_anew_replaces_its_quiet_session() {
    let world = World::new(config(), 0.0);
    let server = world.accept().await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    world.net.send(address(CLIENT), address(SERVER), &first(7_000));
    let (next, _) = within(10, world.listener.accept()).await.unwrap();
    assert_eq!(next.conversation(), Conversation(7_000));
    assert_eq!(next.read_bytes(9).await.unwrap(), "new");
    let error = server.read_bytes(9).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn noise_begins_nothing() {
    let world = World::new(config(), 0.0);
    let server = world.accept().await;
    // Out of band for nobody, from a stranger and from a peer; what is no datagram of this key.
    let head = oob_head(Conversation(99), 3).unwrap();
    for (from, nonce) in [(address(9), 1), (address(CLIENT), 2)] {
        let seal = seal();
        let mut sealed = vec![0; seal.head()];
        sealed.extend_from_slice(&head);
        sealed.extend_from_slice(b"abc");
        sealed.resize(sealed.len() + seal.tail(), 0);
        seal.seal(&[nonce; 12], &mut sealed).unwrap();
        world.net.send(from, address(SERVER), &sealed);
        sealed[20] ^= 1;
        world.net.send(from, address(SERVER), &sealed);
        world.net.send(from, address(SERVER), &[7; 5]);
    }
    settle().await;
    let counters = world.listener.counters();
    assert_eq!((counters.sessions, counters.foreign, counters.unreadable), (1, 2, 4));
    drop(server);
}

#[tokio::test(start_paused = true)]
async fn a_listener_connects_and_has_one_session_with_a_peer() {
    let world = World::new(config(), 0.0);
    let there = address(3);
    let (socket, _) = world.net.socket(there, crate::path(0.0));
    let other = kcp_tokio::Listener::bind(socket, config(), seal()).unwrap();
    let stream = world.listener.connect(there, CONVERSATION).unwrap();
    let twin = world.listener.connect(there, Conversation(5)).unwrap();
    stream.write_bytes(Bytes::from_static(b"hello")).await.unwrap();
    let (accepted, peer) = within(10, other.accept()).await.unwrap();
    assert_eq!((peer, accepted.conversation()), (address(SERVER), CONVERSATION));
    assert_eq!(twin.read_bytes(9).await.unwrap_err().kind(), ErrorKind::AddrInUse);
    // One socket has sessions that began here and there.
    let server = world.accept().await;
    drop((server, accepted, stream));
}

impl World {
    /// The session of the client, behind `others`.
    async fn accept_among(&self, others: usize) {
        self.client.write_bytes(Bytes::from_static(b"!")).await.unwrap();
        for _ in 0..others {
            let (_, peer) = within(10, self.listener.accept()).await.unwrap();
            assert_ne!(peer, address(CLIENT));
        }
        let (_, peer) = within(10, self.listener.accept()).await.unwrap();
        assert_eq!(peer, address(CLIENT));
    }
}

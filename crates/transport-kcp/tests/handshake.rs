//! Handshakes with peers that are silent, leave or send garbage harm no other peer, and no stranger
//! gets more bytes than it has sent.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use crate::setup;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

use setup::{LOOPBACK, Setup, run, shake};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::timeout;
use transport::Listener;

/// Bytes of a Hello, of a Cookie, and of an Opening without its bootstrap packet (`wire.rs`).
const HELLO: usize = 1_200;
const COOKIE: usize = 38;
const OPENING: usize = 37;

/// The time in which a datagram arrives that is to arrive.
const SOON: Duration = Duration::from_secs(10);

/// A Hello of the client with this id.
fn hello(client: u64) -> Vec<u8> {
    let mut hello = vec![0; HELLO];
    hello[0] = 0x40;
    hello[9] = 1;
    hello[10..18].copy_from_slice(&client.to_be_bytes());
    hello
}

/// The Opening that answers a Cookie, with a bootstrap packet that nobody sealed.
fn opening(cookie: &[u8]) -> Vec<u8> {
    let (client, server, proof) = (&cookie[1..9], &cookie[10..18], &cookie[18..]);
    [&[0x42][..], server, client, proof, &[0x52], server, &[0; 40]].concat()
}

/// The Cookie for the client with this id.
async fn cookie(socket: &UdpSocket, server: SocketAddr, client: u64) -> Vec<u8> {
    socket.send_to(&hello(client), server).await.unwrap();
    let mut buf = [0; 2_048];
    loop {
        let n = timeout(SOON, socket.recv(&mut buf)).await.unwrap().unwrap();
        // A connection that begins and is not accepted closes by a bootstrap packet.
        if buf[0] == 0x52 {
            continue;
        }
        assert_eq!((buf[0], n), (0x41, COOKIE));
        assert_eq!(buf[1..9], client.to_be_bytes());
        return buf[..n].to_vec();
    }
}

/// Whether a connection waits to be accepted, once all that was sent before has been read: the
/// answer to a further Hello comes later.
async fn begins(listener: &mut dyn Listener, socket: &UdpSocket) -> bool {
    let server = listener.local_addr();
    cookie(socket, server, u64::MAX).await;
    poll_fn(|cx| std::task::Poll::Ready(listener.poll_accept(cx).is_ready())).await
}

#[test]
fn silent_peers_cost_nobody_else() {
    run(async {
        let setup = Setup::new();
        let (mut listener, dialer) = (setup.listener(), setup.dialer());
        let server = listener.local_addr();
        let silent = UdpSocket::bind(LOOPBACK).await.unwrap();
        let mut handshakes = JoinSet::new();
        for client in 0..300 {
            let cookie = cookie(&silent, server, client).await;
            silent.send_to(&opening(&cookie), server).await.unwrap();
            let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
            assert_eq!(incoming.remote(), silent.local_addr().unwrap());
            handshakes.spawn_local(incoming.handshake());
        }
        let (dialled, accepted) = shake(&mut listener, &dialer, server).await;
        dialled.unwrap();
        accepted.unwrap();
        assert!(handshakes.try_join_next().is_none(), "the silent peers wait for their deadline");
    });
}

#[test]
fn a_cookie_holds_for_its_address_and_begins_one_connection() {
    run(async {
        let setup = Setup::new();
        let mut listener = setup.listener();
        let server = listener.local_addr();
        let own = UdpSocket::bind(LOOPBACK).await.unwrap();
        let other = UdpSocket::bind(LOOPBACK).await.unwrap();
        let cookie = cookie(&own, server, 7).await;
        let good = opening(&cookie);
        other.send_to(&good, server).await.unwrap();
        assert!(!begins(&mut listener, &other).await, "the address is another");
        for at in 1..OPENING {
            let mut forged = good.clone();
            forged[at] ^= 1;
            own.send_to(&forged, server).await.unwrap();
        }
        assert!(!begins(&mut listener, &own).await, "each byte is a part of the proof");
        own.send_to(&good, server).await.unwrap();
        assert!(begins(&mut listener, &own).await);
        for _ in 0..3 {
            own.send_to(&good, server).await.unwrap();
        }
        assert!(!begins(&mut listener, &own).await, "a copy begins nothing");
    });
}

#[test]
fn garbage_is_passed_over_and_gets_no_more_than_it_sent() {
    run(async {
        let setup = Setup::new();
        let (mut listener, dialer) = (setup.listener(), setup.dialer());
        let server = listener.local_addr();
        let stranger = UdpSocket::bind(LOOPBACK).await.unwrap();
        let (mut sent, mut state) = (0, 1_u64);
        for round in 0..2_000_usize {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // All types, with lengths around those of the layouts.
            let length = (round / 16) % 80;
            let mut noise: Vec<u8> = (0..length).map(|at| (state >> (at % 56)) as u8).collect();
            if let Some(first) = noise.first_mut() {
                *first = 0x40 + (*first & 0x1f);
            }
            sent += noise.len();
            stranger.send_to(&noise, server).await.unwrap();
            if round % 50 == 0 {
                tokio::task::yield_now().await;
            }
        }
        let (dialled, accepted) = shake(&mut listener, &dialer, server).await;
        dialled.unwrap();
        accepted.unwrap();
        let (mut got, mut buf) = (0, [0; 2_048]);
        while let Ok(n) = stranger.try_recv(&mut buf) {
            got += n;
        }
        assert!(got <= sent, "{got} bytes for {sent}");
    });
}

#[test]
fn a_packet_of_a_connection_that_nobody_knows_is_answered_by_fewer_bytes() {
    run(async {
        let setup = Setup::new();
        let listener = setup.listener();
        let server = listener.local_addr();
        let client = UdpSocket::bind(LOOPBACK).await.unwrap();
        let sealed = |length: usize| {
            let mut packet = vec![9; length];
            packet[0] = 0x50;
            // The worker.
            packet[1] = 0;
            packet
        };
        // The first packet is shorter than an answer.
        client.send_to(&sealed(24), server).await.unwrap();
        client.send_to(&sealed(40), server).await.unwrap();
        let mut buf = [0; 2_048];
        let (n, _) = timeout(SOON, client.recv_from(&mut buf)).await.unwrap().unwrap();
        assert_eq!((buf[0], n), (0x43, 25));
        assert_eq!(buf[1..9], sealed(40)[1..9]);
        assert!(client.try_recv(&mut buf).is_err(), "one answer");
    });
}

#[test]
fn a_handshake_that_is_given_up_ends_at_both_sides() {
    run(async {
        let setup = Setup::new();
        let (mut listener, dialer) = (setup.listener(), setup.dialer());
        let server = listener.local_addr();
        let dialling = tokio::task::spawn_local(transport::Dialer::dial(&dialer, server));
        let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        drop(incoming);
        let outcome = timeout(SOON, dialling).await.unwrap().unwrap();
        assert!(outcome.unwrap_err().is_network(), "the next attempt may succeed");
    });
}

//! A scripted WebSocket peer, which can break every rule.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use net::listen_group;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use transport::{Carrier, CarrierError, Lane, Listener as _};
use transport_tcp::TcpListener;
use transport_ws::{Proxies, Terms, WsListener};

/// The deadline of a step, five times the duration of the slowest step.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// The key of all masks.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

pub(crate) const CONTINUATION: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

/// The bit `FIN` in the first byte of a frame.
pub(crate) const FIN: u8 = 0x80;

/// Makes a masked frame with the first byte `first`.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = head(first, payload.len(), 0x80);
    bytes.extend_from_slice(&MASK);
    bytes.extend(payload.iter().enumerate().map(|(i, byte)| byte ^ MASK[i % 4]));
    bytes
}

/// Makes an unmasked frame with the first byte `first`.
pub(crate) fn bare(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = head(first, payload.len(), 0);
    bytes.extend_from_slice(payload);
    bytes
}

fn head(first: u8, length: usize, masked: u8) -> Vec<u8> {
    let mut bytes = vec![first];
    match length {
        0..=125 => bytes.push(masked | u8::try_from(length).unwrap()),
        126..=0xffff => {
            bytes.push(masked | 126);
            bytes.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        _ => {
            bytes.push(masked | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes
}

/// A valid request.
pub(crate) const REQUEST: &str = "GET /tunnel HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\n";

/// A listener of `ws://` at `/tunnel`, which believes a proxy on loopback.
pub(crate) fn listener() -> WsListener {
    let socket = listen_group(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap().remove(0);
    let inner = TcpListener::new(socket, None).unwrap();
    let proxies = Proxies::new(|ip| ip.is_loopback());
    let ping_after = Duration::from_secs(25);
    let terms = Terms { proxies, ping_after, offers: None, pages: None };
    WsListener::new(inner, Some("/tunnel"), terms)
}

/// Runs the server's handshake with a peer that sends `request`; returns the outcome, the peer's
/// socket and the head of the answer.
pub(crate) async fn shake(request: &[u8]) -> (Result<Carrier, CarrierError>, TcpStream, String) {
    let mut listener = listener();
    let mut peer = TcpStream::connect(listener.local_addr()).await.unwrap();
    let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
    let talk = async {
        peer.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            match peer.read_u8().await {
                Ok(byte) => answer.push(byte),
                Err(_) => break,
            }
        }
        // A refused peer closes the connection.
        if !answer.starts_with(b"HTTP/1.1 101") {
            peer.shutdown().await.unwrap();
        }
        String::from_utf8(answer).unwrap()
    };
    let both = async { tokio::join!(incoming.handshake(), talk) };
    let (carrier, answer) = tokio::time::timeout(DEADLINE, both).await.unwrap();
    (carrier, peer, answer)
}

/// The output of a lane up to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) payload: Vec<u8>,
    /// A clean end, or the text of the error.
    pub(crate) end: Result<(), String>,
}

/// Reads the lane to its end, and ends our direction after a clean end.
pub(crate) async fn hear(lane: &mut dyn Lane) -> Heard {
    let mut payload = Vec::new();
    loop {
        let mut buf = BytesMut::with_capacity(64 << 10);
        match poll_fn(|cx| lane.poll_read(cx, &mut buf)).await {
            Ok(0) => {
                poll_fn(|cx| lane.poll_close(cx)).await.unwrap();
                return Heard { payload, end: Ok(()) };
            }
            Ok(_) => payload.extend_from_slice(&buf),
            Err(error) => return Heard { payload, end: Err(error.to_string()) },
        }
    }
}

/// The frames of a server in `bytes`, each with opcode and payload. Each frame must be whole, final
/// and unmasked.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [first, second, rest @ ..] = bytes {
        assert_eq!((first & 0xf0, second & 0x80), (FIN, 0), "final, and not masked");
        let (length, rest) = match second & 0x7f {
            126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
            127 => {
                let length = u64::from_be_bytes(rest[..8].try_into().unwrap());
                (usize::try_from(length).unwrap(), &rest[8..])
            }
            short => (usize::from(short), rest),
        };
        frames.push((first & 0xf, rest[..length].to_vec()));
        bytes = &rest[length..];
    }
    assert!(bytes.is_empty(), "a frame was cut off");
    frames
}

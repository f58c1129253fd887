//! Tests of the engine against itself and against rustls' buffered connections, without a socket.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use rustls::{ClientConfig, ServerConfig, ServerConnection};
use tls::{Trust, client_config, self_signed, server_config, server_name};
use transport::{ALPN, EXPORTER_LABEL, Producer, Through, Unchanged};

use super::engine::{Engine, Standing};
use super::session::{Client, Server, Session};

fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let folder = tempfile::tempdir().unwrap();
    let own = self_signed(folder.path(), &[]).unwrap();
    let client = client_config(&Trust::Pins(vec![own.pin()]), None, &[ALPN]).unwrap();
    (server_config(&own, None, &[ALPN]).unwrap(), client)
}

/// Carries all bytes from one engine to the other, `step` bytes at a time; returns the plaintext.
fn carry<A: Session, B: Session>(from: &mut Engine<A>, to: &mut Engine<B>, step: usize) -> Bytes {
    let wire = std::mem::take(from.outgoing());
    let mut plain = BytesMut::new();
    for piece in wire.chunks(step) {
        to.incoming(piece.len()).extend_from_slice(piece);
        let mut sink = BytesMut::with_capacity(1000);
        to.process(&mut sink, &mut Unchanged).unwrap();
        plain.extend_from_slice(&sink);
        loop {
            let mut sink = BytesMut::with_capacity(1000);
            if to.take_surplus(&mut sink, &mut Unchanged) == 0 {
                break;
            }
            plain.extend_from_slice(&sink);
        }
    }
    plain.freeze()
}

#[test]
fn records_cut_at_every_byte_bring_the_same_bytes() {
    let (server, client) = configs();
    for step in [1, 2, 3, 5, 16_406, usize::MAX] {
        let mut a = Engine::new(Client::new(&client, server_name("x").unwrap()).unwrap().0);
        let mut b = Engine::new(Server::new(&server).unwrap().0);
        a.process(&mut BytesMut::new(), &mut Unchanged).unwrap();
        while !a.outgoing().is_empty() || !b.outgoing().is_empty() {
            carry(&mut a, &mut b, step);
            carry(&mut b, &mut a, step);
        }
        let sent: Bytes = (0..40_000_u32).map(|i| i.to_le_bytes()[i as usize % 2]).collect();
        let mut frames: VecDeque<Bytes> =
            [&sent[..10], &[], &sent[10..30], &sent[30..39_000], &sent[39_000..]]
                .map(Bytes::copy_from_slice)
                .into();
        let mut sealed = 0;
        while !frames.is_empty() {
            sealed += a.seal(&mut frames, 20_000).unwrap();
        }
        assert_eq!(sealed, sent.len());
        assert_eq!(carry(&mut a, &mut b, step), sent);
        b.close().unwrap();
        carry(&mut b, &mut a, step);
        assert!(a.peer_closed());
        assert_eq!(b.held(), 0, "an idle engine holds no buffer");
    }
}

/// Ends of the two sides after the handshake.
fn open() -> (Engine<Client>, Engine<Server>) {
    let (server, client) = configs();
    let mut a = Engine::new(Client::new(&client, server_name("x").unwrap()).unwrap().0);
    let mut b = Engine::new(Server::new(&server).unwrap().0);
    a.process(&mut BytesMut::new(), &mut Unchanged).unwrap();
    while !a.outgoing().is_empty() || !b.outgoing().is_empty() {
        carry(&mut a, &mut b, usize::MAX);
        carry(&mut b, &mut a, usize::MAX);
    }
    (a, b)
}

/// Bytes 0, 1, 2 and so on, made as they are taken, a few less than there is room for.
struct Counting(std::ops::Range<u32>);

impl Producer for Counting {
    fn size(&self) -> usize {
        self.0.len()
    }

    fn fill(&mut self, room: &mut [u8]) -> usize {
        let most = room.len() - 9;
        room[..most].iter_mut().zip(&mut self.0).map(|(to, i)| *to = i.to_le_bytes()[0]).count()
    }
}

/// Lets every second byte through.
struct Halving(bool);

impl Through for Halving {
    fn change(&mut self, _bytes: &mut [u8]) -> usize {
        unreachable!("the engine copies")
    }

    fn append(&mut self, bytes: &[u8], out: &mut BytesMut) {
        for &byte in bytes {
            self.0 = !self.0;
            if self.0 {
                out.extend_from_slice(&[byte]);
            }
        }
    }
}

#[test]
fn a_source_is_sealed_whole() {
    let (mut a, mut b) = open();
    a.seal_from(&mut Counting(0..0)).unwrap();
    assert!(a.outgoing().is_empty());
    a.seal_from(&mut Counting(0..100_000)).unwrap();
    let wanted: Bytes = (0..100_000_u32).map(|i| i.to_le_bytes()[0]).collect();
    assert!(carry(&mut a, &mut b, usize::MAX) == wanted);
}

#[test]
fn what_goes_through_keeps_its_order_whatever_room_there_is() {
    let sent: Bytes = (0..100_000_u32).map(|i| i.to_le_bytes()[i as usize % 2]).collect();
    let wanted: Vec<u8> = sent.iter().copied().step_by(2).collect();
    for room in [1, 1000, 16_000, 17_000, 40_000] {
        let (mut a, mut b) = open();
        a.seal(&mut VecDeque::from([sent.clone()]), usize::MAX).unwrap();
        let wire = std::mem::take(a.outgoing());
        let (mut through, mut heard) = (Halving(false), Vec::new());
        for piece in wire.chunks(50_000) {
            b.incoming(piece.len()).extend_from_slice(piece);
            let mut sink = BytesMut::with_capacity(room);
            b.process(&mut sink, &mut through).unwrap();
            loop {
                heard.extend_from_slice(&sink);
                sink.clear();
                if b.take_surplus(&mut sink, &mut through) == 0 {
                    break;
                }
            }
        }
        assert!(heard == wanted, "room for {room} bytes");
    }
}

#[test]
fn small_frames_share_a_record() {
    let (mut a, _b) = open();
    let mut frames = VecDeque::from(vec![Bytes::from_static(b"0123456789"); 1000]);
    a.seal(&mut frames, 1 << 20).unwrap();
    assert_eq!(a.outgoing().len(), 10_000 + 22);
}

/// Our client and rustls' buffered server.
struct Mixed {
    client: Engine<Client>,
    server: ServerConnection,
}

impl Mixed {
    /// Carries bytes until neither side has bytes to send; returns the plaintext that the client
    /// read.
    fn settle(&mut self) -> Vec<u8> {
        let mut got = BytesMut::with_capacity(1 << 20);
        loop {
            let standing = self.client.process(&mut got, &mut Unchanged).unwrap();
            let out = self.client.outgoing();
            while !out.is_empty() {
                let mut bytes = &out[..];
                let n = self.server.read_tls(&mut bytes).unwrap();
                out.advance(n);
                self.server.process_new_packets().unwrap();
            }
            let mut answer = Vec::new();
            while self.server.wants_write() {
                self.server.write_tls(&mut answer).unwrap();
            }
            if answer.is_empty() {
                assert_eq!(standing, Standing::Open);
                return got.to_vec();
            }
            self.client.incoming(answer.len()).extend_from_slice(&answer);
        }
    }
}

#[test]
fn the_exporter_is_that_of_rustls() {
    let (server, client) = configs();
    let (client, secret) = Client::new(&client, server_name("x").unwrap()).unwrap();
    let server = ServerConnection::new(server).unwrap();
    let mut mixed = Mixed { client: Engine::new(client), server };
    mixed.settle();
    let theirs = mixed.server.export_keying_material([0; 32], EXPORTER_LABEL, None).unwrap();
    let suite = mixed.client.session().state().negotiated_cipher_suite().unwrap();
    assert_eq!(secret.export(suite, EXPORTER_LABEL), Some(theirs));
    assert_eq!(secret.export(suite, EXPORTER_LABEL), None, "the secret is kept no longer");
}

#[test]
fn a_key_update_of_the_peer_is_followed_and_answered() {
    let (server, client) = configs();
    let (client, _secret) = Client::new(&client, server_name("x").unwrap()).unwrap();
    let server = ServerConnection::new(server).unwrap();
    let mut mixed = Mixed { client: Engine::new(client), server };
    mixed.settle();
    for round in 0..3 {
        mixed.server.refresh_traffic_keys().unwrap();
        mixed.server.writer().write_all(b"under new keys").unwrap();
        assert_eq!(mixed.settle(), b"under new keys");
        let mut frames = VecDeque::from([Bytes::from(vec![round; 16 << 10])]);
        mixed.client.seal(&mut frames, 1 << 20).unwrap();
        mixed.settle();
        let mut got = vec![0; 16 << 10];
        mixed.server.reader().read_exact(&mut got).unwrap();
        assert!(got.iter().all(|&byte| byte == round));
    }
}

//! The session and kcp-go: every cipher, every kind of FEC, loss, both roles.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kcp::envelope::Seal;
use kcp::fec::Ratio;
use kcp::session::{Config, Session};
use kcp::wire::{Content, Conversation};
use kcp_crypto::{Crypt, derive};
use testkit::netem::Rng;

use crate::drive::{End, Line, Transfer, summary};
use crate::path;
use crate::peer::Peer;

const PASSPHRASE: &str = "it's a secrect";

/// kcp-go has no other way to say that nothing is due.
const TICK: Duration = Duration::from_millis(5);

struct SessionEnd {
    session: Session,
    start: Instant,
    rng: Rng,
}

fn envelope(crypt: &str) -> Arc<dyn Seal> {
    let crypt: Crypt = crypt.parse().unwrap();
    crypt.envelope(&derive(PASSPHRASE)).into()
}

fn config(conversation: Conversation, shards: Option<(usize, usize)>) -> Config {
    let ratio = shards.map(|(data, parity)| Ratio::new(data, parity).unwrap());
    Config { encode: ratio, decode: ratio, ..Config::new(conversation) }
}

impl SessionEnd {
    fn new(config: Config, crypt: &str) -> Self {
        let start = Instant::now();
        let session = Session::new(config, envelope(crypt), start);
        Self { session, start, rng: Rng::new(7) }
    }

    fn pump(&mut self, now: Duration, sink: &mut dyn FnMut(&[u8])) {
        let Self { session, start, rng } = self;
        let mut random = |nonce: &mut [u8]| nonce.fill_with(|| rng.bits().to_le_bytes()[7]);
        let mut out = Vec::new();
        while session.poll_transmit(*start + now, &mut random, &mut out).is_some() {
            sink(&out);
            out.clear();
        }
    }
}

impl End for SessionEnd {
    fn input(&mut self, now: Duration, datagram: &[u8], sink: &mut dyn FnMut(&[u8])) {
        self.session.handle_datagram(self.start + now, &mut datagram.to_vec());
        self.pump(now, sink);
    }

    fn turn(&mut self, now: Duration, sink: &mut dyn FnMut(&[u8])) -> Duration {
        self.session.handle_timeout(self.start + now);
        self.pump(now, sink);
        now + TICK
    }

    fn write(&mut self, now: Duration, bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> usize {
        let part = bytes.len().min(self.session.room()).min(64 << 10);
        let mut bytes = Bytes::copy_from_slice(&bytes[..part]);
        let taken = self.session.write(self.start + now, &mut bytes);
        self.pump(now, sink);
        taken
    }

    fn read(&mut self, to: &mut [u8]) -> Option<usize> {
        let bytes = self.session.read(to.len())?;
        to[..bytes.len()].copy_from_slice(&bytes);
        Some(bytes.len())
    }

    fn is_acknowledged(&self) -> bool {
        self.session.is_flushed()
    }
}

fn flags(crypt: &str, shards: Option<(usize, usize)>) -> Vec<String> {
    let (data, parity) = shards.unwrap_or_default();
    let flags = [("-crypt", crypt.to_owned()), ("-passphrase", PASSPHRASE.to_owned())];
    let fec = [("-datashard", data.to_string()), ("-parityshard", parity.to_string())];
    flags.into_iter().chain(fec).flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// Dials a stock peer that sends everything back. Returns this end.
fn dial(crypt: &str, shards: Option<(usize, usize)>, loss: f64, length: usize) -> SessionEnd {
    let transfer = Transfer::new(length, length);
    let count = length.to_string();
    let flags = flags(crypt, shards);
    let mut all = vec!["-echo", "-receive", &count];
    all.extend(flags.iter().map(String::as_str));
    let (peer, port) = Peer::serve(&all);
    let mut line = Line::to(port, path(loss), 1);
    let mut end = SessionEnd::new(config(Conversation(0x8123_4567), shards), crypt);
    let came = transfer.run(&mut end, &mut line);
    assert_eq!(summary(&came), transfer.expected(), "{crypt} {shards:?} {loss}: what came back");
    assert_eq!(peer.next("received"), transfer.expected(), "{crypt}: what the peer got");
    end
}

/// Takes a stock peer that dials, and both send.
fn serve(crypt: &str, shards: Option<(usize, usize)>, loss: f64, length: usize) {
    let transfer = Transfer::new(length, length);
    let mut line = Line::bind(path(loss), 2);
    let (count, address) = (length.to_string(), format!("127.0.0.1:{}", line.port()));
    let flags = flags(crypt, shards);
    let mut all = vec!["-dial", &address, "-send", &count, "-receive", &count];
    all.extend(flags.iter().map(String::as_str));
    let peer = Peer::start(&all);
    let mut first = line.accept();
    let text = envelope(crypt).open(&mut first).unwrap();
    let segments = match Content::of(&first[text]) {
        Some(Content::Segments(segments) | Content::Data { segments, .. }) => segments,
        other => panic!("{other:?}"),
    };
    let conversation = u32::from_le_bytes(segments[..4].try_into().unwrap());
    let mut end = SessionEnd::new(config(Conversation(conversation), shards), crypt);
    let came = transfer.run(&mut end, &mut line);
    let mut said = [peer.next(""), peer.next("")];
    said.sort();
    let expected =
        [format!("received {}", transfer.expected()), format!("sent {}", summary(&came))];
    assert_eq!(said, expected, "{crypt} {shards:?} {loss}");
}

const CIPHERS: &[&str] = &[
    "null",
    "none",
    "xor",
    "aes-128",
    "aes-192",
    "aes",
    "salsa20",
    "blowfish",
    "twofish",
    "cast5",
    "3des",
    "tea",
    "xtea",
    "sm4",
    "aes-128-gcm",
    "aes-192-gcm",
    "aes-256-gcm",
    "chacha20-poly1305",
    "xchacha20-poly1305",
];

#[test]
fn every_cipher_carries_bytes_with_fec_and_loss_in_both_roles() {
    for crypt in CIPHERS {
        dial(crypt, Some((10, 3)), 0.05, 60_000);
        serve(crypt, Some((10, 3)), 0.05, 60_000);
    }
}

const SHARDS: [Option<(usize, usize)>; 3] = [None, Some((10, 3)), Some((3, 2))];

#[test]
fn a_stock_server_and_this_client_agree_at_any_loss_with_any_fec() {
    for shards in SHARDS {
        for (loss, length) in [(0.0, 2_000_000), (0.05, 500_000), (0.2, 300_000)] {
            let end = dial("aes-128-gcm", shards, loss, length);
            let counters = end.session.counters();
            // With fewer losses the peer repairs all of them by itself, now and then.
            assert!(loss < 0.2 || shards.is_none() || counters.fec.rebuilt > 0, "{counters:?}");
            assert_eq!((counters.envelope.refused, counters.envelope.malformed), (0, 0));
        }
    }
}

#[test]
fn a_stock_client_and_this_server_agree_at_any_loss_with_any_fec() {
    for shards in SHARDS {
        for (loss, length) in [(0.0, 2_000_000), (0.05, 500_000), (0.2, 300_000)] {
            serve("aes-128-gcm", shards, loss, length);
        }
    }
}

#[test]
fn the_ratio_may_change_while_a_stock_peer_listens() {
    let length = 1_200_000;
    let transfer = Transfer::new(length / 3, length / 3);
    let count = length.to_string();
    let flags = flags("aes-128-gcm", Some((10, 3)));
    let mut all = vec!["-echo", "-receive", &count];
    all.extend(flags.iter().map(String::as_str));
    let (peer, port) = Peer::serve(&all);
    let mut line = Line::to(port, path(0.05), 6);
    let mut end = SessionEnd::new(config(Conversation(5), Some((10, 3))), "aes-128-gcm");
    let mut came = Vec::new();
    // A stock peer that rebuilds by the ratio before takes wrong bytes for segments.
    for ratio in [(3, 2), (5, 1), (10, 3)] {
        let shards = Ratio::new(ratio.0, ratio.1).unwrap();
        assert!(end.session.set_encode(Instant::now(), Some(shards)));
        let part = transfer.run(&mut end, &mut line);
        assert_eq!(summary(&part), transfer.expected(), "{ratio:?}");
        came.extend(part);
    }
    assert_eq!(peer.next("received"), summary(&came));
}

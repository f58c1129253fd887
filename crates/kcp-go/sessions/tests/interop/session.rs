//! A whole session and kcp-go: envelope, FEC and stream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kcp_go::envelope::Seal;
use kcp_go::fec::Ratio;
use kcp_go::session::{Config, Session};
use kcp_go::wire::{Content, Conversation};
use kcp_go_crypto::{Crypt, derive};
use testkit::netem::Rng;

use crate::drive::{End, Line, Transfer, summary};
use crate::path;
use crate::peer::Peer;

pub(crate) const CONVERSATION: Conversation = Conversation(0x9123_4567);

/// The peer's passphrase where none is given.
const PASSPHRASE: &str = "it's a secrect";

/// The longest write.
const PIECE: usize = 16 << 10;

const AEAD: &str = "aes-128-gcm";

/// All ciphers that the peer has.
pub(crate) const CIPHERS: [&str; 19] = [
    "null",
    "aes-128-gcm",
    "aes-192-gcm",
    "aes-256-gcm",
    "chacha20-poly1305",
    "xchacha20-poly1305",
    "aes",
    "aes-192",
    "aes-128",
    "twofish",
    "sm4",
    "blowfish",
    "cast5",
    "3des",
    "tea",
    "xtea",
    "salsa20",
    "xor",
    "none",
];

pub(crate) type Shards = Option<(usize, usize)>;

pub(crate) const SHARDS: [Shards; 3] = [None, Some((10, 3)), Some((3, 2))];

fn ratio(shards: Shards) -> Option<Ratio> {
    shards.and_then(|(data, parity)| Ratio::new(data, parity))
}

pub(crate) fn seal(cipher: &str) -> Arc<dyn Seal> {
    let crypt: Crypt = cipher.parse().unwrap();
    crypt.envelope(&derive(PASSPHRASE)).into()
}

pub(crate) fn config(conversation: Conversation, shards: Shards) -> Config {
    let encode = ratio(shards);
    Config { encode, decode: encode, reserve: true, ..Config::new(conversation) }
}

/// The flags of a peer with these settings.
fn flags(cipher: &str, shards: Shards) -> Vec<String> {
    let (data, parity) = shards.unwrap_or_default();
    let (data, parity) = (data.to_string(), parity.to_string());
    ["-crypt", cipher, "-datashard", &data, "-parityshard", &parity].map(String::from).into()
}

pub(crate) struct SessionEnd {
    pub(crate) session: Session,
    start: Instant,
    random: Rng,
    out: Vec<u8>,
    /// FEC changes when so many bytes were written.
    pub(crate) changes: Vec<(usize, Shards)>,
    /// Parity that had left when FEC changed for the last time.
    pub(crate) parity_before: u64,
    written: usize,
}

impl SessionEnd {
    pub(crate) fn new(config: Config, seal: Arc<dyn Seal>) -> Self {
        let start = Instant::now();
        Self {
            session: Session::new(config, seal, start),
            start,
            random: Rng::new(77),
            out: Vec::new(),
            changes: Vec::new(),
            parity_before: 0,
            written: 0,
        }
    }

    fn transmit(&mut self, now: Instant, sink: &mut dyn FnMut(&[u8])) {
        let Self { session, random, out, .. } = self;
        let mut random = |bytes: &mut [u8]| {
            for chunk in bytes.chunks_mut(8) {
                chunk.copy_from_slice(&random.bits().to_le_bytes()[..chunk.len()]);
            }
        };
        out.clear();
        while let Some(length) = session.poll_transmit(now, &mut random, out) {
            assert!(length <= 1_350, "{length}");
            sink(&out[out.len() - length..]);
        }
    }
}

impl End for SessionEnd {
    fn input(&mut self, now: Duration, datagram: &[u8], sink: &mut dyn FnMut(&[u8])) {
        let now = self.start + now;
        self.session.handle_datagram(now, &mut datagram.to_vec());
        self.transmit(now, sink);
    }

    fn turn(&mut self, now: Duration, sink: &mut dyn FnMut(&[u8])) -> Duration {
        let now = self.start + now;
        if self.session.timeout().is_some_and(|at| at <= now) {
            self.session.handle_timeout(now);
        }
        self.transmit(now, sink);
        let next = self.session.timeout().map(|at| at.saturating_duration_since(self.start));
        // What comes in moves the timer.
        (now - self.start) + Duration::from_millis(1).min(next.unwrap_or(Duration::MAX))
    }

    fn write(&mut self, now: Duration, bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> usize {
        let now = self.start + now;
        if let Some((at, shards)) = self.changes.first().copied()
            && self.written >= at
        {
            self.changes.remove(0);
            assert!(self.session.set_encode(now, ratio(shards)));
            self.parity_before = self.session.counters().parity_out;
        }
        let part = bytes.len().min(PIECE).min(self.session.room());
        let taken = self.session.write(now, &mut Bytes::copy_from_slice(&bytes[..part]));
        self.written += taken;
        self.transmit(now, sink);
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

/// The cipher whose scratch space the peer's two directions share without a lock: some of its
/// datagrams are garbage.
const RACING: &str = "sm4";

/// Nothing was refused: this end understands all that the peer sends.
fn check(session: &Session, cipher: &str) {
    let counters = session.counters();
    let refused = if cipher == RACING { 0 } else { counters.envelope.refused };
    assert_eq!(refused + counters.envelope.malformed, 0, "{cipher}: {counters:?}");
    assert_eq!(counters.engine.malformed, 0, "{cipher}: {counters:?}");
}

/// Dials a stock peer that sends everything back.
pub(crate) fn dial(
    end: &mut SessionEnd,
    (cipher, shards): (&str, Shards),
    loss: f64,
    length: usize,
) {
    let flags = flags(cipher, shards);
    let transfer = Transfer::new(length, length);
    let count = length.to_string();
    let mut all = vec!["-echo", "-receive", &count];
    all.extend(flags.iter().map(String::as_str));
    let (peer, port) = Peer::serve(&all);
    let mut line = Line::to(port, path(loss), 11);
    end.start = Instant::now();
    let came = transfer.run(end, &mut line);
    assert_eq!(summary(&came), transfer.expected(), "what came back");
    assert_eq!(peer.next("received"), transfer.expected(), "what the peer got");
    check(&end.session, cipher);
}

/// Takes a stock peer that dials, and both send. `config` gets the peer's conversation. Returns the
/// end after the transfer.
pub(crate) fn serve(
    (cipher, shards): (&str, Shards),
    (config, changes): (Config, Vec<(usize, Shards)>),
    loss: f64,
    length: usize,
) -> SessionEnd {
    let seal = seal(cipher);
    let transfer = Transfer::new(length, length);
    let mut line = Line::bind(path(loss), 12);
    let (count, address) = (length.to_string(), format!("127.0.0.1:{}", line.port()));
    let mut all = vec!["-dial", &address, "-send", &count, "-receive", &count];
    let flags = flags(cipher, shards);
    all.extend(flags.iter().map(String::as_str));
    let peer = Peer::start(&all);
    let mut first = line.accept();
    let plaintext = seal.open(&mut first).unwrap();
    let conversation = match Content::of(&first[plaintext]).unwrap() {
        Content::Segments(segments) | Content::Data { segments, .. } => {
            *segments.first_chunk().unwrap()
        }
        other @ (Content::Parity { .. } | Content::OutOfBand { .. }) => {
            panic!("the first datagram is {other:?}")
        }
    };
    let mut config = config;
    config.engine.conversation = Conversation(u32::from_le_bytes(conversation));
    let mut end = SessionEnd::new(config, seal);
    end.changes = changes;
    let came = transfer.run(&mut end, &mut line);
    let mut said = [peer.next(""), peer.next("")];
    said.sort();
    let expected =
        [format!("received {}", transfer.expected()), format!("sent {}", summary(&came))];
    assert_eq!(said, expected);
    check(&end.session, cipher);
    end
}

#[test]
fn a_client_with_and_without_fec_at_any_loss() {
    for (n, shards) in SHARDS.into_iter().enumerate() {
        for (loss, length) in [(0.0, 2_000_000), (0.05, 500_000), (0.2, 200_000)] {
            // Fixed and adaptive parity by turns.
            let config = Config { adaptive: n == 1, ..config(CONVERSATION, shards) };
            let mut end = SessionEnd::new(config, seal(AEAD));
            dial(&mut end, (AEAD, shards), loss, length);
        }
    }
}

#[test]
fn a_server_with_and_without_fec_at_any_loss() {
    for shards in SHARDS {
        for (loss, length) in [(0.0, 2_000_000), (0.05, 500_000), (0.2, 200_000)] {
            let config = config(CONVERSATION, shards);
            serve((AEAD, shards), (config, Vec::new()), loss, length);
        }
    }
}

#[test]
fn the_fec_of_both_ends_may_differ() {
    // The session finds the ratio of the peer.
    for (own, peer) in [(None, SHARDS[1]), (None, SHARDS[2]), (SHARDS[1], SHARDS[1])] {
        let config = Config { decode: None, ..config(CONVERSATION, own) };
        let mut end = SessionEnd::new(config, seal(AEAD));
        dial(&mut end, (AEAD, peer), 0.05, 600_000);
    }
}

#[test]
fn fec_changes_at_run_time() {
    let (mut peer, port) = Peer::serve(&["-crypt", AEAD, "-receive", "3000000"]);
    // The peer begins anew with other shards, on the same port.
    for (conversation, shards) in [(7, SHARDS[1]), (8, SHARDS[2])] {
        let (data, parity) = shards.unwrap();
        peer.listen(data, parity);
        let transfer = Transfer::new(3_000_000, 0);
        let mut end = SessionEnd::new(config(Conversation(conversation), shards), seal(AEAD));
        // And this end changes within a session.
        end.changes = vec![(800_000, None), (1_000_000, Some((4, 1))), (2_200_000, shards)];
        let mut line = Line::to(port, path(0.03), conversation.into());
        end.start = Instant::now();
        transfer.run(&mut end, &mut line);
        assert_eq!(peer.next("received"), transfer.expected());
        assert!(end.changes.is_empty());
        check(&end.session, AEAD);
    }
}

#[test]
fn a_datagram_out_of_band_comes_back() {
    let shards = SHARDS[1];
    let flags = flags(AEAD, shards);
    let mut all = vec!["-echo", "-oob", "-receive", "60000"];
    all.extend(flags.iter().map(String::as_str));
    let (peer, port) = Peer::serve(&all);
    let mut line = Line::to(port, path(0.0), 5);
    let mut end = SessionEnd::new(config(CONVERSATION, shards), seal(AEAD));
    // Before its first echo the peer may not be ready for datagrams out of band.
    let mut came = Transfer::new(10_000, 10_000).run(&mut end, &mut line);
    let longest = Bytes::from(vec![3; end.session.oob_room()]);
    end.session.send_oob(longest.clone()).unwrap();
    came.extend(Transfer::new(50_000, 50_000).run(&mut end, &mut line));
    assert_eq!(summary(&came), peer.next("received"));
    assert_eq!(end.session.read_oob(), Some(longest));
    check(&end.session, AEAD);
}

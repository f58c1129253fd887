//! Keys, ciphers and whole datagrams against vectors that kcp-go printed, bit for bit. What needs a
//! feature is skipped in a build without it.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::time::Instant;

use aws_lc_rs::digest::{SHA256, digest};
use kcp_go::envelope::{Opener, Seal, Sizes};
use kcp_go::fec::{Encoder, LONGEST_PAUSE, Ratio, Settings};
use kcp_go::wire::{Command, Content, Conversation, Head, Millis, Segment, Segments, Sn, oob_head};
use kcp_go_crypto::{Crypt, KEY, derive, derive_with_salt};
use serde_json::Value;

fn vectors() -> Value {
    let text = include_str!("../../sessions/tests/vectors/kcp-go-vectors.json");
    serde_json::from_str(text).unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    let hex = value.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

/// The first bytes of a key; a vector tells no more of it than the cipher uses.
fn key(value: &Value) -> [u8; KEY] {
    let mut key = [0; KEY];
    let known = bytes(value);
    key[..known.len()].copy_from_slice(&known);
    key
}

/// `None` where this build lacks the cipher.
fn crypt(name: &Value) -> Option<Crypt> {
    let name = name.as_str().unwrap();
    let crypt = name.parse().ok();
    let always = ["null", "aes-128-gcm", "aes-192-gcm", "aes-256-gcm", "chacha20-poly1305"];
    let features = [("xchacha20-poly1305", cfg!(feature = "xchacha"))];
    let feature = features.iter().find(|(of, _)| *of == name);
    let is_built = feature.map_or(cfg!(feature = "legacy"), |(_, is_built)| *is_built);
    assert_eq!(crypt.is_some(), always.contains(&name) || is_built, "{name}");
    crypt
}

/// A datagram as it leaves.
fn seal(envelope: &dyn Seal, nonce: &[u8], plaintext: &[u8]) -> Vec<u8> {
    let (head, tail) = (vec![0; envelope.head()], vec![0; envelope.tail()]);
    let mut datagram = [&head[..], plaintext, &tail].concat();
    envelope.seal(&nonce[..envelope.nonce()], &mut datagram).unwrap();
    datagram
}

#[test]
fn keys_are_derived_as_kcptun_derives_them() {
    for case in vectors()["kdf"]["cases"].as_array().unwrap() {
        let passphrase = case["passphrase_utf8"].as_str().unwrap();
        assert_eq!(derive(passphrase)[..], bytes(&case["key"]));
        let salt = case["salt_utf8"].as_str().unwrap();
        assert_eq!(derive_with_salt(passphrase, salt.as_bytes())[..], bytes(&case["key"]));
        assert_ne!(derive_with_salt(passphrase, b"another")[..], bytes(&case["key"]));
    }
}

#[test]
fn each_cipher_makes_the_datagrams_of_kcp_go() {
    let crypto = &vectors()["crypto"];
    let mut seen = 0;
    for case in ["legacy", "aead"].iter().flat_map(|list| crypto[list].as_array().unwrap()) {
        let name = &case["name"];
        let Some(crypt) = crypt(name) else { continue };
        let envelope = crypt.envelope(&key(&case["key"]));
        for (length, datagram) in case["datagrams_by_payload_len"].as_object().unwrap() {
            let plaintext = bytes(&crypto["payloads_by_len"][length]);
            let mut datagram = bytes(datagram);
            let sealed = seal(&envelope, &bytes(&case["nonce"]), &plaintext);
            assert_eq!(sealed, datagram, "{name}, {length} bytes");
            assert_eq!(datagram.len(), plaintext.len() + envelope.overhead());
            let opened = envelope.open(&mut datagram).unwrap();
            assert_eq!(datagram[opened], plaintext, "{name}, {length} bytes");
            seen += 1;
        }
    }
    assert!(seen >= 49);
}

#[cfg(feature = "legacy")]
#[test]
fn the_table_of_xor_is_that_of_kcp_go() {
    let vectors = vectors();
    let vector = &vectors["xor_table"];
    let envelope = "xor".parse::<Crypt>().unwrap().envelope(&key(&vector["key"]));
    let plain = "none".parse::<Crypt>().unwrap().envelope(&key(&vector["key"]));
    let table: Vec<u8> = seal(&envelope, &[0; 16], &[0; 1480])
        .iter()
        .zip(seal(&plain, &[0; 16], &[0; 1480]))
        .map(|(sealed, plain)| sealed ^ plain)
        .collect();
    assert_eq!(table, bytes(&vector["table"]));
}

/// One end of a session whose datagrams the vectors list.
struct Sender<'a> {
    envelope: Box<dyn Seal>,
    datagrams: &'a [Value],
    sent: usize,
}

impl Sender<'_> {
    /// Seals the next datagram, and compares it with kcp-go's.
    fn send(&mut self, plaintext: &[u8]) {
        let n = u64::try_from(self.sent).unwrap().to_le_bytes();
        let nonce = digest(&SHA256, &[&b"kcpvec"[..], &n].concat());
        let sealed = seal(&self.envelope, nonce.as_ref(), plaintext);
        assert_eq!(sealed, bytes(&self.datagrams[self.sent]), "datagram {}", self.sent);
        self.sent += 1;
    }
}

/// The time stamp of the next datagram, which is whatever the clock said.
fn timestamp(opener: &mut Opener<Box<dyn Seal>>, datagram: &Value, of: Conversation) -> Millis {
    let mut datagram = bytes(datagram);
    let segments = match opener.open(&mut datagram) {
        Some(Content::Segments(segments) | Content::Data { segments, .. }) => segments,
        other => panic!("{other:?}"),
    };
    let Some(Ok(Segment { head, .. })) = Segments::new(of, segments).next() else {
        panic!("a segment of {of:?}")
    };
    head.timestamp
}

#[test]
fn whole_datagrams_of_sessions_are_those_of_kcp_go() {
    for session in vectors()["sessions"].as_array().unwrap() {
        let Some(crypt) = crypt(&session["crypt"]) else { continue };
        let key = derive(session["passphrase_utf8"].as_str().unwrap());
        let envelope = crypt.envelope(&key);
        let ratio = Ratio::new(number(&session["data"]), number(&session["parity"]));
        let overhead = envelope.overhead();
        let sizes = Sizes::new(number(&session["mtu"]), overhead, ratio.is_some()).unwrap();
        assert_eq!(sizes.segments, number(&session["kcp_mtu"]));
        assert_eq!(sizes.payload, number(&session["mss"]));
        assert_eq!(sizes.out_of_band, number(&session["oob_max"]));

        let conversation = Conversation(u32::try_from(session["conv"].as_u64().unwrap()).unwrap());
        let mut opener = Opener::new(crypt.envelope(&key));
        let datagrams = session["datagrams"].as_array().unwrap();
        let mut sender = Sender { envelope, datagrams, sent: 0 };
        let mut fec = ratio.map(|ratio| {
            Encoder::new(Settings { ratio, longest: sizes.segments, pause: Some(LONGEST_PAUSE) })
        });
        let now = Instant::now();
        for (sn, write) in (0..).zip(session["stream_writes"].as_array().unwrap()) {
            let payload = bytes(write);
            let head = Head {
                conversation,
                command: Command::Push,
                fragments: 0,
                window: 512,
                timestamp: timestamp(&mut opener, &datagrams[sender.sent], conversation),
                sn: Sn(sn),
                una: Sn(0),
            };
            let length = u32::try_from(payload.len()).unwrap();
            let segments = [&head.encode(length)[..], &payload].concat();
            let Some(fec) = &mut fec else {
                sender.send(&segments);
                continue;
            };
            let head = fec.push(&segments, now).unwrap();
            sender.send(&[&head[..], &segments].concat());
            let mut parity = [0; 1500];
            while let Some(length) = fec.poll_parity(&mut parity) {
                sender.send(&parity[..length]);
            }
        }
        if session["oob_sent_last"].as_bool().unwrap() {
            let head = oob_head(conversation, 8).unwrap();
            sender.send(&[&head[..], b"oob-data"].concat());
        }
        assert_eq!(sender.sent, datagrams.len());
    }
}

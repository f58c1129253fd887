//! What holds for each envelope: it opens what it sealed, and what was changed is refused where
//! there is authentication. Nothing allocates on the way.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kcp_go::envelope::{Opener, Seal};
use kcp_go::wire::Content;
use kcp_go_crypto::{Crypt, derive};
use proptest::prelude::*;

const AEAD: &[&str] = &["aes-128-gcm", "aes-192-gcm", "aes-256-gcm", "chacha20-poly1305"];

fn all() -> impl Iterator<Item = (&'static str, Box<dyn Seal>)> {
    let mut names = vec!["null"];
    names.extend(AEAD);
    if cfg!(feature = "xchacha") {
        names.push("xchacha20-poly1305");
    }
    if cfg!(feature = "legacy") {
        names.extend(["aes", "aes-192", "aes-128", "twofish", "sm4", "blowfish", "cast5", "3des"]);
        names.extend(["tea", "xtea", "salsa20", "xor", "none"]);
    }
    let key = derive("any");
    names.into_iter().map(move |name| (name, name.parse::<Crypt>().unwrap().envelope(&key)))
}

fn seal(envelope: &dyn Seal, plaintext: &[u8]) -> Vec<u8> {
    let (head, tail) = (vec![0; envelope.head()], vec![0; envelope.tail()]);
    let mut datagram = [&head[..], plaintext, &tail].concat();
    envelope.seal(&[9; 24][..envelope.nonce()], &mut datagram).unwrap();
    datagram
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_sealed_is_opened(plaintext in proptest::collection::vec(any::<u8>(), 0..600)) {
        for (name, envelope) in all() {
            let mut datagram = seal(&envelope, &plaintext);
            let opened = envelope.open(&mut datagram).unwrap();
            prop_assert_eq!(&datagram[opened], &plaintext, "{}", name);
        }
    }

    #[test]
    fn what_was_changed_is_refused(
        plaintext in proptest::collection::vec(any::<u8>(), 0..100),
        at: prop::sample::Index,
        bit in 0_u32..8,
    ) {
        for (name, envelope) in all().filter(|(name, _)| AEAD.contains(name)) {
            let mut datagram = seal(&envelope, &plaintext);
            let at = at.index(datagram.len());
            datagram[at] ^= 1_u8 << bit;
            prop_assert!(envelope.open(&mut datagram).is_err(), "{}", name);
        }
    }
}

#[test]
fn what_is_too_short_is_refused() {
    for (name, envelope) in all() {
        for length in 0..envelope.overhead() {
            assert!(envelope.open(&mut vec![0; length]).is_err(), "{name}, {length} bytes");
        }
        if envelope.nonce() > 0 {
            assert!(envelope.seal(&[1; 4], &mut [0; 100]).is_err(), "{name}: a short nonce");
            assert!(envelope.seal(&[1; 24], &mut [0; 2]).is_err(), "{name}: a short buffer");
        }
    }
}

#[test]
fn datagrams_that_are_dropped_are_counted() {
    let mut opener = Opener::new("aes-128-gcm".parse::<Crypt>().unwrap().envelope(&derive("any")));
    let mut good = seal(opener.seal(), &[3; 24]);
    let mut bad = good.clone();
    bad[20] ^= 1;
    let mut short = seal(opener.seal(), &[3; 11]);
    assert_eq!(opener.open(&mut bad), None);
    assert_eq!(opener.open(&mut short), None);
    assert_eq!(opener.open(&mut []), None);
    assert_eq!(opener.open(&mut good), Some(Content::Segments(&[3; 24])));
    let counted = opener.counters();
    assert_eq!((counted.opened, counted.refused, counted.malformed), (1, 2, 1));
}

#[test]
fn nothing_is_allocated_for_a_datagram() {
    for (name, envelope) in all() {
        let mut datagram = vec![5; 1350];
        let nonce = [7; 24];
        let mut turn = || {
            envelope.seal(&nonce[..envelope.nonce()], &mut datagram).unwrap();
            envelope.open(&mut datagram).unwrap();
        };
        turn();
        assert_eq!(allocation_counter::measure(turn).count_total, 0, "{name}");
    }
}

#[test]
fn an_unknown_name_is_no_cipher() {
    for name in ["", "AES", "aes-128-cfb", "rot13"] {
        assert!(name.parse::<Crypt>().is_err(), "{name}");
    }
    assert_eq!("aes".parse::<Crypt>().is_ok(), cfg!(feature = "legacy"));
}

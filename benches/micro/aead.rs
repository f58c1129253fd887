//! Sealing and opening with the packet keys of QUIC, by both libraries that `tls` chooses from. TLS
//! seals its records by the same code.
//!
//! `OPENSSL_ia32cap=:~0xc0030000` hides AVX-512 from aws-lc (bits 16, 17, 30 and 31 of EBX in leaf
//! 7 of CPUID), which then works as on a CPU without it. ring does not read the variable.

use std::fmt;

use divan::Bencher;
use divan::counter::BytesCount;
use rustls::crypto::{aws_lc_rs, ring};
use rustls::quic::{Keys, Version};
use rustls::{CipherSuite, Side, SupportedCipherSuite};

/// The payload of a QUIC packet on most paths, and of a full TLS record.
const LENGTHS: [usize; 2] = [1_400, 16_384];

/// The bytes that are authenticated and not encrypted.
const HEADER: [u8; 24] = [7; 24];

/// The packet number, which the nonce is made of.
const NUMBER: u64 = 5;

#[derive(Clone, Copy)]
struct Case {
    backend: &'static str,
    suite: SupportedCipherSuite,
    length: usize,
}

/// The name of the case in the table.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suite = self.suite.suite().as_str().unwrap_or_default();
        let suite = suite.trim_start_matches("TLS13_");
        let suite = suite.split("_GCM").next().unwrap_or(suite);
        let suite = suite.split("_POLY1305").next().unwrap_or(suite);
        write!(f, "{suite} {} {}", self.length, self.backend)
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for suite in [
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS13_AES_256_GCM_SHA384,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ] {
        for length in LENGTHS {
            for (backend, all) in [
                ("aws-lc", aws_lc_rs::DEFAULT_CIPHER_SUITES),
                ("ring", ring::DEFAULT_CIPHER_SUITES),
            ] {
                let of = all.iter().find(|one| one.suite() == suite);
                cases.extend(of.map(|&suite| Case { backend, suite, length }));
            }
        }
    }
    cases
}

/// The keys of both ends. They are those of Initial packets, which need no handshake.
fn keys(case: Case) -> [Keys; 2] {
    let suite = case.suite.tls13().and_then(|suite| suite.quic_suite());
    let suite = suite.expect("the suites of TLS 1.3 have keys for QUIC");
    [Side::Client, Side::Server].map(|side| suite.keys(&[1; 8], side, Version::V1))
}

#[divan::bench(args = cases())]
fn seal(bencher: Bencher<'_, '_>, case: &Case) {
    let [client, _] = keys(*case);
    let mut payload = vec![0; case.length];
    bencher.counter(BytesCount::new(case.length)).bench_local(|| {
        client.local.packet.encrypt_in_place(NUMBER, &HEADER, &mut payload).is_ok()
    });
}

/// Opening destroys the sealed bytes, so a run that opens the same bytes again has to seal them
/// again: the time of `seal` is to be subtracted.
#[divan::bench(args = cases())]
fn seal_and_open(bencher: Bencher<'_, '_>, case: &Case) {
    let [client, server] = keys(*case);
    let mut packet = vec![0; case.length + client.local.packet.tag_len()];
    bencher.counter(BytesCount::new(case.length)).bench_local(|| {
        let (payload, end) = packet.split_at_mut(case.length);
        let tag = client.local.packet.encrypt_in_place(NUMBER, &HEADER, payload);
        end.copy_from_slice(tag.expect("the payload is short").as_ref());
        let opened = server.remote.packet.decrypt_in_place(NUMBER, &HEADER, &mut packet);
        assert!(opened.is_ok_and(|payload| payload.len() == case.length));
    });
}

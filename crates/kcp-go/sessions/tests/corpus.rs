//! Replays the kept inputs of the fuzz targets, and runs their harnesses on random inputs.

use kcp_go::{envelope, fec, fuzz, session};
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::corpus::replay;

#[test]
fn no_kept_input_breaks_a_decoder() {
    replay(
        env!("CARGO_MANIFEST_DIR"),
        &[
            ("envelopes", envelope::fuzz::datagrams),
            ("fec_groups", fec::fuzz::groups),
            ("fec_shards", fec::fuzz::shards),
            ("segments", fuzz::segments),
            ("sessions", session::fuzz::session),
        ],
    );
}

/// A head with numbers near those that a fresh session has, or anywhere, and a payload whose length
/// the head may deny.
fn segment() -> impl Strategy<Value = Vec<u8>> {
    let near = || prop_oneof![4 => 0..12_u32, 1 => any::<u32>()];
    let length = prop_oneof![9 => Just(None), 1 => any::<u32>().prop_map(Some)];
    let numbers = (any::<u16>(), 900..3_000_u32, near(), near());
    (80..86_u8, 0..3_u8, numbers, vec(any::<u8>(), 0..40), length).prop_map(
        |(command, fragments, (window, timestamp, sn, una), payload, length)| {
            let length = length.unwrap_or_else(|| u32::try_from(payload.len()).unwrap_or(u32::MAX));
            let mut bytes = vec![4, 3, 2, 1, command, fragments];
            bytes.extend_from_slice(&window.to_le_bytes());
            for word in [timestamp, sn, una, length] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
            bytes.extend(payload);
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        // A found case becomes a file of the corpus.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_machine_keeps_its_bounds_whatever_segments_come(
        datagrams in vec((any::<u8>(), vec(segment(), 0..5)), 0..20)
    ) {
        let mut input = Vec::new();
        for (act, segments) in datagrams {
            let datagram = segments.concat();
            input.push(act);
            input.extend_from_slice(&u16::try_from(datagram.len()).unwrap().to_le_bytes());
            input.extend(datagram);
        }
        fuzz::segments(&input);
    }

    #[test]
    fn a_session_keeps_its_bounds_and_its_bytes(data in vec(any::<u8>(), 5..300)) {
        session::fuzz::session(&data);
    }

    #[test]
    fn no_random_input_breaks_fec(data in vec(any::<u8>(), 0..300)) {
        fec::fuzz::groups(&data);
        fec::fuzz::shards(&data);
    }
}

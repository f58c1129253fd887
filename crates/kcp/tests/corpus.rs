//! Replays the kept inputs of the fuzz targets, and runs their harnesses on random inputs.

use kcp::own::fuzz;
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::corpus::replay;

#[test]
fn no_kept_input_breaks_a_decoder() {
    replay(
        env!("CARGO_MANIFEST_DIR"),
        &[("own_packets", fuzz::packets), ("own_session", fuzz::session)],
    );
}

/// A content of a packet: flags of any kind, numbers near those of a fresh session, and any rest.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let ack = (0..40_u8, 0..40_u8, 0..40_u8, 0..4_u8, vec(0..4_u8, 8)).prop_map(
        |(largest, una, window, runs, lengths)| {
            let mut bytes = vec![0, 0, 0, largest, 9, 0, 0, 0, una, 0, window];
            for _ in 0..2 {
                bytes.push(runs);
                bytes.extend(lengths.iter().take(usize::from(runs) * 2));
            }
            bytes
        },
    );
    let shard = (0..3_u8, 0..66_u8).prop_map(|(group, index)| vec![0, group, index]);
    let run = (0..40_u8, 0..16_u8, vec(0..8_u8, 0..40)).prop_map(|(sn, form, rest)| {
        let mut bytes = vec![0, 0, 0, sn, form];
        bytes.extend(rest);
        bytes
    });
    (0..64_u8, ack, shard, run, 0..6_u8).prop_map(|(flags, ack, shard, run, signal)| {
        let mut bytes = vec![flags];
        if flags & 8 != 0 {
            bytes.extend(ack);
            bytes.extend((flags & 32 != 0).then_some(7));
        }
        match flags & 7 {
            1 | 4 => bytes.extend(run),
            2 | 5 => bytes.extend(shard.into_iter().chain(run)),
            3 => bytes.extend(shard.into_iter().chain([signal]).chain(run)),
            6 => bytes.extend([signal].into_iter().chain(run)),
            _ => {}
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        // A found case becomes a file of the corpus.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_session_stays_whole_whatever_its_peer_says(
        contents in vec((any::<u8>(), content()), 0..40)
    ) {
        let mut input = Vec::new();
        for (wait, content) in contents {
            input.extend([u8::try_from(content.len()).unwrap_or(u8::MAX), wait]);
            input.extend(content);
        }
        fuzz::session(&input);
    }

    #[test]
    fn no_random_input_breaks_fec(data in vec(any::<u8>(), 0..300)) {
        fuzz::packets(&data);
    }
}

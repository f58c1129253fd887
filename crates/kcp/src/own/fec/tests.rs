//! Encoder and decoder together.

use proptest::prelude::*;

use super::*;
use crate::own::wire::{Group, Shard};

fn body(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + seed * 31).to_le_bytes()[0]).collect()
}

/// Every third shard is a datagram.
fn load(n: usize) -> Load {
    if n % 3 == 2 { Load::Datagram } else { Load::Segments }
}

/// Passes a data shard to the decoder.
fn data(decoder: &mut Decoder, shard: Shard, load: Load, body: &[u8]) -> (bool, Vec<Vec<u8>>) {
    let mut rebuilt = Rebuilt::default();
    let is_new = decoder.data(shard, load, body, &mut rebuilt);
    (is_new, rebuilt.iter().map(|(_, body)| body.to_vec()).collect())
}

/// Passes a parity shard to the decoder.
fn parity(decoder: &mut Decoder, head: Parity, parity: &[u8]) -> Vec<(Load, Vec<u8>)> {
    let mut rebuilt = Rebuilt::default();
    decoder.parity(head, parity, &mut rebuilt);
    rebuilt.iter().map(|(load, body)| (load, body.to_vec())).collect()
}

proptest! {
    /// Any `k` shards of a group, in any order, suffice for all data of the group.
    #[test]
    fn any_k_shards_make_all_data(
        lengths in proptest::collection::vec(0_usize..200, 1..=DATA_MAX),
        parity in 1_usize..=PARITY_MAX,
        order in any::<u64>(),
        group in any::<u16>(),
    ) {
        let mut encoder = Encoder::new(200);
        encoder.group_for_test(Group(group));
        encoder.open(lengths.len(), parity);
        let mut shards = Vec::new();
        for (n, &length) in lengths.iter().enumerate() {
            let body = body(n, length);
            shards.push((Ok((encoder.push(load(n), &body).unwrap(), load(n))), body));
        }
        for _ in 0..parity {
            let mut bytes = Vec::new();
            let head = encoder.take(true, &mut bytes).unwrap();
            shards.push((Err(head), bytes));
        }
        let k = lengths.len();
        let mut state = order;
        for at in (1..shards.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shards.swap(at, (state >> 33) as usize % (at + 1));
        }
        let mut decoder = Decoder::new(1 << 20);
        let mut got = Vec::new();
        let mut rebuilt = Rebuilt::default();
        let mut ends = false;
        for (head, bytes) in shards.into_iter().take(k) {
            match head {
                Ok((shard, load)) => {
                    let is_new = decoder.data(shard, load, &bytes, &mut rebuilt);
                    prop_assert!(is_new, "it was not rebuilt yet");
                    prop_assert!(!decoder.data(shard, load, &bytes, &mut rebuilt));
                    got.push((load == Load::Datagram, bytes));
                }
                Err(head) => {
                    ends = true;
                    decoder.parity(head, &bytes, &mut rebuilt);
                }
            }
        }
        let loads = rebuilt.iter().map(|(load, body)| (load == Load::Datagram, body.to_vec()));
        got.extend(loads);
        let one = |(n, &length)| (load(n) == Load::Datagram, body(n, length));
        let mut sent: Vec<_> = lengths.iter().enumerate().map(one).collect();
        sent.sort();
        got.sort();
        prop_assert_eq!(got, sent);
        prop_assert!(!ends || decoder.held() == 0, "the group is over");
    }

    /// Parity between data shards rebuilds data that was lost before it.
    #[test]
    fn each_later_parity_protects_all_before_it(losses in any::<u32>()) {
        let mut encoder = Encoder::new(100);
        encoder.open(16, 32);
        let mut decoder = Decoder::new(1 << 20);
        let mut open = 0_usize;
        let mut rebuilt = 0;
        let mut lost = 0;
        for n in 0..15 {
            let body = body(n, 50 + n);
            let shard = encoder.push(Load::Segments, &body).unwrap();
            if losses >> (2 * n) & 1 == 0 {
                let (is_new, got) = data(&mut decoder, shard, Load::Segments, &body);
                prop_assert!(is_new && (got.is_empty() || open == 0));
            } else {
                open += 1;
                lost += 1;
            }
            let mut bytes = Vec::new();
            let head = encoder.take(false, &mut bytes).unwrap();
            if losses >> (2 * n + 1) & 1 == 0 {
                let got = parity(&mut decoder, head, &bytes).len();
                rebuilt += got;
                open -= got;
            }
        }
        // Two more parity shards than were lost in any case.
        for _ in 0..16 {
            let mut bytes = Vec::new();
            let Some(head) = encoder.take(true, &mut bytes) else { break };
            rebuilt += parity(&mut decoder, head, &bytes).len();
        }
        prop_assert_eq!(rebuilt, lost);
    }
}

#[test]
fn a_decoder_keeps_its_bound_and_groups_their_order() {
    let mut decoder = Decoder::new(100_000);
    for n in 0..3_000_u16 {
        let group = Group(n.wrapping_mul(3).wrapping_add(65_000));
        for index in 0..20 {
            data(&mut decoder, Shard { group, index }, Load::Segments, &[1; 1_000]);
        }
        assert!(decoder.held() <= 100_000);
    }
    let old = Shard { group: Group(3), index: 0 };
    assert_eq!(data(&mut decoder, old, Load::Segments, b"old"), (false, vec![]));
}

#[test]
fn impossible_parity_is_refused() {
    let mut decoder = Decoder::new(100_000);
    let shard = Shard { group: Group(0), index: 0 };
    for (index, k, length) in [(48, 1, 9), (255, 1, 9), (0, 0, 9), (0, 65, 9), (0, 1, 1)] {
        let head = Parity { shard: Shard { index, ..shard }, k, is_final: true };
        assert!(parity(&mut decoder, head, &vec![7; length]).is_empty());
    }
    assert_eq!(decoder.counters().useless, 5);
    let head = Parity { shard, k: 1, is_final: true };
    assert!(parity(&mut decoder, head, &[0xff; 9]).is_empty(), "its size is beyond its end");
}

/// A datagram is delivered once: as itself, or rebuilt.
#[test]
fn a_shard_is_new_once_even_in_a_group_that_is_over() {
    let mut encoder = Encoder::new(200);
    let mut decoder = Decoder::new(1 << 20);
    encoder.open(8, 2);
    let late = encoder.push(Load::Datagram, b"late").unwrap();
    let early = encoder.push(Load::Datagram, b"early").unwrap();
    let mut bytes = Vec::new();
    let head = encoder.take(true, &mut bytes).unwrap();
    assert!(data(&mut decoder, early, Load::Datagram, b"early").0);
    let rebuilt = [(Load::Datagram, b"late".to_vec())];
    assert_eq!(parity(&mut decoder, head, &bytes), rebuilt);
    assert_eq!(decoder.held(), 0, "the group is over");
    for shard in [late, early] {
        assert!(!data(&mut decoder, shard, Load::Datagram, b"late").0);
    }
    // Shards that were dropped for lack of memory or by `rest` are recognised as well.
    let shard = |index| Shard { group: Group(9), index };
    let mut small = Decoder::new(10);
    for is_new in [true, false] {
        assert_eq!(data(&mut small, shard(0), Load::Datagram, &[1; 90]).0, is_new);
        small.rest();
        assert_eq!(data(&mut small, shard(1), Load::Datagram, &[1; 90]).0, is_new);
    }
}

/// A group that needs no repair holds no bytes for long.
#[test]
fn clean_groups_hold_little() {
    let mut decoder = Decoder::new(usize::MAX);
    for n in 0..100_u16 {
        for index in 0..64 {
            let shard = Shard { group: Group(n), index };
            data(&mut decoder, shard, Load::Segments, &[1; 1_000]);
        }
        assert_eq!(decoder.held(), 0, "it is full");
    }
    for n in 100..300_u16 {
        for index in 0..10 {
            let shard = Shard { group: Group(n), index };
            data(&mut decoder, shard, Load::Segments, &[1; 1_000]);
        }
        assert!(decoder.held() <= 10 * 10 * 1_002, "its parity was lost, or has not come yet");
    }
}

/// On loopback a group with the maximum data has one MiB.
#[test]
fn groups_of_long_packets_take_bounded_memory_and_are_repaired_all_the_same() {
    const LENGTH: usize = 16_000;
    let (mut encoder, mut decoder) = (Encoder::new(LENGTH), Decoder::new(64 << 20));
    let body = body(1, LENGTH);
    let mut most = 0;
    for turn in 0..200 {
        encoder.open(DATA_MAX, 1);
        let lost = (turn % 4 == 0).then_some(turn % DATA_MAX);
        // Only the end of the group is lost, so that no shard shows that the group is complete.
        for at in 0..DATA_MAX - usize::from(lost.is_none()) {
            let shard = encoder.push(Load::Segments, &body).unwrap();
            if lost != Some(at) {
                data(&mut decoder, shard, Load::Segments, &body);
            }
        }
        let mut sum = Vec::new();
        let head = encoder.take(true, &mut sum).unwrap();
        if lost.is_some() {
            assert_eq!(
                parity(&mut decoder, head, &sum),
                [(Load::Segments, body.clone())],
                "{turn}"
            );
        }
        most = most.max(decoder.memory());
    }
    println!("{most} bytes");
    assert!(most < 6 << 20, "{most} bytes");
}

//! Encoder and decoder together.

use proptest::prelude::*;

use super::*;
use crate::own::wire::{Group, Shard};

fn body(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + seed * 31).to_le_bytes()[0]).collect()
}

proptest! {
    /// Whatever `k` of the shards of a group arrive, in any order, all of its data is there.
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
            shards.push((Ok(encoder.push(&body).unwrap()), body));
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
        let mut ends = false;
        for (head, bytes) in shards.into_iter().take(k) {
            match head {
                Ok(shard) => {
                    got.extend(decoder.data(shard, &bytes));
                    got.push(bytes);
                }
                Err(head) => {
                    ends = true;
                    got.extend(decoder.parity(head, &bytes));
                }
            }
        }
        let mut sent: Vec<_> = lengths.iter().enumerate().map(|(n, &length)| body(n, length)).collect();
        sent.sort();
        got.sort();
        prop_assert_eq!(got, sent);
        prop_assert!(!ends || decoder.held() == 0, "the group is over");
    }

    /// Parity that leaves between data rebuilds what was lost before it.
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
            let shard = encoder.push(&body).unwrap();
            if losses >> (2 * n) & 1 == 0 {
                prop_assert!(decoder.data(shard, &body).is_empty() || open == 0);
            } else {
                open += 1;
                lost += 1;
            }
            let mut bytes = Vec::new();
            let head = encoder.take(false, &mut bytes).unwrap();
            if losses >> (2 * n + 1) & 1 == 0 {
                let got = decoder.parity(head, &bytes).len();
                rebuilt += got;
                open -= got;
            }
        }
        // Two more parity shards than were lost in any case.
        for _ in 0..16 {
            let mut bytes = Vec::new();
            let Some(head) = encoder.take(true, &mut bytes) else { break };
            rebuilt += decoder.parity(head, &bytes).len();
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
            decoder.data(Shard { group, index }, &[1; 1_000]);
        }
        assert!(decoder.held() <= 100_000);
    }
    assert!(decoder.data(Shard { group: Group(3), index: 0 }, b"old").is_empty());
}

#[test]
fn impossible_parity_is_refused() {
    let mut decoder = Decoder::new(100_000);
    let shard = Shard { group: Group(0), index: 0 };
    for (index, k, length) in [(48, 1, 9), (255, 1, 9), (0, 0, 9), (0, 65, 9), (0, 1, 1)] {
        let head = Parity { shard: Shard { index, ..shard }, k, is_final: true };
        assert!(decoder.parity(head, &vec![7; length]).is_empty());
    }
    assert_eq!(decoder.counters().useless, 5);
    let head = Parity { shard, k: 1, is_final: true };
    assert!(decoder.parity(head, &[0xff; 9]).is_empty(), "its size is beyond its end");
}

//! Encoder and decoder against an oracle: the definitions of kcp-go's code and of its groups, as
//! plainly as they can be written, with a matrix that is inverted.

#![allow(clippy::disallowed_methods, reason = "a test begins now, and counts from there")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::time::Instant;

use kcp_go::fec::{Decoder, Encoder, Ratio, Settings, Shard};
use kcp_go::wire::{Content, ShardId};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

const LONGEST: usize = 400;

type Matrix = Vec<Vec<u8>>;

fn times(a: &Matrix, b: &Matrix) -> Matrix {
    let cell = |row: &Vec<u8>, column: usize| {
        row.iter().zip(b).fold(0, |sum, (&x, line)| sum ^ gf256::multiply(x, line[column]))
    };
    a.iter().map(|row| (0..b[0].len()).map(|column| cell(row, column)).collect()).collect()
}

/// Gauss and Jordan.
fn inverse(matrix: &Matrix) -> Matrix {
    let size = matrix.len();
    let mut rows: Matrix = matrix
        .iter()
        .enumerate()
        .map(|(n, row)| row.iter().copied().chain((0..size).map(|c| u8::from(c == n))).collect())
        .collect();
    for pivot in 0..size {
        let found = (pivot..size).find(|row| rows[*row][pivot] != 0).expect("it can be inverted");
        rows.swap(pivot, found);
        let by = gf256::inverse(rows[pivot][pivot]).unwrap();
        rows[pivot].iter_mut().for_each(|x| *x = gf256::multiply(*x, by));
        let line = rows[pivot].clone();
        for (n, row) in rows.iter_mut().enumerate() {
            let by = row[pivot];
            if n != pivot {
                row.iter_mut().zip(&line).for_each(|(x, y)| *x ^= gf256::multiply(by, *y));
            }
        }
    }
    rows.into_iter().map(|row| row[size..].to_vec()).collect()
}

/// The Vandermonde matrix, multiplied by the inverse of its top.
fn encoding(ratio: Ratio) -> Matrix {
    let vandermonde: Matrix = (0..ratio.shards())
        .map(|row| {
            let row = u8::try_from(row).unwrap();
            (0..ratio.data()).map(|column| gf256::power(row, column)).collect()
        })
        .collect();
    times(&vandermonde, &inverse(&vandermonde[..ratio.data()].to_vec()))
}

/// The groups of a decoder, by their numbers.
struct Oracle {
    ratio: Ratio,
    matrix: Matrix,
    newest: Option<u32>,
    groups: BTreeMap<u32, BTreeMap<usize, Vec<u8>>>,
}

impl Oracle {
    fn new(ratio: Ratio) -> Self {
        Self { ratio, matrix: encoding(ratio), newest: None, groups: BTreeMap::new() }
    }

    fn take(&mut self, shard: &Shard<'_>) -> Vec<Vec<u8>> {
        let (data, shards) = (self.ratio.data(), u32::try_from(self.ratio.shards()).unwrap());
        let group = shard.id.0 / shards;
        let held = self.groups.entry(group).or_default();
        let position = usize::try_from(shard.id.0 % shards).unwrap();
        held.entry(position).or_insert_with(|| shard.body.to_vec());
        let mut rebuilt = Vec::new();
        if held.len() >= data {
            let length = held.values().map(Vec::len).max().unwrap();
            let rows = held.keys().map(|row| self.matrix[*row].clone()).collect();
            let known = held.values().map(|body| {
                let mut body = body.clone();
                body.resize(length, 0);
                body
            });
            let all = times(&inverse(&rows), &known.collect());
            rebuilt.extend((0..data).filter(|at| !held.contains_key(at)).map(|at| all[at].clone()));
            held.clear();
        }
        let first = |group: u32| group * shards;
        let newest = self.newest.get_or_insert(group);
        if first(group).wrapping_sub(first(*newest)).cast_signed() > 0 {
            *newest = group;
        }
        let newest = *newest;
        let reach = (3 * shards).cast_signed();
        self.groups
            .retain(|group, _| first(newest).wrapping_sub(first(*group)).cast_signed() <= reach);
        rebuilt
    }
}

fn settings(ratio: Ratio) -> Settings {
    Settings { ratio, longest: LONGEST, pause: None }
}

/// All datagrams of these messages: shards of data, each group followed by its parity.
fn encode(encoder: &mut Encoder, messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let now = Instant::now();
    let mut packets = Vec::new();
    for message in messages {
        let head = encoder.push(message, now).unwrap();
        packets.push([&head[..], message].concat());
        let mut buffer = [0; LONGEST + 8];
        while let Some(length) = encoder.poll_parity(&mut buffer) {
            packets.push(buffer[..length].to_vec());
        }
    }
    packets
}

fn shard(packet: &[u8]) -> Shard<'_> {
    Shard::of(&Content::of(packet).unwrap()).unwrap()
}

fn decode(decoder: &mut Decoder, packet: &[u8]) -> Vec<Vec<u8>> {
    decoder.handle_shard(shard(packet)).bodies().map(<[u8]>::to_vec).collect()
}

fn any_ratio() -> impl Strategy<Value = Ratio> {
    prop_oneof![
        8 => (1_usize..16, 1_usize..8),
        2 => (1_usize..100, 1_usize..100),
        1 => Just((128, 128)),
        1 => Just((255, 1)),
        1 => Just((1, 255)),
    ]
    .prop_map(|(data, parity)| Ratio::new(data, parity).unwrap())
}

fn any_message() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![4 => vec(any::<u8>(), 4..80), 1 => vec(any::<u8>(), 300..=LONGEST)]
}

/// A ratio, the messages of one group, and enough positions of shards to rebuild it.
fn a_group() -> impl Strategy<Value = (Ratio, Vec<Vec<u8>>, Vec<usize>)> {
    any_ratio().prop_flat_map(|ratio| {
        let positions: Vec<usize> = (0..ratio.shards()).collect();
        let some = subsequence(positions, ratio.data()).prop_shuffle();
        (Just(ratio), vec(any_message(), ratio.data()), some)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_data_shards_of_a_group_rebuild_the_others((ratio, messages, came) in a_group()) {
        let packets = encode(&mut Encoder::new(settings(ratio)), &messages);
        prop_assert_eq!(packets.len(), ratio.shards());
        let mut decoder = Decoder::new(ratio, LONGEST + 2);
        let (last, before) = came.split_last().unwrap();
        for at in before {
            prop_assert!(decode(&mut decoder, &packets[*at]).is_empty());
        }
        let rebuilt = decoder.handle_shard(shard(&packets[*last]));
        let rebuilt: Vec<_> = rebuilt.segments().map(<[u8]>::to_vec).collect();
        let lost = (0..ratio.data()).filter(|at| !came.contains(at));
        let lost: Vec<_> = lost.map(|at| messages[at].clone()).collect();
        prop_assert_eq!(rebuilt, lost);
    }

    #[test]
    fn parity_is_the_product_with_the_matrix(
        // The oracle takes a second for the longest groups.
        (ratio, messages, _) in a_group()
            .prop_filter("small", |(ratio, ..)| ratio.shards() < 60),
        sent: Index,
    ) {
        let sent = sent.index(ratio.parity() + 1);
        let mut encoder = Encoder::new(settings(ratio));
        encoder.set_parity(sent);
        let packets = encode(&mut encoder, &messages);
        prop_assert_eq!(packets.len(), ratio.data() + sent);
        let length = packets.iter().map(Vec::len).max().unwrap() - 6;
        let mut bodies: Matrix = packets[..ratio.data()].iter().map(|p| p[6..].to_vec()).collect();
        bodies.iter_mut().for_each(|body| body.resize(length, 0));
        let all = times(&encoding(ratio), &bodies);
        for (packet, body) in packets.iter().zip(&all).skip(ratio.data()) {
            prop_assert_eq!(&packet[6..], body);
        }
        // Ids pass even where the parity does not.
        encoder.push(&messages[0], Instant::now()).unwrap();
        let next = u32::try_from(ratio.shards()).unwrap() + 1;
        prop_assert!(encoder.next() == ShardId(next) || ratio.data() == 1);
    }

    #[test]
    fn groups_are_kept_and_dropped_as_the_oracle_keeps_them(
        (ratio, messages) in any_ratio()
            .prop_filter("small", |ratio| ratio.shards() < 24)
            .prop_flat_map(|ratio| (Just(ratio), vec(any_message(), 0..8 * ratio.data()))),
        order in vec((any::<Index>(), 0_usize..60), 0..150),
        before_wrap in 0_u32..10,
    ) {
        let shards = u32::try_from(ratio.shards()).unwrap();
        let first = (u32::MAX / shards - before_wrap) * shards;
        let mut encoder = Encoder::starting_at(settings(ratio), ShardId(first));
        let mut packets = encode(&mut encoder, &messages);
        // Each packet may move, come again, or not come at all.
        for (at, by) in order {
            if packets.is_empty() {
                break;
            }
            let at = at.index(packets.len());
            let packet = match by {
                0..20 => packets.remove(at),
                _ => packets[at].clone(),
            };
            if by > 5 {
                packets.insert((at + by).min(packets.len()), packet);
            }
        }
        let (mut decoder, mut oracle) = (Decoder::new(ratio, LONGEST + 2), Oracle::new(ratio));
        for packet in &packets {
            prop_assert_eq!(decode(&mut decoder, packet), oracle.take(&shard(packet)));
            prop_assert_eq!(decoder.open_groups(), oracle.groups.len());
            prop_assert!(decoder.open_groups() <= 4);
        }
    }

    #[test]
    fn shards_of_any_numbers_do_not_heap_up(
        ratio in any_ratio(),
        shards in vec((any::<u32>(), any::<bool>(), 0_usize..=LONGEST), 0..300),
        same_ratio: bool,
    ) {
        let mut decoder = Decoder::new(ratio, LONGEST);
        for (mut id, mut is_data, length) in shards {
            if same_ratio {
                // As far away as can be, forwards and backwards.
                id = ((id % 8) << 29).wrapping_add(id % 1024);
                let position = id % u32::try_from(ratio.shards()).unwrap();
                is_data = position < u32::try_from(ratio.data()).unwrap();
            }
            let body = vec![7; length];
            let _ = decoder.handle_shard(Shard { id: ShardId(id), is_data, body: &body });
            prop_assert!(decoder.open_groups() <= 4);
        }
    }
}

#[test]
fn a_group_that_is_closed_early_protects_what_it_has() {
    let ratio = Ratio::new(10, 3).unwrap();
    // Even after a pause, when a whole group would get no parity.
    let pause = Some(std::time::Duration::ZERO);
    let mut encoder = Encoder::new(Settings { ratio, longest: LONGEST, pause });
    let now = Instant::now();
    assert_eq!(encoder.missing(), 0);
    encoder.close_early();
    assert_eq!(encoder.poll_filler(now), None, "no group is open");
    encoder.push(b"the only message", now).unwrap();
    assert_eq!((encoder.missing(), encoder.opened()), (9, Some(now)));
    assert_eq!(encoder.poll_filler(now), None, "nobody asked for it");
    encoder.close_early();
    let mut packets = Vec::new();
    while let Some(filler) = encoder.poll_filler(now) {
        assert_eq!(filler[6..], [6, 0, 0, 0, 0, 0]);
        packets.push(filler.to_vec());
    }
    assert_eq!((packets.len(), encoder.missing()), (9, 0));
    let mut buffer = [0; LONGEST];
    let length = encoder.poll_parity(&mut buffer).unwrap();
    packets.push(buffer[..length].to_vec());
    let mut decoder = Decoder::new(ratio, LONGEST);
    let (last, fillers) = packets.split_last().unwrap();
    for filler in fillers {
        assert!(decode(&mut decoder, filler).is_empty());
    }
    let rebuilt = decoder.handle_shard(shard(last));
    assert_eq!(rebuilt.segments().collect::<Vec<_>>(), [b"the only message"]);
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let ratio = Ratio::new(2, 1).unwrap();
    let mut encoder = Encoder::new(settings(ratio));
    let now = Instant::now();
    assert!(encoder.push(&[0; LONGEST + 1], now).is_err());
    assert_eq!((encoder.next(), encoder.opened()), (ShardId(0), None));
    encoder.push(&[1; LONGEST], now).unwrap();
    encoder.push(&[2; 5], now).unwrap();
    assert_eq!(encoder.poll_parity(&mut [0; LONGEST]), None, "the buffer is too short");
    let mut buffer = [0; LONGEST + 8];
    assert_eq!(encoder.poll_parity(&mut buffer), Some(LONGEST + 8));
    let mut decoder = Decoder::new(ratio, LONGEST);
    let long = Shard { id: ShardId(0), is_data: true, body: &[0; LONGEST + 1] };
    assert_eq!(decoder.handle_shard(long).bodies().count(), 0);
    assert_eq!((decoder.open_groups(), decoder.counters().refused), (0, 1));
}

/// The shorter code must not depend on what the buffers held before.
#[test]
fn groups_of_different_lengths_leave_nothing_behind() {
    let ratio = Ratio::new(2, 2).unwrap();
    let mut warm = Encoder::new(settings(ratio));
    let long = [vec![0xff; LONGEST], vec![0xee; LONGEST]];
    let short = [vec![1; 5], vec![2; 9]];
    encode(&mut warm, &long);
    warm.rest();
    encode(&mut warm, &long);
    let after = encode(&mut warm, &short);
    let mut fresh = Encoder::starting_at(settings(ratio), ShardId(8));
    assert_eq!(after, encode(&mut fresh, &short));
}

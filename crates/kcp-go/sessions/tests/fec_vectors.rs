//! Encoder, decoder, auto-tune and matrices against vectors that kcp-go printed, bit for bit.

#![allow(clippy::disallowed_methods, reason = "a test begins now, and counts from there")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::time::{Duration, Instant};

use kcp_go::fec::{Decoder, Encoder, LONGEST_PAUSE, Ratio, Settings, Shard, Tuner};
use kcp_go::wire::{Content, Conversation, ShardId, oob_head};
use serde_json::Value;

const LONGEST: usize = 1500;

fn section(name: &str) -> Vec<Value> {
    let mut all: Value = serde_json::from_str(include_str!("vectors/kcp-go-vectors.json")).unwrap();
    serde_json::from_value(all[name].take()).unwrap()
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

fn id(value: &Value) -> ShardId {
    ShardId(u32::try_from(value.as_u64().unwrap()).unwrap())
}

fn bytes(value: &Value) -> Vec<u8> {
    let hex = value.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn all_bytes(value: &Value) -> Vec<Vec<u8>> {
    value.as_array().unwrap().iter().map(bytes).collect()
}

fn ratio(data: &Value, parity: &Value) -> Ratio {
    Ratio::new(number(data), number(parity)).unwrap()
}

/// All parity that the encoder has.
fn parity(encoder: &mut Encoder) -> Vec<Vec<u8>> {
    let mut buffer = [0; LONGEST + 8];
    std::iter::from_fn(|| encoder.poll_parity(&mut buffer).map(|length| buffer[..length].to_vec()))
        .collect()
}

#[test]
fn the_matrices_are_those_of_kcp_go() {
    let mut all: Value = serde_json::from_str(include_str!("vectors/kcp-go-vectors.json")).unwrap();
    let matrices = all["reed_solomon"]["matrices"].take();
    let matrices = matrices.as_array().unwrap();
    assert!(matrices.len() >= 14);
    for matrix in matrices {
        let ratio = ratio(&matrix["data"], &matrix["parity"]);
        let rows = all_bytes(&matrix["parity_rows"]);
        for position in 0..ratio.data() {
            // A shard of ones beside shards of nothing shows its column.
            let settings = Settings { ratio, longest: 4, pause: None };
            let mut encoder = Encoder::new(settings);
            let now = Instant::now();
            for at in 0..ratio.data() {
                let byte = u8::from(at == position);
                encoder.push(&[byte; 4], now).unwrap();
            }
            let column: Vec<u8> = parity(&mut encoder).iter().map(|parity| parity[8]).collect();
            let expected: Vec<u8> = rows.iter().map(|row| row[position]).collect();
            assert_eq!(column, expected, "{ratio:?}, data shard {position}");
        }
    }
}

#[test]
fn shards_are_encoded_as_kcp_go_encodes_them() {
    for case in section("fec_encode") {
        let name = &case["name"];
        let pause = Some(Duration::from_millis(case["max_gap_ms"].as_u64().unwrap()));
        assert_eq!(pause, Some(LONGEST_PAUSE));
        let ratio = ratio(&case["data"], &case["parity"]);
        let first = id(&case["first_seqid"]);
        let settings = Settings { ratio, longest: LONGEST, pause };
        let mut encoder = Encoder::starting_at(settings, first);
        assert_eq!(encoder.next(), first, "{name}");
        let mut now = Instant::now();
        for step in case["steps"].as_array().unwrap() {
            now += Duration::from_millis(step["gap_ms_before"].as_u64().unwrap());
            let segments = bytes(&step["payload"]);
            let head = encoder.push(&segments, now).unwrap();
            assert_eq!([&head[..], &segments].concat(), bytes(&step["data_packet"]), "{name}");
            assert_eq!(parity(&mut encoder), all_bytes(&step["parity_packets"]), "{name}");
            // The ids of parity that was skipped pass with the next shard at the latest.
            assert_eq!(encoder.next(), id(&step["next_seqid"]), "{name}");
        }
    }
}

#[test]
fn shards_are_decoded_as_kcp_go_decodes_them() {
    for case in section("fec_decode") {
        let name = &case["name"];
        let packets = all_bytes(&case["packets"]);
        let ratio = ratio(&case["decoder_initial_data"], &case["decoder_initial_parity"]);
        let mut decoder = Decoder::new(ratio, LONGEST);
        for (n, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let content = Content::of(&packets[number(&step["feed"])]).unwrap();
            let rebuilt = decoder.handle_shard(Shard::of(&content).unwrap());
            let bodies: Vec<_> = rebuilt.bodies().map(<[u8]>::to_vec).collect();
            let segments: Vec<_> = rebuilt.segments().map(<[u8]>::to_vec).collect();
            assert_eq!(bodies, all_bytes(&step["recovered_raw"]), "{name}, step {n}");
            assert_eq!(segments, all_bytes(&step["recovered_payload"]), "{name}, step {n}");
            assert_eq!(decoder.ratio().data(), number(&step["decoder_data"]), "{name}, step {n}");
            let parity = number(&step["decoder_parity"]);
            assert_eq!(decoder.ratio().parity(), parity, "{name}, step {n}");
            assert_eq!(decoder.open_groups(), number(&step["live_groups"]), "{name}, step {n}");
        }
    }
}

#[test]
fn periods_are_found_where_kcp_go_finds_them() {
    for case in section("fec_autotune") {
        let mut tuner = Tuner::default();
        let kinds = case["is_data"].as_array().unwrap();
        for (seq, kind) in case["seq"].as_array().unwrap().iter().zip(kinds) {
            tuner.sample(id(seq), kind.as_bool().unwrap());
        }
        let period = |value: &Value| value.as_i64().and_then(|period| usize::try_from(period).ok());
        let expected = (period(&case["period_data"]), period(&case["period_parity"]));
        assert_eq!(tuner.periods(), expected, "{}", case["name"]);
    }
}

#[test]
fn out_of_band_datagrams_are_those_of_kcp_go() {
    for case in section("oob") {
        let payload = bytes(&case["payload"]);
        let conversation = Conversation(u32::try_from(case["conv"].as_u64().unwrap()).unwrap());
        let packet = bytes(&case["packet"]);
        let head = oob_head(conversation, payload.len()).unwrap();
        assert_eq!([&head[..], &payload].concat(), packet);
        let expected = Content::OutOfBand { conversation, payload: &payload };
        assert_eq!(Content::of(&packet), Some(expected));
    }
}

//! Encoder and decoder do not allocate once their buffers have grown.

#![allow(clippy::disallowed_methods, reason = "a test begins now, and counts from there")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::time::Instant;

use kcp_go::fec::{Decoder, Encoder, Ratio, Settings, Shard};
use kcp_go::wire::Content;

/// Sends groups that lose one shard each through an encoder and a decoder.
fn run(encoder: &mut Encoder, decoder: &mut Decoder, groups: usize, now: Instant) {
    let ratio = encoder.ratio();
    let mut packet = [7; 1458];
    for group in 0..groups {
        for at in 0..ratio.data() {
            let head = encoder.push(&packet[8..], now).unwrap();
            packet[..8].copy_from_slice(&head);
            if at != group % ratio.data() {
                receive(decoder, &packet);
            }
        }
        while let Some(length) = encoder.poll_parity(&mut packet) {
            receive(decoder, &packet[..length]);
        }
    }
}

fn receive(decoder: &mut Decoder, packet: &[u8]) {
    let content = Content::of(packet).unwrap();
    let _ = decoder.handle_shard(Shard::of(&content).unwrap());
}

#[test]
fn warm_buffers_are_used_again() {
    let ratio = Ratio::new(10, 3).unwrap();
    let mut encoder = Encoder::new(Settings { ratio, longest: 1450, pause: None });
    let mut decoder = Decoder::new(ratio, 1452);
    let now = Instant::now();
    run(&mut encoder, &mut decoder, 30, now);
    let used = allocation_counter::measure(|| run(&mut encoder, &mut decoder, 100, now));
    assert_eq!(used.count_total, 0);
    assert_eq!(decoder.counters().rebuilt, 130);
    let rested = allocation_counter::measure(|| {
        encoder.rest();
        decoder.rest();
    });
    // What is left belongs to the parity that came last, in groups that are still open.
    assert!(rested.bytes_current < -10_000, "{} bytes", rested.bytes_current);
}

//! A session does not allocate for each datagram: what it needs has grown after a while.

#![allow(clippy::disallowed_methods, reason = "a test begins now, and counts from there")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kcp_go::engine::Control;
use kcp_go::envelope::Null;
use kcp_go::fec::Ratio;
use kcp_go::session::{Config, Session};
use kcp_go::wire::Conversation;

/// Sends pieces of one buffer from the first to the second session; returns the datagrams.
fn run(ends: &mut [Session; 2], now: &mut Instant, out: &mut Vec<u8>, pieces: usize) -> usize {
    let piece = Bytes::from_static(&[7; 40_000]);
    let mut datagrams = 0;
    for _ in 0..pieces {
        ends[0].write(*now, &mut piece.clone());
        for _ in 0..4 {
            for n in 0..2 {
                out.clear();
                let mut at = 0;
                let mut lengths = [0; 256];
                let mut count = 0;
                while let Some(length) = ends[n].poll_transmit(*now, &mut |_| (), out) {
                    lengths[count] = length;
                    count += 1;
                }
                for length in &lengths[..count] {
                    ends[1 - n].handle_datagram(*now, &mut out[at..at + length]);
                    at += length;
                }
                datagrams += count;
                while ends[1 - n].read(usize::MAX).is_some() {}
            }
            *now += Duration::from_millis(3);
            ends.iter_mut().for_each(|end| end.handle_timeout(*now));
        }
    }
    datagrams
}

#[test]
fn warm_sessions_allocate_for_chunks_and_not_for_datagrams() {
    for ratio in [None, Ratio::new(10, 3)] {
        let mut now = Instant::now();
        let mut config = Config::new(Conversation(7));
        config.engine.control = Control::Open;
        let config = Config { encode: ratio, decode: ratio, adaptive: false, ..config };
        let mut ends = [(); 2].map(|()| Session::new(config.clone(), Arc::new(Null), now));
        let mut out = Vec::new();
        run(&mut ends, &mut now, &mut out, 50);
        let mut datagrams = 0;
        let used = allocation_counter::measure(|| {
            datagrams = run(&mut ends, &mut now, &mut out, 200);
        });
        assert!(ends[0].is_flushed() && datagrams > 6_000, "{datagrams}");
        // The receiver's bytes stand in chunks of 8 KiB and more, which the reader owns.
        let chunks = 200 * 40_000 / 8_192;
        assert!(used.count_total <= 2 * chunks + 200, "{} for {datagrams}", used.count_total);
        println!("{ratio:?}: {} allocations for {datagrams} datagrams", used.count_total);
    }
}

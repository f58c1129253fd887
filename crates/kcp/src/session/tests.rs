use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use testkit::netem::{Datagrams, Rng, Weather};

use super::*;
use crate::engine;
use crate::envelope::Null;

const CONVERSATION: Conversation = Conversation(7);

/// Two sessions with an emulated path between them, in virtual time.
struct World {
    start: Instant,
    now: Instant,
    ends: [Session; 2],
    paths: [Datagrams<Vec<u8>>; 2],
    rng: Rng,
}

fn config(ratio: Option<(usize, usize)>) -> Config {
    let ratio = ratio.map(|(data, parity)| Ratio::new(data, parity).unwrap());
    let engine = engine::Config::new(CONVERSATION, 0);
    Config { encode: ratio, decode: ratio, ..Config::new(engine, 1_350) }
}

fn weather(loss: f64) -> Weather {
    let delay = Duration::from_millis(20);
    Weather { delay, loss, rate: Some(2_500_000), queue: 200_000, ..Weather::default() }
}

impl World {
    fn new(configs: [Config; 2], weather: &Weather, seed: u64) -> Self {
        let now = Instant::now();
        let seal: Arc<dyn Seal> = Arc::new(Null);
        Self {
            start: now,
            now,
            ends: configs.map(|config| Session::new(config, Arc::clone(&seal), now).unwrap()),
            paths: [2 * seed, 2 * seed + 1].map(|seed| Datagrams::new(*weather, seed)),
            rng: Rng::new(seed),
        }
    }

    fn settle(&mut self) -> bool {
        let mut happened = false;
        for n in 0..2 {
            while let Some(mut datagram) = self.paths[1 - n].read(self.now) {
                self.ends[n].handle_datagram(self.now, &mut datagram);
                happened = true;
            }
            if self.ends[n].timeout().is_some_and(|at| at <= self.now) {
                self.ends[n].handle_timeout(self.now);
            }
            let rng = &mut self.rng;
            let mut random = |nonce: &mut [u8]| nonce.fill_with(|| rng.bits().to_le_bytes()[0]);
            let mut out = Vec::new();
            while let Some(length) = self.ends[n].poll_transmit(self.now, &mut random, &mut out) {
                assert!(length <= 1_350 && length == out.len());
                let datagram = std::mem::take(&mut out);
                self.paths[n].write(self.now, length + 28, || datagram.clone());
                happened = true;
            }
            assert!(out.is_empty());
        }
        happened
    }

    fn advance(&mut self) -> bool {
        let timers = self.ends.iter().filter_map(Session::timeout);
        let arrivals = self.paths.iter().filter_map(Datagrams::next_arrival);
        let Some(next) = timers.chain(arrivals).min() else { return false };
        self.now = next.max(self.now + Duration::from_micros(1));
        true
    }

    /// Sends `length` bytes from the first end to the second, checked byte by byte.
    fn transfer(&mut self, length: usize) -> Duration {
        let begin = self.now;
        let byte = |at: usize| (at % 251) as u8;
        let (mut written, mut read) = (0, 0);
        while read < length {
            let [from, to] = &mut self.ends;
            let part = (length - written).min(from.room()).min(16 << 10);
            if part > 0 {
                let mut bytes: Bytes = (written..written + part).map(byte).collect();
                written += from.write(self.now, &mut bytes);
            }
            while let Some(bytes) = to.read(usize::MAX) {
                for got in bytes {
                    assert_eq!(got, byte(read), "offset {read}");
                    read += 1;
                }
            }
            if !self.settle() && read < length {
                assert!(self.advance(), "everything stands still at {read} bytes");
            }
            assert!(self.now - self.start < Duration::from_secs(600), "{read} bytes");
        }
        self.now - begin
    }

    /// Until nothing happens any more.
    fn quiet(&mut self) {
        while self.settle() || self.advance() {
            assert!(self.now - self.start < Duration::from_secs(600), "no rest");
        }
    }
}

#[test]
fn bytes_are_exact_at_any_loss_with_any_fec() {
    for ratio in [None, Some((10, 3)), Some((3, 2))] {
        for (seed, loss) in [(1, 0.0), (2, 0.05), (3, 0.2)] {
            let mut weather = weather(loss);
            weather.reorder = 0.02;
            weather.duplicate = 0.02;
            let mut world = World::new([config(ratio), config(ratio)], &weather, seed);
            world.transfer(400_000);
            let counters = world.ends[1].counters();
            assert_eq!(counters.engine.bytes_in, 400_000);
            let is_rebuilt = counters.fec.rebuilt > 0;
            // What was overtaken is rebuilt, too.
            assert!(is_rebuilt || ratio.is_none() || loss == 0.0, "{loss} {counters:?}");
        }
    }
}

#[test]
fn each_direction_has_its_own_fec() {
    let [mut a, mut b] = [config(Some((10, 3))), config(None)];
    a.decode = None;
    b.decode = Some(Ratio::new(1, 1).unwrap());
    let mut world = World::new([a, b], &weather(0.05), 4);
    world.transfer(2_000_000);
    let [a, b] = world.ends.each_ref().map(Session::counters);
    assert!(a.parity_out > 0 && b.parity_out == 0);
    assert!(b.fec.tuned == 1 && b.fec.rebuilt > 0, "the ratio is found: {b:?}");
}

#[test]
fn a_ratio_that_changes_is_found_by_the_peer() {
    let ratio = Some((10, 3));
    let mut world = World::new([config(ratio), config(ratio)], &weather(0.02), 5);
    world.transfer(500_000);
    let before = world.ends[1].counters().fec;
    assert!(world.ends[0].set_ratio(Ratio::new(3, 2).unwrap()));
    world.transfer(2_000_000);
    let after = world.ends[1].counters().fec;
    assert!(after.tuned > before.tuned && after.rebuilt > before.rebuilt + 5, "{after:?}");
    assert!(
        !World::new([config(None), config(None)], &weather(0.0), 5).ends[0]
            .set_ratio(Ratio::new(3, 2).unwrap())
    );
}

/// A peer that rebuilds by the ratio before makes wrong bytes.
#[test]
fn no_change_of_the_ratio_makes_wrong_bytes() {
    let ratios = [(10, 3), (3, 2), (5, 1), (4, 4), (12, 1), (1, 1), (2, 5)];
    for seed in 0..20 {
        let ratio = Some((10, 3));
        let mut world = World::new([config(ratio), config(ratio)], &weather(0.1), seed);
        for (data, parity) in ratios {
            world.ends[0].set_ratio(Ratio::new(data, parity).unwrap());
            world.transfer(150_000);
        }
    }
}

#[test]
fn a_session_without_work_has_no_timer() {
    for ratio in [None, Some((10, 3))] {
        let mut world = World::new([config(ratio), config(ratio)], &weather(0.05), 6);
        world.transfer(100_000);
        world.quiet();
        for end in &mut world.ends {
            assert!(end.is_flushed());
            assert_eq!(end.timeout(), None);
            end.rest();
        }
        world.transfer(100_000);
    }
}

#[test]
fn acknowledgements_get_no_shard() {
    let ratio = Some((10, 3));
    let mut world = World::new([config(ratio), config(ratio)], &weather(0.0), 7);
    world.transfer(500_000);
    let counters = world.ends[1].counters();
    assert!(counters.datagrams_out > 50);
    assert_eq!(counters.parity_out, 0);
}

#[test]
fn the_tail_of_a_transfer_is_protected_within_the_budget() {
    let ratio = Some((10, 3));
    let mut world = World::new([config(ratio), config(ratio)], &weather(0.0), 8);
    // A round trip is known by then.
    world.transfer(100_000);
    world.quiet();
    let before = world.ends[0].counters();
    for _ in 0..50 {
        world.transfer(300);
        world.quiet();
    }
    let after = world.ends[0].counters();
    assert!(after.fillers_out > before.fillers_out, "{after:?}");
    assert!(after.parity_out > before.parity_out);
    let mut never = config(ratio);
    never.close_early = 0;
    let mut world = World::new([never.clone(), never], &weather(0.0), 8);
    world.transfer(300);
    world.quiet();
    assert_eq!(world.ends[0].counters().fillers_out, 0);
}

#[test]
fn the_rate_counts_everything_and_has_no_burst() {
    let mut limited = config(Some((10, 3)));
    limited.rate = Some(200_000);
    let mut world = World::new([limited, config(Some((10, 3)))], &weather(0.02), 9);
    let took = world.transfer(1_500_000);
    let sent = world.ends[0].counters().wire_out as f64;
    let allowed = 200_000.0 * (took.as_secs_f64() + 0.02);
    assert!(sent <= allowed, "{sent} of {allowed}");
    assert!(sent >= 0.9 * 200_000.0 * took.as_secs_f64(), "{sent} in {took:?}");
}

#[test]
fn parity_stays_within_its_share() {
    for (extra, least, most) in [(0.1, 0.02, 0.13), (1.0, 0.25, 0.45)] {
        let mut capped = config(Some((10, 3)));
        capped.extra = extra;
        let mut world = World::new([capped, config(Some((10, 3)))], &weather(0.0), 10);
        world.transfer(4_000_000);
        let counters = world.ends[0].counters();
        let share = counters.parity_out as f64 * 1_318.0 / counters.engine.bytes_out as f64;
        assert!((least..most).contains(&share), "{extra}: {share}, {counters:?}");
        assert_eq!(counters.parity_saved > 0, extra < 0.3);
    }
}

#[test]
fn datagrams_out_of_band_arrive_beside_the_stream_in_bounded_queues() {
    let ratio = Some((10, 3));
    let mut world = World::new([config(ratio), config(ratio)], &weather(0.0), 11);
    let longest = world.ends[0].longest_oob();
    assert_eq!(longest, 1_338);
    let long = Bytes::from(vec![1; longest]);
    world.ends[0].send_oob(long.clone()).unwrap();
    let error = world.ends[0].send_oob(Bytes::from(vec![1; longest + 1])).unwrap_err();
    assert_eq!(error, OobTooLong { length: longest + 1, longest });
    world.transfer(50_000);
    assert_eq!(world.ends[1].read_oob(), Some(long));
    for n in 0..OOB_QUEUE + 5 {
        world.ends[0].send_oob(Bytes::from(vec![n as u8])).unwrap();
    }
    assert_eq!(world.ends[0].counters().oob_dropped, 5);
    world.quiet();
    assert_eq!(world.ends[1].read_oob(), Some(Bytes::from(vec![5])));
    let mut without = World::new([config(None), config(None)], &weather(0.0), 12);
    assert!(without.ends[0].send_oob(Bytes::from_static(b"x")).is_err());
}

#[test]
fn a_dead_peer_is_noticed_and_garbage_is_counted() {
    let mut world = World::new([config(None), config(None)], &weather(1.0), 13);
    world.ends[0].write(world.now, &mut Bytes::from_static(b"hello"));
    while !world.ends[0].is_dead(world.now) {
        if !world.settle() {
            assert!(world.advance());
        }
        assert!(world.now - world.start < Duration::from_secs(60));
    }
    let end = &mut world.ends[1];
    for length in 0..200 {
        end.handle_datagram(world.now, &mut vec![0xf1; length]);
        end.handle_datagram(world.now, &mut vec![0; length]);
    }
    let counters = end.counters();
    assert_eq!(counters.malformed, 24);
    assert_eq!(counters.engine.malformed, 376);
}

#[test]
fn counters_of_sessions_add_up() {
    let mut world = World::new([config(None), config(None)], &weather(0.0), 14);
    world.transfer(10_000);
    let one = world.ends[0].counters();
    let mut sum = one;
    sum += one;
    assert_eq!(sum.wire_out, 2 * one.wire_out);
    assert_eq!(sum.engine.bytes_out, 20_000);
}

//! The behaviour of the controller on emulated paths, and with single acknowledgements.

use std::time::{Duration, Instant};

use testkit::netem::{Rng, Weather};

use super::arrears::Arrears;
use super::lumps::Lumps;
use super::round_trips::RoundTrips;
use super::samples::{Best, Deliveries};
use super::simulation::{
    Wait, path, run, run_granted, run_many, run_resumed, run_stopped, run_waiting,
};
use super::{Bbr, Measured, Mode};
use crate::testing::epoch;

#[test]
fn a_path_is_filled_at_any_loss_that_is_no_congestion() {
    for (megabits, round_trip) in [(10, 20), (100, 60), (100, 100), (1000, 100), (20, 300)] {
        for (loss, least) in [(0.0, 0.96), (0.01, 0.95), (0.05, 0.91), (0.1, 0.85), (0.2, 0.72)] {
            let weather = path(megabits, round_trip, 100, loss);
            let seconds = if megabits == 1000 { 6 } else { 15 };
            let outcome = run(weather, seconds);
            println!("{megabits} Mbit/s {round_trip} ms {loss}: {outcome:?}");
            assert!(
                outcome.used() > least,
                "{megabits} Mbit/s, {round_trip} ms, {loss}: {outcome:?}"
            );
        }
    }
}

#[test]
fn queues_stay_short_and_hardly_drop_anything() {
    for (megabits, round_trip, queue) in [(10, 50, 100), (100, 60, 100), (100, 100, 50)] {
        let outcome = run(path(megabits, round_trip, queue, 0.0), 15);
        println!("{megabits} Mbit/s {round_trip} ms queue {queue} ms: {outcome:?}");
        assert!(outcome.dropped < 0.01 && outcome.start > 0.75, "{outcome:?}");
        assert!(outcome.waited < Duration::from_millis(round_trip * 4 / 10), "{outcome:?}");
    }
}

#[test]
fn a_shallow_queue_is_not_flooded() {
    let outcome = run(path(100, 60, 5, 0.0), 15);
    println!("{outcome:?}");
    assert!(outcome.used() > 0.85 && outcome.dropped < 0.13, "{outcome:?}");
}

/// Packets of several senders that a short queue drops are not lost by chance. Otherwise each
/// sender would send more.
#[test]
fn several_at_a_short_queue_do_not_flood_it() {
    for (senders, queue, dropped) in [(2, 5, 0.16), (6, 5, 0.23), (6, 20, 0.13)] {
        let outcome = run_many(path(100, 60, queue, 0.0), 30, senders);
        println!("{senders} at a queue of {queue} ms: {outcome:?}");
        assert!(outcome.used() > 0.9 && outcome.dropped < dropped, "{senders}: {outcome:?}");
    }
}

/// Whether half of the path is left empty within 30 s if the round trips have this number of
/// milliseconds after a round trip of 100 ms. Also returns the least round trip at the end.
fn looks_for_the_least(milliseconds: u64) -> (bool, Duration) {
    let begin = epoch();
    let mut bbr = Bbr::new(begin, 1_452);
    let mut see = |now: Instant, milliseconds: u64| {
        bbr.round_trips.acknowledged(Duration::from_millis(milliseconds));
        bbr.note_round_trip(now);
        if matches!(bbr.mode, Mode::Startup) {
            bbr.mode = Mode::Cruise { phase: 2, since: now };
        }
        bbr.advance(now);
        (matches!(bbr.mode, Mode::ProbeRtt { .. }), bbr.round_trips.least())
    };
    let first = see(begin, 100);
    (1..=300).fold(first, |(looked, _), turn| {
        let (looks, least) = see(begin + Duration::from_millis(turn * 100), milliseconds);
        (looked || looks, least)
    })
}

#[test]
fn the_least_round_trip_is_looked_for_when_all_were_longer_for_five_seconds() {
    assert_eq!(looks_for_the_least(103), (false, Duration::from_millis(100)));
    assert_eq!(looks_for_the_least(104), (true, Duration::from_millis(104)));
    assert_eq!(looks_for_the_least(150), (true, Duration::from_millis(150)));
}

/// The first packets measure the least round trip of a path with jitter, and no later packet
/// measures it again.
#[test]
fn jitter_is_no_queue() {
    for (megabits, round_trip, jitter) in
        [(100, 60, 5), (100, 60, 10), (100, 60, 20), (100, 40, 20), (20, 20, 10), (10, 20, 25)]
    {
        let jitter = Duration::from_millis(jitter);
        let outcome = run(Weather { jitter, ..path(megabits, round_trip, 100, 0.0) }, 15);
        println!("{megabits} Mbit/s {round_trip} ms, jitter {jitter:?}: {outcome:?}");
        assert!(outcome.used() > 0.85, "{megabits}, {round_trip} ms, {jitter:?}: {outcome:?}");
    }
}

/// The time until the next multiple of this number of milliseconds.
const fn until_the_next(milliseconds: u128, at: Duration) -> Duration {
    Duration::from_millis((milliseconds - at.as_millis() % milliseconds) as u64)
}

#[test]
fn acknowledgements_that_come_in_lumps_do_not_slow_it_down() {
    const WAITS: [(&str, Wait); 5] = [
        ("each 10 ms", |at| until_the_next(10, at)),
        ("each 30 ms", |at| until_the_next(30, at)),
        ("each 100 ms", |at| until_the_next(100, at)),
        // A radio that scans for other stations.
        ("50 ms of 200", |at| {
            Duration::from_millis(50_u64.saturating_sub(at.as_millis() as u64 % 200))
        }),
        ("other 0 to 40 each 30 ms", |at| {
            let mut rng = Rng::new(at.as_millis() as u64 / 30);
            rng.bits();
            Duration::from_millis(rng.below(41))
        }),
    ];
    for (name, wait) in WAITS {
        for (megabits, round_trip) in [(100, 60), (20, 20), (10, 5)] {
            let outcome = run_waiting(path(megabits, round_trip, 100, 0.0), 15, wait);
            println!("{name}, {megabits} Mbit/s {round_trip} ms: {outcome:?}");
            assert!(outcome.used() > 0.85, "{name}, {megabits}, {round_trip} ms: {outcome:?}");
        }
    }
}

/// A busy host takes the cores away, each time for longer than quinn's pacer remembers.
#[test]
fn a_machine_that_is_stopped_again_and_again_catches_up() {
    const STOPPED: [(&str, f64, Wait); 3] = [
        ("5 of 10 ms", 0.85, |at| {
            Duration::from_millis(5_u64.saturating_sub(at.as_millis() as u64 % 10))
        }),
        ("20 of 25 ms", 0.85, |at| {
            Duration::from_millis(20_u64.saturating_sub(at.as_millis() as u64 % 25))
        }),
        ("40 of 50 ms", 0.75, |at| {
            Duration::from_millis(40_u64.saturating_sub(at.as_millis() as u64 % 50))
        }),
    ];
    for (name, least, stopped) in STOPPED {
        for (megabits, round_trip) in [(100, 100), (100, 60), (20, 20)] {
            let outcome = run_stopped(path(megabits, round_trip, 100, 0.0), 15, stopped);
            println!("{name}, {megabits} Mbit/s {round_trip} ms: {outcome:?}");
            assert!(outcome.used() > least, "{name}, {megabits}, {round_trip} ms: {outcome:?}");
        }
    }
}

#[test]
fn a_path_that_becomes_longer_is_believed_after_a_while() {
    for (megabits, round_trip, least) in
        [(100, 60, 0.9), (20, 60, 0.9), (100, 20, 0.8), (20, 20, 0.8)]
    {
        let wait: Wait = |at| Duration::from_millis(if at.as_secs() < 5 { 0 } else { 80 });
        let outcome = run_waiting(path(megabits, round_trip, 100, 0.0), 60, wait);
        println!("{megabits} Mbit/s {round_trip} ms: {outcome:?}");
        assert!(outcome.used() > least, "{megabits} Mbit/s {round_trip} ms: {outcome:?}");
    }
}

/// The rate of the last of six senders depends on chance, but the sender is never crowded out.
#[test]
fn several_at_one_bottleneck_share_it() {
    for (senders, fairness, dropped) in [(2, 0.85, 0.0), (3, 0.7, 0.001), (6, 0.35, 0.01)] {
        for (megabits, round_trip) in [(100, 60), (100, 20), (50, 5)] {
            let outcome = run_many(path(megabits, round_trip, 200, 0.0), 60, senders);
            println!("{senders} at {megabits} Mbit/s {round_trip} ms: {outcome:?}");
            assert!(outcome.used() > 0.97, "{senders} at {megabits}, {round_trip} ms: {outcome:?}");
            assert!(outcome.fairness() > fairness, "{senders}, {round_trip} ms: {outcome:?}");
            assert!(outcome.dropped <= dropped, "{senders}, {round_trip} ms: {outcome:?}");
        }
    }
}

/// Otherwise each sender would take the queue of the others for the path, and a longer queue would
/// make each sender send more.
#[test]
fn several_at_a_deep_queue_do_not_fill_it() {
    for (megabits, round_trip, senders) in [(30, 60, 4), (30, 60, 6), (100, 20, 6)] {
        let outcome = run_many(path(megabits, round_trip, 2_000, 0.0), 50, senders);
        println!("{senders} at {megabits} Mbit/s {round_trip} ms: {outcome:?}");
        assert!(outcome.waited < Duration::from_millis(300), "{senders}: {outcome:?}");
        assert!(outcome.fairness() > 0.25, "{senders}, {round_trip} ms: {outcome:?}");
    }
}

/// A round of an almost idle connection is a few packets.
#[test]
fn a_packet_that_idle_connections_lose_says_nothing_of_the_path() {
    let rate_after_loss = |packets: u64| {
        let begin = epoch();
        let mut bbr = Bbr::new(begin, 1_000);
        bbr.round = 5;
        bbr.best.add(0, 1_000_000.0);
        bbr.best.add(5, 1_000.0);
        (bbr.round_acked, bbr.round_lost) = (packets / 2 * 1_000, packets / 2 * 1_000);
        bbr.end_round(begin);
        bbr.best.get()
    };
    assert_eq!(rate_after_loss(2), 1_000_000.0);
    assert_eq!(rate_after_loss(40), 1_000.0);
}

/// If queues mark packets, each probe may end by a mark.
#[test]
fn a_mark_ends_a_probe_as_its_time_does() {
    let begin = epoch();
    let after = |milliseconds| begin + Duration::from_millis(milliseconds);
    let mut bbr = Bbr::new(begin, 1_000);
    bbr.mode = Mode::Cruise { phase: 0, since: begin };
    bbr.round_trips.acknowledged(Duration::from_millis(20));
    bbr.round_trips.end_batch(begin);
    bbr.on_congestion_event(after(15), begin, false, 0);
    assert_eq!(bbr.mode, Mode::Cruise { phase: 1, since: after(15) });
    bbr.round_trips.acknowledged(Duration::from_millis(30));
    bbr.round_trips.end_batch(after(20));
    bbr.round_trips.drain_ends();
    assert_eq!(bbr.round_trips.usual(), Duration::from_millis(30), "of the rest alone");
}

#[test]
fn the_best_of_ten_rounds_is_kept_in_an_entry_a_round() {
    let mut best = Best::default();
    for round in 0..100 {
        for sample in 0..50 {
            best.add(round, f64::from(1_000 - sample) - round as f64);
        }
    }
    assert_eq!((best.get(), best.len()), (1_000.0 - 89.0, 11));
    for round in [99, 200] {
        best.forget_before(round);
        assert_eq!((best.get(), best.len()), (1_000.0 - 99.0, 1), "the last one stays");
    }
}

#[test]
fn a_lump_is_what_the_rate_does_not_explain_and_at_most_a_tenth_of_a_second_of_it() {
    let begin = epoch();
    let rate = 1_000_000.0;
    let mut lumps = Lumps::new(begin);
    for turn in 1..=10 {
        lumps.acknowledged(begin + Duration::from_millis(turn), 1_000, rate, 0);
    }
    assert_eq!(lumps.largest(rate), 1_000.0, "what was acknowledged at once");
    for _ in 0..20 {
        lumps.acknowledged(begin + Duration::from_millis(30), 1_000, rate, 0);
    }
    assert_eq!(lumps.largest(rate), 20_000.0);
    lumps.acknowledged(begin + Duration::from_millis(30), 1_000_000, rate, 0);
    assert_eq!(lumps.largest(rate), 100_000.0);
    assert_eq!(lumps.largest(rate / 100.0), 1_000.0, "a path that has become slow");
}

#[test]
fn arrears_are_what_might_have_left_while_neither_window_nor_user_kept_it() {
    let begin = epoch();
    let after = |milliseconds| begin + Duration::from_millis(milliseconds);
    let (window, round_trip, mtu) = (1_000_000, Duration::from_millis(100), 1_000);
    let are_due = |arrears: &Arrears| arrears.are_due(window, round_trip, mtu);
    let mut arrears = Arrears::new(begin);
    arrears.pass(after(20), window, round_trip);
    assert!(!are_due(&arrears), "nothing was to be sent");

    // 12.5 MB/s are 250 kB in 20 ms. The pacer allows 20 kB of these bytes.
    arrears.hold(false);
    arrears.pass(after(40), window, round_trip);
    assert!(are_due(&arrears));
    arrears.sent(229_000);
    assert!(are_due(&arrears));
    arrears.sent(2_000);
    assert!(!are_due(&arrears));

    arrears.pass(after(60), window, round_trip);
    arrears.hold(true);
    assert!(!are_due(&arrears), "the window is full");
}

#[test]
fn the_usual_round_trip_is_the_least_between_queues_of_its_own() {
    let begin = epoch();
    let mut round_trips = RoundTrips::default();
    let see = |round_trips: &mut RoundTrips, milliseconds: u64| {
        round_trips.acknowledged(Duration::from_millis(milliseconds));
        round_trips.end_batch(begin);
    };
    see(&mut round_trips, 50);
    for (drained, usual) in [([70, 60, 80], 60), ([300, 200, 250], 100), ([50, 60, 70], 50)] {
        round_trips.drain_begins();
        for milliseconds in drained {
            see(&mut round_trips, milliseconds);
        }
        round_trips.drain_ends();
        assert_eq!(round_trips.usual(), Duration::from_millis(usual), "{drained:?}");
    }
    assert_eq!(round_trips.least(), Duration::from_millis(50));
}

/// Packets with acknowledgements alone are not acknowledged. A peer that sends PINGs alone causes
/// no other packets.
#[test]
fn what_nobody_acknowledges_is_not_remembered_without_end() {
    let begin = epoch();
    let mut deliveries = Deliveries::new(begin);
    let at = |number: u32| begin + Duration::from_micros(100) * number;
    for number in 0..100_000 {
        deliveries.sent(at(number), number == 0, false);
    }
    assert!(deliveries.remembered() <= 4096);
    deliveries.acknowledged(at(100_000), at(1_000), 1_200);
    assert!(deliveries.sample(at(100_000)).is_some(), "what is remembered still counts");
    deliveries.sent(at(100_001), false, false);
    deliveries.acknowledged(at(100_002), at(100_001), 1_200);
    assert!(deliveries.sample(at(100_002)).is_some(), "and so does what comes next");
}

/// Long paths on which a start without measurements needs five to nine round trips.
const LONG: [(u64, u64); 4] = [(100, 60), (100, 100), (1000, 100), (20, 300)];

#[test]
fn a_second_connection_fills_its_path_after_three_round_trips() {
    for (megabits, round_trip) in LONG {
        for (queue, loss) in [(100, 0.0), (20, 0.0), (100, 0.01), (100, 0.05)] {
            let weather = path(megabits, round_trip, queue, loss);
            let first = run(weather, 4);
            let second = run_resumed(weather, 4, first.measured.unwrap());
            println!("{megabits} Mbit/s {round_trip} ms {loss}: {first:?} {second:?}");
            assert!(first.filled_after >= Some(5), "{first:?}");
            assert!(second.filled_after <= Some(3), "{megabits}, {round_trip} ms: {second:?}");
            assert!(second.start > first.start * 1.05, "{megabits}, {round_trip} ms: {second:?}");
            assert!(second.dropped_packets <= first.dropped_packets * 11 / 10, "{second:?}");
        }
    }
}

/// The loss beyond the loss of a start without measurements.
#[test]
fn a_path_that_has_become_slow_loses_less_than_it_once_held() {
    for (megabits, round_trip) in LONG {
        for (slower, queue) in [(3, 100), (3, 20), (10, 100), (10, 20)] {
            let past = run(path(megabits, round_trip, 100, 0.0), 4).measured.unwrap();
            let held = (past.rate * past.round_trip.as_secs_f64() / 1_452.0) as u64;
            let weather = path(megabits / slower, round_trip, queue, 0.0);
            let (fresh, resumed) = (run(weather, 8), run_resumed(weather, 8, past));
            println!("{megabits} / {slower}, {round_trip} ms, {queue}: {fresh:?} {resumed:?}");
            let more = resumed.dropped_packets.saturating_sub(fresh.dropped_packets);
            assert!(more < held / 2, "{megabits} / {slower}, {round_trip} ms: {more} of {held}");
            assert!(resumed.start > fresh.start * 0.95, "{resumed:?}");
            assert!(resumed.used() > fresh.used() * 0.95, "{fresh:?} {resumed:?}");
        }
    }
}

/// A connection whose first flight of `packets` packets was acknowledged after `round_trip`, except
/// for the lost packets.
fn flown(packets: u64, lost: u64, round_trip: Duration) -> Bbr {
    let begin = epoch();
    let mut bbr = Bbr::new(begin, 1_000);
    for number in 0..packets {
        bbr.on_sent(begin, 1_000, number);
    }
    let end = begin + round_trip;
    for _ in lost..packets {
        bbr.on_ack(end, begin, 1_000, false, round_trip);
    }
    if lost > 0 {
        bbr.on_congestion_event(end, end, false, lost * 1_000);
    }
    bbr.on_end_acks(end, 0, false, Some(packets - 1));
    bbr
}

#[test]
fn only_a_path_that_is_as_it_was_is_trusted() {
    let trip = Duration::from_millis(100);
    let past = Measured { rate: 10e6, round_trip: trip, loss: 0.0 };
    let trusts = |packets, lost, round_trip, past| {
        let mut bbr = flown(packets, lost, round_trip);
        assert!(bbr.is_starting());
        let trusts = bbr.resume(past);
        assert_eq!(trusts, bbr.window() == 600_000, "0.6 of what fits: {}", bbr.window());
        assert!(!bbr.is_starting(), "asked once");
        trusts
    };
    assert!(trusts(32, 0, trip, past));
    assert!(trusts(32, 1, trip, past), "a packet may be lost");
    assert!(trusts(32, 0, trip * 2, past), "a queue of others");
    assert!(!trusts(32, 0, trip * 21 / 10, past), "a longer path");
    assert!(!trusts(32, 0, trip * 10 / 21, past), "a shorter path");
    assert!(!trusts(32, 2, trip, past), "a lossy path");
    assert!(trusts(32, 2, trip, Measured { loss: 0.05, ..past }), "which it was before");
    assert!(!trusts(32, 0, trip, Measured { rate: 100e3, ..past }), "a slow path");
}

#[test]
fn a_connection_that_never_met_a_limit_has_measured_nothing() {
    assert_eq!(flown(32, 0, Duration::from_millis(100)).measured(), None);
}

/// A receiver without measurements grants 64 KiB, and doubles the window whenever half of it was
/// used.
#[test]
fn a_receiver_that_grants_little_at_first_does_not_end_a_start() {
    for (megabits, round_trip) in [(100, 60), (100, 100), (20, 300)] {
        let weather = path(megabits, round_trip, 100, 0.0);
        let past = run(weather, 4).measured.unwrap();
        let fresh = run_granted(weather, 4, 64 << 10, None);
        let resumed = run_granted(weather, 4, 64 << 10, Some(past));
        println!("{megabits} Mbit/s {round_trip} ms: {fresh:?} {resumed:?}");
        assert!(resumed.start >= fresh.start * 0.97, "{fresh:?} {resumed:?}");
        assert!(resumed.used() >= fresh.used() * 0.97, "{fresh:?} {resumed:?}");
    }
}

/// Ten rounds of 1,000 packets with 20 % of loss, and a round of 20 packets with `lost` lost that
/// the application limits. The best rate before and after, bytes per second.
fn after_a_limited_round(lost: u64) -> [f64; 2] {
    const MTU: u64 = 1_000;
    let trip = Duration::from_millis(100);
    let mut now = epoch();
    let mut bbr = Bbr::new(now, 1_000);
    let (mut number, mut in_flight) = (0, 0);
    let mut round = |bbr: &mut Bbr, packets: u64, lost: u64, is_limited: bool| {
        let sent: Vec<_> = (0..packets)
            .map(|turn| {
                let at = now + trip * u32::try_from(turn).unwrap() / 2_000;
                number += 1;
                in_flight += MTU;
                bbr.on_sent(at, MTU, number);
                at
            })
            .collect();
        for (turn, at) in (0..).zip(sent) {
            in_flight -= MTU;
            now = at + trip;
            if turn * lost / packets < (turn + 1) * lost / packets {
                bbr.on_congestion_event(now, at, false, MTU);
            } else {
                bbr.on_ack(now, at, MTU, is_limited, trip);
                let acked = number - packets + turn + 1;
                bbr.on_end_acks(now, in_flight, is_limited, Some(acked));
            }
        }
    };
    for _ in 0..10 {
        round(&mut bbr, 1_000, 200, false);
    }
    let before = bbr.rate();
    // The acknowledgement of the next round ends this round.
    round(&mut bbr, 20, lost, true);
    round(&mut bbr, 20, 4, true);
    [before, bbr.rate()]
}

/// A fifth of 20 packets is 4, and 7 of 20 are no rarity on a path that loses a fifth.
#[test]
fn few_packets_of_a_limited_sender_are_an_upheaval_only_beyond_chance() {
    let [before, after] = after_a_limited_round(7);
    assert!(after > before * 0.9, "{before} {after}");
    let [before, after] = after_a_limited_round(18);
    assert!(after < before * 0.2, "{before} {after}");
}

//! Two links in virtual time: rates, fairness, life and limits, one short story each.

use std::rc::Rc;
use std::time::Duration;

use proto::Side::{Client, Server};
use proto::{Event, LinkConfig, Priority, ResetCode, StreamId};
use testkit::netem::Conditions;
use testkit::pair::{Pair, Purse, open, open_as};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn bulk_pair(round_trip: Duration, megabits: u64) -> Pair {
    let conditions = Conditions::path(round_trip, megabits);
    let mut pair = Pair::over(conditions, LinkConfig::default(), 1);
    for side in [Client, Server] {
        pair.end_mut(side).keeps = false;
    }
    pair
}

/// Bytes of a stream that arrive at the server within `span`.
fn bytes_within(pair: &mut Pair, id: StreamId, span: Duration) -> u64 {
    let before = pair.end(Server).streams.get(&id.raw()).map_or(0, |seen| seen.count);
    pair.run_for(span);
    pair.seen(Server, id).count - before
}

#[test]
fn the_window_grows_until_the_path_is_full() {
    for (rtt, megabits) in [(20, 100), (60, 100), (150, 100), (20, 1000), (60, 1000)] {
        let mut pair = bulk_pair(ms(rtt), megabits);
        let id = pair.open(Client, &open("bulk"));
        pair.feed(Client, id, megabits * 125_000 * 5);
        pair.run_for(ms(rtt * 16));
        let bytes = bytes_within(&mut pair, id, ms(1000));
        let share = bytes as f64 / (megabits as f64 * 125_000.0);
        println!("{rtt} ms, {megabits} Mbit/s: {share:.3} of the path");
        assert!(share >= 0.85, "{rtt} ms, {megabits} Mbit/s: only {share:.3}");
    }
}

/// The bytes of a stream that arrive within three round trips.
fn begins(pair: &mut Pair, name: &str) -> u64 {
    let id = pair.open(Client, &open(name));
    pair.feed(Client, id, 8 << 20);
    bytes_within(pair, id, ms(300))
}

#[test]
fn a_stream_of_a_long_path_begins_with_half_of_the_window_that_the_last_one_needed() {
    let mut pair = bulk_pair(ms(100), 1000);
    let first = begins(&mut pair, "first");
    pair.run_for(ms(2_000));
    let second = begins(&mut pair, "second");
    println!("{first} and {second} bytes in three round trips");
    assert!(second > first * 3, "{first} and {second}");
}

#[test]
fn streams_that_nobody_reads_get_one_large_first_window() {
    let mut pair = bulk_pair(ms(100), 1000);
    let first = begins(&mut pair, "first");
    pair.run_for(ms(2_000));
    pair.end_mut(Server).automatic = false;
    let ids: Vec<_> = (0..10).map(|_| pair.open(Client, &open("unread"))).collect();
    for id in &ids {
        pair.feed(Client, *id, 8 << 20);
    }
    pair.run_for(ms(2_000));
    let counts: Vec<_> = ids.iter().map(|id| pair.seen(Server, *id).count).collect();
    println!("{counts:?}");
    let large = counts.iter().filter(|count| **count > (256 << 10) + 16);
    assert_eq!(large.count(), 1, "{counts:?}");
    // The stream that holds the large first window is read: another may get it.
    pair.end_mut(Server).automatic = true;
    for (id, count) in ids.iter().zip(counts) {
        pair.consume(Server, *id, usize::try_from(count).unwrap());
    }
    pair.run_for(ms(3_000));
    begins(&mut pair, "alone");
    pair.run_for(ms(2_000));
    let next = begins(&mut pair, "next");
    assert!(next > first * 3, "{first} and {next}");
}

#[test]
fn a_slow_reader_and_one_that_never_reads_hold_nobody_up() {
    let mut pair = bulk_pair(ms(20), 100);
    pair.end_mut(Server).automatic = false;
    let slow = pair.open(Client, &open("1 byte per second"));
    let never = pair.open(Client, &open("never"));
    pair.feed(Client, slow, 64 << 20);
    pair.feed(Client, never, 64 << 20);
    pair.run_for(ms(500));
    pair.end_mut(Server).automatic = true;
    let id = pair.open(Client, &open("bulk"));
    pair.feed(Client, id, 64 << 20);
    pair.run_for(ms(500));
    let mut bytes = 0;
    for _ in 0..2 {
        bytes += bytes_within(&mut pair, id, ms(1000));
        pair.consume(Server, slow, 1);
    }
    assert!(bytes >= 22_500_000, "{bytes} of 25,000,000");
    for stalled in [slow, never] {
        assert!(pair.seen(Server, stalled).count <= (256 << 10) + 16, "bounded by its credit");
    }
    let retained = pair.end(Client).link.retained();
    assert!(retained <= (3 * (256 << 10)) + (16 << 20), "{retained} kept");
}

#[test]
fn bulk_streams_share_alike() {
    for count in [2u64, 10, 100] {
        let mut pair = bulk_pair(ms(20), 100);
        let ids: Vec<StreamId> = (0..count).map(|_| pair.open(Client, &open("bulk"))).collect();
        for id in &ids {
            pair.feed(Client, *id, 64 << 20);
        }
        pair.run_for(ms(1000));
        let before: Vec<u64> = ids.iter().map(|id| pair.seen(Server, *id).count).collect();
        pair.run_for(ms(4000));
        let bytes: Vec<u64> =
            ids.iter().zip(before).map(|(id, b)| pair.seen(Server, *id).count - b).collect();
        let (least, most) = (*bytes.iter().min().unwrap(), *bytes.iter().max().unwrap());
        let total: u64 = bytes.iter().sum();
        println!("{count} streams: least {least}, most {most}, total {total}");
        assert!(least * 100 >= most * 80, "{count} streams: {least} against {most}");
        assert!(total >= 45_000_000, "{count} streams: {total} of 50,000,000");
    }
}

#[test]
fn a_byte_beside_bulk_waits_for_a_few_milliseconds_only() {
    let mut pair = bulk_pair(ms(20), 100);
    let bulk = pair.open(Client, &open_as("bulk", Priority::Normal));
    let key = pair.open(Client, &open_as("echo", Priority::Normal));
    pair.feed(Client, bulk, 64 << 20);
    pair.run_for(ms(1000));
    let mut worst = Duration::ZERO;
    for n in 1..=50u64 {
        let sent = pair.now;
        pair.write(Client, key, b"k");
        while pair.seen(Server, key).count < n {
            pair.step();
        }
        worst = worst.max(pair.now - sent);
        pair.run_for(ms(7));
    }
    println!("worst {worst:?} on a path of 10 ms one way");
    assert!(worst <= ms(10 + 15), "{worst:?}");
}

#[test]
fn the_interactive_class_does_not_wait_for_bulk_and_bulk_fills_what_is_left() {
    for (above, below) in [
        (Priority::Interactive, Priority::Normal),
        (Priority::Interactive, Priority::Bulk),
        (Priority::Normal, Priority::Bulk),
    ] {
        let mut pair = bulk_pair(ms(20), 100);
        let ids: Vec<StreamId> =
            (0..20).map(|_| pair.open(Client, &open_as("bulk", below))).collect();
        let key = pair.open(Client, &open_as("keys", above));
        ids.iter().for_each(|id| pair.feed(Client, *id, 16 << 20));
        pair.run_for(ms(1000));
        let count = |pair: &Pair| ids.iter().map(|id| pair.seen(Server, *id).count).sum::<u64>();
        let (start, before) = (pair.now, count(&pair));
        let mut worst = Duration::ZERO;
        for n in 1..=50u64 {
            let sent = pair.now;
            pair.write(Client, key, b"k");
            while pair.seen(Server, key).count < n {
                pair.step();
            }
            worst = worst.max(pair.now - sent);
            pair.run_for(ms(7));
        }
        let share =
            (count(&pair) - before) as f64 / (pair.now - start).as_secs_f64() / 12_500_000.0;
        println!("{above:?} beside 20 of {below:?}: worst {worst:?}, bulk {share:.3} of the path");
        assert!(worst <= ms(10 + 15), "{worst:?}");
        assert!(share >= 0.85, "{share}");
    }
}

#[test]
fn a_lower_class_gets_what_the_higher_leaves() {
    let mut pair = bulk_pair(ms(20), 100);
    let backup = pair.open(Client, &open_as("backup", Priority::Bulk));
    let normal = pair.open(Client, &open_as("web", Priority::Normal));
    pair.feed(Client, backup, 64 << 20);
    pair.run_for(ms(1000));
    pair.feed(Client, normal, 30 << 20);
    pair.run_for(ms(1000));
    let before = pair.seen(Server, backup).count;
    let bytes = bytes_within(&mut pair, normal, ms(1000));
    assert!(bytes >= 11_000_000, "{bytes} of 12,500,000");
    assert!(pair.seen(Server, backup).count - before <= 1_250_000);
    pair.run_for(ms(1500));
    let bytes = bytes_within(&mut pair, backup, ms(500));
    assert!(bytes >= 5_500_000, "{bytes} of 6,250,000 once it is alone");
}

#[test]
fn ten_thousand_idle_streams_still_answer() {
    let mut pair = Pair::connected(1);
    let ids: Vec<StreamId> = (0..10_000).map(|_| pair.open(Client, &open("idle"))).collect();
    pair.run();
    assert_eq!(pair.end(Server).link.stream_count(), 10_000);
    for id in &ids {
        pair.write(Client, *id, b"x");
    }
    pair.run();
    assert!(ids.iter().all(|id| pair.seen(Server, *id).got == b"x"));
    assert_eq!(pair.end(Client).link.retained(), 0, "an idle stream retains nothing");
}

#[test]
fn half_close_keeps_the_other_direction_open() {
    let mut pair = Pair::connected(1);
    let id = pair.open(Client, &open("x"));
    pair.write(Client, id, b"question");
    pair.finish(Client, id);
    pair.run();
    assert!(pair.seen(Server, id).finished && !pair.seen(Server, id).closed);
    pair.write(Server, id, &[9; 1 << 20]);
    pair.finish(Server, id);
    pair.run();
    assert_eq!(pair.seen(Client, id).count, 1 << 20);
    assert!(pair.seen(Client, id).closed && pair.seen(Server, id).closed);
}

#[test]
fn going_away_refuses_what_is_new_and_keeps_what_lives() {
    let mut pair = Pair::connected(1);
    let ids: Vec<StreamId> = (0..200).map(|_| pair.open(Client, &open("x"))).collect();
    pair.end_mut(Client).link.go_away();
    pair.run();
    for id in ids {
        assert_eq!(pair.end(Client).streams[&id.raw()].reset, None, "{id} was opened before");
    }
    assert!(pair.try_open(Client, &open("x")).is_none());
    assert!(pair.try_open(Server, &open("x")).is_none());
}

#[test]
fn going_away_is_said_again_when_the_carrier_dies_with_it() {
    let mut pair = Pair::connected(1);
    pair.run();
    pair.end_mut(Server).link.go_away();
    pair.pump();
    pair.kill();
    pair.reconnect();
    pair.run();
    assert_eq!(
        pair.end(Client).times(|event| *event == Event::GoingAway(proto::GoAwayReason::Retire)),
        1
    );
}

#[test]
fn a_stream_too_many_is_refused_and_a_place_is_free_again_after_one_ends() {
    let config = LinkConfig { streams_max: 2, ..LinkConfig::default() };
    let mut pair = Pair::over(Conditions::default(), config, 1);
    let ids: Vec<StreamId> = (0..3).map(|_| pair.open(Client, &open("x"))).collect();
    pair.run();
    assert_eq!(pair.seen(Client, ids[2]).reset, Some(ResetCode::Limit));
    assert!(!pair.end(Server).streams.contains_key(&ids[2].raw()));
    for side in [Client, Server] {
        pair.finish(side, ids[0]);
    }
    pair.run();
    let id = pair.open(Client, &open("x"));
    pair.run();
    assert_eq!(pair.seen(Client, id).reset, None);
}

#[test]
fn ten_thousand_visitors_where_a_thousand_may_be_leave_the_link_alone() {
    let config = LinkConfig { streams_max: 1000, ..LinkConfig::default() };
    let mut pair = Pair::over(Conditions::path(ms(100), 100), config, 1);
    let ids: Vec<StreamId> = (0..10_000).map(|_| pair.open(Server, &open("x"))).collect();
    for id in &ids {
        pair.write(Server, *id, b"GET / HTTP/1.1");
    }
    pair.run();
    assert_eq!(pair.end(Client).violation, None);
    let (taken, refused) = ids.split_at(1000);
    assert!(taken.iter().all(|id| pair.seen(Client, *id).count == 14));
    assert!(refused.iter().all(|id| {
        let seen = pair.seen(Server, *id);
        seen.reset == Some(ResetCode::Limit) && seen.stopped == seen.reset && seen.closed
    }));
    assert_eq!(pair.end(Server).link.stream_count(), 1000);
}

#[test]
fn silence_is_noticed_in_five_seconds_with_data_outstanding() {
    let mut pair = bulk_pair(ms(40), 100);
    let id = pair.open(Client, &open("x"));
    pair.run_for(ms(8000));
    pair.silence();
    pair.write(Client, id, b"lost");
    let (start, number) = (pair.now, pair.carrier());
    pair.run_for(ms(6000));
    let log = &pair.end(Client).log;
    let at =
        |wanted: &Event| log.iter().find(|(_, event)| event == wanted).map(|(t, _)| *t - start);
    // The timeout of the PING at 1 s is two round trips of 40 ms.
    let silent = at(&Event::Silent).expect("nothing answers");
    assert!((ms(1080)..ms(1081)).contains(&silent), "{silent:?}");
    assert_eq!(at(&Event::ProbeNextPath), Some(ms(3000)));
    assert_eq!(at(&Event::CarrierDead(number)), Some(ms(5000)));
}

#[test]
fn a_link_whose_streams_rest_is_not_silent() {
    let mut pair = bulk_pair(ms(40), 100);
    let id = pair.open(Client, &open("x"));
    // After each request the last CREDIT gets no reply, but the PING at 1 s gets one.
    for _ in 0..5 {
        pair.write(Client, id, b"request");
        pair.write(Server, id, b"response");
        pair.run_for(ms(4000));
    }
    for side in [Client, Server] {
        assert_eq!(pair.end(side).times(|event| *event == Event::Silent), 0, "{side:?}");
    }
}

#[test]
fn a_standby_takes_over_after_three_seconds_of_silence_whichever_end_waits() {
    for side in [Client, Server] {
        let mut pair = bulk_pair(ms(40), 100);
        let id = pair.open(Client, &open("x"));
        let first = pair.carrier();
        let standby = pair.add();
        pair.run_for(ms(8000));
        pair.silence_carrier(first);
        pair.write(side, id, b"once");
        let start = pair.now;
        pair.run_for(ms(3200));
        let end = pair.end(side);
        let took_over = end.log.iter().find(|(_, event)| *event == Event::TookOver(standby));
        assert_eq!(took_over.map(|(at, _)| *at - start), Some(ms(3000)), "{side:?}");
        assert_eq!(end.times(|event| *event == Event::ProbeNextPath), 0, "{side:?}");
        assert_eq!(pair.seen(side.peer(), id).count, 4, "{side:?}");
        for end in [Client, Server].map(|side| pair.end(side)) {
            assert_eq!(end.link.active_carrier(), Some(standby));
            assert_eq!(end.times(|event| *event == Event::Resumed), 1);
        }
    }
}

#[test]
fn a_standby_that_answers_takes_over_from_a_carrier_whose_transport_hears_nothing() {
    for side in [Client, Server] {
        let mut pair = bulk_pair(ms(40), 100);
        let id = pair.open(Client, &open("x"));
        let mut active = pair.carrier();
        pair.end_mut(side).hears_nothing = true;
        // The second carrier is given up as early as the first, because it comes 10 s later.
        for _ in 0..2 {
            let standby = pair.add();
            pair.run_for(ms(12_000));
            pair.silence_carrier(active);
            pair.write(side, id, b"once");
            let start = pair.now;
            pair.run_for(ms(600));
            let end = pair.end(side);
            let at = |wanted: &Event| {
                let found = end.log.iter().find(|(at, event)| *at >= start && event == wanted);
                found.map(|(at, _)| *at - start)
            };
            // 200 ms and two round trips, and three round trips more.
            let doubted = at(&Event::Doubted(active)).expect("a silence");
            assert!((ms(280)..ms(281)).contains(&doubted), "{side:?} {doubted:?}");
            let took_over = at(&Event::TookOver(standby)).expect("an answer of the standby");
            assert!((ms(400)..ms(401)).contains(&took_over), "{side:?} {took_over:?}");
            assert_eq!(end.link.active_carrier(), Some(standby));
            active = standby;
        }
        assert_eq!(pair.seen(side.peer(), id).count, 8, "{side:?}");
    }
}

#[test]
fn of_two_carriers_that_die_soon_after_each_other_the_second_is_not_compared() {
    let mut pair = bulk_pair(ms(40), 100);
    let id = pair.open(Client, &open("x"));
    pair.end_mut(Client).hears_nothing = true;
    let first = pair.carrier();
    let second = pair.add();
    pair.run_for(ms(5000));
    pair.silence_carrier(first);
    pair.write(Client, id, b"once");
    pair.run_for(ms(1000));
    let third = pair.add();
    pair.run_for(ms(4000));
    pair.silence_carrier(second);
    pair.write(Client, id, b"again");
    let start = pair.now;
    pair.run_for(ms(3200));
    let log = &pair.end(Client).log;
    let took_over = log.iter().find(|(_, event)| *event == Event::TookOver(third));
    assert_eq!(took_over.map(|(at, _)| *at - start), Some(ms(3000)));
    assert_eq!(pair.seen(Server, id).count, 9);
}

#[test]
fn without_an_answer_of_the_standby_no_carrier_is_given_up_early() {
    let mut pair = bulk_pair(ms(40), 100);
    let id = pair.open(Client, &open("x"));
    pair.end_mut(Client).hears_nothing = true;
    pair.add();
    pair.run_for(ms(8000));
    pair.silence();
    pair.write(Client, id, b"lost");
    pair.run_for(ms(2900));
    let end = pair.end(Client);
    assert_eq!(end.times(|event| matches!(event, Event::Doubted(_))), 1);
    assert_eq!(end.times(|event| matches!(event, Event::Unanswered(_) | Event::TookOver(_))), 0);
}

#[test]
fn a_silent_standby_is_given_up_like_an_idle_carrier_and_moves_no_stream() {
    let mut pair = bulk_pair(ms(40), 100);
    let first = pair.carrier();
    let standby = pair.add();
    let id = pair.open(Client, &open("x"));
    pair.run_for(ms(5000));
    pair.silence_carrier(standby);
    let start = pair.now;
    for _ in 0..60 {
        pair.write(Client, id, b"while it is silent");
        pair.run_for(ms(1000));
    }
    for side in [Client, Server] {
        let end = pair.end(side);
        let dead = end.log.iter().find(|(_, event)| *event == Event::CarrierDead(standby));
        let after = dead.unwrap().0 - start;
        assert!((ms(29_000)..=ms(36_000)).contains(&after), "{side:?} after {after:?}");
        assert_eq!(end.link.active_carrier(), Some(first));
        assert_eq!(end.times(|event| *event == Event::ProbeNextPath), 0);
        assert_eq!(end.times(|event| *event == Event::Resumed), 0);
    }
    assert_eq!(pair.seen(Server, id).count, 60 * 18);
}

#[test]
fn a_standby_carries_pings_alone_while_the_link_is_busy() {
    let mut pair = bulk_pair(ms(40), 100);
    pair.add();
    let id = pair.open(Client, &open("x"));
    let minutes = 10;
    for _ in 0..minutes {
        pair.feed(Client, id, 1 << 20);
        pair.run_for(ms(60_000));
    }
    // A PING or its PONG in each keepalive, and the first measurements of the round trip.
    for side in [Client, Server] {
        let frames = pair.delivered(side) / 16;
        assert!(frames >= minutes * 4 - 2 && frames < minutes * 8 + 20, "{frames} frames");
    }
    assert_eq!(pair.seen(Server, id).count, minutes << 20);
}

#[test]
fn a_second_standby_takes_the_place_of_the_first() {
    let mut pair = Pair::connected(1);
    let id = pair.open(Client, &open("x"));
    let (first, old) = (pair.carrier(), pair.add());
    let new = pair.add();
    pair.run();
    for side in [Client, Server] {
        assert_eq!(pair.end(side).times(|event| *event == Event::CarrierDead(old)), 1);
    }
    pair.kill_carrier(first);
    pair.write(Client, id, b"over the newest");
    pair.run();
    assert_eq!(pair.end(Client).link.active_carrier(), Some(new));
    assert_eq!(pair.seen(Server, id).got, b"over the newest");
}

#[test]
fn silence_is_noticed_in_thirty_five_seconds_when_idle() {
    let mut pair = bulk_pair(ms(40), 100);
    pair.run_for(ms(5000));
    pair.silence();
    let number = pair.carrier();
    let start = pair.now;
    pair.run_for(ms(60_000));
    for side in [Client, Server] {
        let dead =
            pair.end(side).log.iter().find(|(_, event)| *event == Event::CarrierDead(number));
        let after = dead.unwrap().0 - start;
        assert!((ms(29_000)..=ms(36_000)).contains(&after), "{side:?} after {after:?}");
    }
}

#[test]
fn a_question_just_before_the_keepalive_does_not_spin() {
    let mut pair = bulk_pair(ms(40), 100);
    let id = pair.open(Client, &open("x"));
    pair.run_for(ms(1000));
    pair.silence();
    pair.run_for(ms(14_200));
    pair.write(Client, id, b"x");
    let mut steps = 0;
    let end = pair.now + ms(4000);
    while pair.now < end && steps < 1000 {
        pair.step();
        steps += 1;
    }
    assert!(steps < 1000, "a deadline in the past is asked for again and again");
}

#[test]
fn an_idle_link_stays_alive_for_an_hour() {
    let mut pair = bulk_pair(ms(40), 100);
    pair.run_for(Duration::from_secs(3600));
    for side in [Client, Server] {
        assert!(pair.end(side).link.is_live());
        assert_eq!(pair.end(side).log, []);
    }
}

#[test]
fn a_link_without_carrier_expires_after_resume_timeout_and_once() {
    let mut pair = Pair::connected(1);
    pair.run();
    pair.kill();
    pair.run_for(ms(59_900));
    assert_eq!(pair.end(Client).log, []);
    pair.run_for(ms(200_000));
    for side in [Client, Server] {
        assert_eq!(pair.end(side).times(|event| *event == Event::Expired), 1);
    }
}

#[test]
fn the_control_stream_takes_its_largest_message_again_and_again() {
    let purse = Purse::new(100 << 10);
    let config = LinkConfig::default();
    let mut pair = Pair::new([config; 2], [Rc::new(purse.clone()), Rc::new(purse)], 1);
    pair.reconnect();
    let message = vec![5; 1 << 20];
    for n in 1..=10usize {
        assert!(pair.end_mut(Client).link.send_control(&message), "message {n}");
        pair.run();
        assert_eq!(pair.end(Server).control.len(), n << 20);
    }
}

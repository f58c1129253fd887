//! Streams that nobody reads, beside a stream that moves: the stream that moves keeps its speed
//! (lines 7 and 48 of the list of reliability), whatever the budget of either end.

use std::rc::Rc;
use std::time::Duration;

use proto::Side::{self, Client, Server};
use proto::{Budget, LinkConfig, StreamId, Unlimited};
use testkit::netem::Conditions;
use testkit::pair::{Pair, Purse, open};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The two ends with their budgets, a path, and the number of streams that stall.
#[derive(Clone, Copy, Debug)]
struct Case {
    round_trip: Duration,
    megabits: u64,
    laned: bool,
    /// The budgets of client and server; `None` has no limit.
    budgets: [Option<u64>; 2],
    stalled: usize,
    /// Bytes that each of them consumes before it stalls.
    consumes: usize,
    /// The stream is read at this end, and so are the stalled ones until they stall.
    reads: Side,
}

const CASE: Case = Case {
    round_trip: ms(30),
    megabits: 1500,
    laned: false,
    budgets: [Some(32 << 20); 2],
    stalled: 40,
    consumes: 0,
    reads: Server,
};

fn stalling(case: Case) -> Pair {
    let budgets = case.budgets.map(|budget| match budget {
        Some(bytes) => Rc::new(Purse::new(bytes)) as Rc<dyn Budget>,
        None => Rc::new(Unlimited),
    });
    let mut pair = Pair::new([LinkConfig::default(); 2], budgets, 1);
    pair.conditions = Conditions::path(case.round_trip, case.megabits);
    pair.laned = case.laned;
    pair.reconnect();
    for side in [Client, Server] {
        (pair.end_mut(side).keeps, pair.end_mut(side).automatic) = (false, false);
    }
    let sender = case.reads.peer();
    let ids: Vec<StreamId> = (0..case.stalled).map(|_| pair.open(Client, &open("x"))).collect();
    pair.run_for(case.round_trip * 2);
    for id in &ids {
        pair.feed(sender, *id, 64 << 20);
    }
    let mut left = vec![case.consumes; ids.len()];
    for _ in 0..600 {
        pair.run_for(ms(2));
        for (id, left) in ids.iter().zip(&mut left) {
            let n = pair.seen(case.reads, *id).held.min(*left);
            pair.consume(case.reads, *id, n);
            *left -= n;
        }
    }
    if case.consumes > 0 {
        let stalled = left.iter().filter(|left| **left == 0).count();
        assert_eq!(stalled, ids.len(), "{case:?}: all have stalled, {left:?}");
    }
    pair
}

/// Bytes of half a second of a stream that begins now, from 0.5 s after its begin.
fn speed(pair: &mut Pair, reads: Side) -> u64 {
    let id = pair.open(Client, &open("x"));
    pair.run_for(ms(100));
    pair.feed(reads.peer(), id, 256 << 20);
    for side in [Client, Server] {
        pair.end_mut(side).streams.get_mut(&id.raw()).expect("it is open").automatic =
            side == reads;
    }
    pair.consume(reads, id, usize::MAX);
    pair.run_for(ms(400));
    let before = pair.seen(reads, id).count;
    pair.run_for(ms(500));
    pair.seen(reads, id).count - before
}

fn check(case: Case) {
    let alone = speed(&mut stalling(Case { stalled: 0, ..case }), case.reads);
    let beside = speed(&mut stalling(case), case.reads);
    assert!(alone > 0 && beside * 10 >= alone * 7, "{case:?}: {beside} of {alone} bytes");
}

#[test]
fn forty_unread_streams_take_no_speed_from_a_stream_that_moves() {
    for (reads, laned) in [(Server, false), (Client, true)] {
        check(Case { reads, laned, ..CASE });
    }
}

#[test]
fn forty_streams_that_stall_after_some_bytes_take_no_speed_from_a_stream_that_moves() {
    // The kernel's buffers take so many bytes of a visitor that reads nothing; then a visitor that
    // read a while and paused.
    for (laned, consumes) in [(false, 384 << 10), (true, 384 << 10), (false, 4 << 20)] {
        check(Case { laned, consumes, ..CASE });
    }
}

#[test]
fn four_hundred_unread_streams_take_no_speed_from_a_stream_that_moves() {
    for consumes in [0, 128 << 10] {
        check(Case { stalled: 400, consumes, ..CASE });
    }
}

#[test]
fn a_small_budget_at_one_end_is_enough() {
    for small in [0, 1] {
        for (stalled, consumes) in [(40, 4 << 20), (400, 128 << 10)] {
            let mut budgets = [Some(1 << 30); 2];
            budgets[small] = Some(32 << 20);
            check(Case { budgets, stalled, consumes, ..CASE });
        }
    }
}

#[test]
fn a_path_without_delay_is_no_exception() {
    for (stalled, consumes) in [(40, 4 << 20), (400, 384 << 10)] {
        let round_trip = Duration::from_micros(200);
        check(Case { round_trip, megabits: 4000, stalled, consumes, ..CASE });
    }
}

#[test]
fn the_default_budget_of_a_machine_with_one_gigabyte_is_enough() {
    for (stalled, consumes) in [(40, 4 << 20), (400, 128 << 10)] {
        check(Case { budgets: [Some(256 << 20); 2], stalled, consumes, ..CASE });
    }
}

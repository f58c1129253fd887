//! The kill model: a conversation whose carrier dies once or twice at every step, over the real
//! machine. The model it follows (protocol decisions 3-5 and 10) was checked exhaustively on
//! paper; here every outcome must be: all bytes both ways, both ends seen, both sides forget.

mod early;
mod lost;
mod standby;
mod stories;

use std::fmt::Write as _;
use std::time::Duration;

use proto::Side::{Client, Server};
use proto::{LinkConfig, Side, StreamId};
use testkit::netem::{Conditions, Slices};
use testkit::pair::{Pair, open};

use stories::{STORIES, Story};

/// Which direction moves next, one bit a step.
const SCHEDULES: [u32; 5] = [0xaaaa, 0xf0f0, 0xff00, 0x3c5a, 0x1111];

/// Bytes of one write; with the smallest window of 16 KiB, credit runs out after three.
const PIECE: usize = 6 << 10;

/// The smallest windows a link has: credit is part of the conversation.
fn tight() -> LinkConfig {
    LinkConfig { window_initial: 16 << 10, ..LinkConfig::default() }
}

fn begin(story: &Story, laned: bool, slices: Slices) -> Pair {
    begin_on(story, laned, Conditions { slices, ..Conditions::default() }, 7)
}

fn begin_on(story: &Story, laned: bool, conditions: Conditions, seed: u64) -> Pair {
    // Three at once; as nobody answers before the first step, the fourth always is one too many.
    let limited = LinkConfig { streams_max: 3, ..tight() };
    let mut pair = Pair::over_lanes(laned, conditions, limited, seed);
    (story.start)(&mut pair);
    pair
}

/// Every story over carriers with one lane, and over carriers with one per stream and direction.
fn each() -> impl Iterator<Item = (&'static Story, bool)> {
    STORIES.iter().flat_map(|story| [(story, false), (story, true)])
}

fn answer_all(story: &Story, pair: &mut Pair) {
    for side in [Client, Server] {
        while let Some(id) = pair.end_mut(side).opened.pop_front() {
            (story.answer)(pair, side, id);
        }
    }
}

/// Steps by the schedule, killing before the steps named. Returns steps made.
fn converse(story: &Story, pair: &mut Pair, kills: &[usize], schedule: u32) -> usize {
    let mut from = 0;
    for kill in kills {
        from = converse_until(story, pair, from, *kill, schedule);
        pair.kill();
        pair.reconnect();
    }
    converse_until(story, pair, from, usize::MAX, schedule)
}

/// Steps by the schedule before step `until`, or to the end. Returns steps made.
fn converse_until(
    story: &Story,
    pair: &mut Pair,
    from: usize,
    until: usize,
    schedule: u32,
) -> usize {
    for step in from..400_000 {
        if step == until {
            return step;
        }
        pair.pump();
        let first = if (schedule >> (step % 16)) & 1 == 1 { Server } else { Client };
        let moved = pair.deliver(first) || pair.deliver(first.peer());
        answer_all(story, pair);
        if !moved && until == usize::MAX {
            // Small credits wait for the sweep; the rest is told then.
            let left = [Client, Server].map(|side| pair.end(side).link.stream_count());
            let late = pair.now > testkit::pair::epoch() + Duration::from_secs(10);
            if left == [0, 0] || late || !pair.step() {
                return step;
            }
        }
    }
    panic!("{}: never ends", story.name);
}

fn conclude(story: &Story, pair: &Pair, how: &str) {
    for side in [Client, Server] {
        let end = pair.end(side);
        assert_eq!(end.violation, None, "{}, {how}: {side:?}", story.name);
        let (left, held) = (end.link.stream_count(), end.link.retained());
        assert_eq!((left, held), (0, 0), "{}, {how}: {side:?} forgets", story.name);
    }
    (story.check)(pair);
}

fn run(story: &Story, laned: bool, slices: Slices, kills: &[usize], schedule: u32) -> usize {
    let mut pair = begin(story, laned, slices);
    let steps = converse(story, &mut pair, kills, schedule);
    let how = format!("lanes {laned}, {slices:?}, killed at {kills:?}, schedule {schedule:#x}");
    conclude(story, &pair, &how);
    steps
}

#[test]
fn one_kill_or_two_at_every_frame_of_every_conversation_lose_nothing() {
    let mut report = String::new();
    for (story, laned) in each() {
        let mut runs = 0;
        for schedule in SCHEDULES {
            let steps = run(story, laned, Slices::Frames, &[], schedule);
            for first in 0..=steps {
                run(story, laned, Slices::Frames, &[first], schedule);
                runs += 1;
                // Steps after the first kill repeat what was lost: a little longer than alone.
                for second in first + 1..=steps + 8 {
                    run(story, laned, Slices::Frames, &[first, second], schedule);
                    runs += 1;
                }
            }
        }
        writeln!(report, "{}, lanes {laned}: {runs} runs, all exact", story.name).unwrap();
    }
    println!("{report}");
}

/// The same conversations on a slow path whose delay varies: bytes are under way, wait in front of
/// the bottleneck or in the link when the carrier dies. `kills` are moments after the start.
fn run_in_time(story: &Story, laned: bool, seed: u64, kills: &[Duration]) {
    let path = Conditions {
        jitter: Duration::from_millis(4),
        queue: 8 << 10,
        slices: Slices::Random(3000),
        ..Conditions::path(Duration::from_millis(10), 4)
    };
    let mut pair = begin_on(story, laned, path, seed);
    let start = pair.now;
    let number = kills.len();
    let mut kills = kills.iter().peekable();
    while pair.now < start + Duration::from_secs(10) {
        let left = [Client, Server].map(|side| pair.end(side).link.stream_count());
        if kills.peek().is_none() && left == [0, 0] {
            break;
        }
        if kills.next_if(|after| pair.now >= start + **after).is_some() {
            pair.kill();
            pair.reconnect();
        }
        pair.step();
        answer_all(story, &mut pair);
    }
    conclude(story, &pair, &format!("lanes {laned}, seed {seed}, killed {number} times"));
}

#[test]
fn kills_on_a_slow_path_with_jitter_lose_nothing() {
    for (story, laned) in each() {
        for first in (0..200u64).step_by(5) {
            let first = Duration::from_millis(first);
            run_in_time(story, laned, 1, &[first]);
            for pause in [1, 9, 31] {
                run_in_time(story, laned, pause, &[first, first + Duration::from_millis(pause)]);
            }
        }
    }
}

#[test]
fn reads_of_any_size_give_the_same_result() {
    for (story, laned) in each() {
        for slices in [Slices::Bytes, Slices::Random(3), Slices::Random(7000), Slices::Whole] {
            run(story, laned, slices, &[], SCHEDULES[0]);
        }
    }
}

/// A short scripted conversation with all kinds of frames, small enough to cut it off at every
/// byte.
fn scripted(laned: bool) -> Pair {
    let mut pair = Pair::over_lanes(laned, Conditions::default(), tight(), 3);
    for (side, text) in [(Client, "up"), (Server, "down")] {
        let id = pair.open(side, &open(text));
        pair.write(side, id, text.as_bytes());
        pair.finish(side, id);
    }
    assert!(pair.end_mut(Client).link.send_control(b"control of the client"));
    assert!(pair.end_mut(Server).link.send_control(b"control of the server"));
    pair
}

/// Runs to the end, answering; a carrier that is cut is replaced, `cuts` times by one that is cut
/// again after as many bytes.
fn play(pair: &mut Pair, to: Side, mut cuts: &[u64]) -> u64 {
    let limit = pair.now + Duration::from_secs(4);
    while pair.now < limit {
        let before = pair.carrier();
        pair.step();
        for side in [Client, Server] {
            while let Some(id) = pair.end_mut(side).opened.pop_front() {
                pair.write(side, id, b"answer");
                pair.finish(side, id);
            }
        }
        if pair.end(Client).link.active_carrier().is_none() {
            pair.reconnect();
            if let Some((next, rest)) = cuts.split_first() {
                pair.cut_after(to, *next);
                cuts = rest;
            }
        }
        assert!(pair.carrier().0 < before.0 + 2);
    }
    pair.delivered(to)
}

fn check_script(pair: &Pair, how: &str) {
    for (opener, raw, text) in [(Client, 1, "up"), (Server, 2, "down")] {
        let id = StreamId::new(raw);
        for (reader, expected) in [(opener.peer(), text), (opener, "answer")] {
            let seen = pair.seen(reader, id);
            assert_eq!(seen.got, expected.as_bytes(), "{how}");
            assert!(seen.finished && seen.closed && seen.reset.is_none(), "{how}");
        }
    }
    assert_eq!(pair.end(Server).control, b"control of the client", "{how}");
    assert_eq!(pair.end(Client).control, b"control of the server", "{how}");
    for side in [Client, Server] {
        let link = &pair.end(side).link;
        assert_eq!((link.stream_count(), link.retained()), (0, 0), "{how}");
    }
}

#[test]
fn a_carrier_cut_at_every_byte_and_its_successor_at_every_byte_of_the_resume_lose_nothing() {
    let mut runs = 0;
    for (to, laned) in [(Client, false), (Client, true), (Server, false), (Server, true)] {
        let mut whole = scripted(laned);
        let length = play(&mut whole, to, &[]);
        check_script(&whole, "uncut");
        for first in 1..=length {
            // 8 + 4 + 3 entries of 29: 99 bytes of RESUME, and what follows it.
            for second in [None].into_iter().chain((1..=160).step_by(1 + runs % 3).map(Some)) {
                let mut pair = scripted(laned);
                pair.cut_after(to, first);
                play(&mut pair, to, second.as_slice());
                check_script(
                    &pair,
                    &format!("lanes {laned}, {to:?} cut after {first}, then {second:?}"),
                );
                runs += 1;
            }
        }
    }
    println!("{runs} runs cut by the byte");
}

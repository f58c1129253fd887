//! The kill model: a conversation whose carrier dies once or twice at every step, over the real
//! machine. The model it follows (protocol decisions 3-5 and 10) was checked exhaustively on
//! paper; here every outcome must be: all bytes both ways, both ends seen, both sides forget.

use std::fmt::Write as _;
use std::time::Duration;

use proto::Side::{Client, Server};
use proto::{Attach, Event, LinkConfig, ResetCode, Side, StreamId};
use testkit::netem::{Conditions, Slices};
use testkit::pair::{Pair, open};

/// Which direction moves next, one bit a step.
const SCHEDULES: [u32; 5] = [0xaaaa, 0xf0f0, 0xff00, 0x3c5a, 0x1111];

/// Bytes of one write; with the smallest window of 16 KiB, credit runs out after three.
const PIECE: usize = 6 << 10;

/// The smallest windows a link has: credit is part of the conversation.
fn tight() -> LinkConfig {
    LinkConfig { window_initial: 16 << 10, ..LinkConfig::default() }
}

/// A conversation: how it starts, and what an end does with a stream that it is shown.
struct Story {
    name: &'static str,
    start: fn(&mut Pair),
    answer: fn(&mut Pair, Side, StreamId),
    check: fn(&Pair),
}

fn pieces(pair: &mut Pair, side: Side, id: StreamId, count: usize) {
    for n in 0..count {
        let byte = u8::try_from(usize::try_from(id.raw()).unwrap_or(0) * 16 + n).unwrap_or(0);
        pair.write(side, id, &vec![byte; PIECE]);
    }
    pair.finish(side, id);
}

fn expect_pieces(pair: &Pair, reader: Side, raw: u32, count: usize) {
    let seen = pair.seen(reader, StreamId::new(raw));
    assert_eq!(seen.reset, None, "no reset");
    assert!(seen.finished, "{reader:?} saw FIN of {raw}");
    assert_eq!(seen.got.len(), count * PIECE, "all bytes of {raw} to {reader:?}");
    for (n, part) in seen.got.chunks(PIECE).enumerate() {
        let byte = u8::try_from(raw as usize * 16 + n).unwrap_or(0);
        assert!(part.iter().all(|b| *b == byte), "exact bytes of {raw} to {reader:?}");
    }
}

/// Pieces that the opener and the other end send.
const SIZES: [(usize, usize); 3] = [(6, 5), (0, 3), (5, 0)];

const STORIES: &[Story] = &[
    Story {
        name: "both ways",
        start: |pair| {
            let id = pair.open(Client, &open("x"));
            pieces(pair, Client, id, SIZES[0].0);
        },
        answer: |pair, side, id| pieces(pair, side, id, SIZES[0].1),
        check: |pair| {
            expect_pieces(pair, Server, 1, SIZES[0].0);
            expect_pieces(pair, Client, 1, SIZES[0].1);
        },
    },
    Story {
        name: "down only, opened by the server",
        start: |pair| {
            let id = pair.open(Server, &open("x"));
            pieces(pair, Server, id, SIZES[1].0);
        },
        answer: |pair, side, id| pieces(pair, side, id, SIZES[1].1),
        check: |pair| {
            expect_pieces(pair, Client, 2, SIZES[1].0);
            expect_pieces(pair, Server, 2, SIZES[1].1);
        },
    },
    Story {
        name: "up only",
        start: |pair| {
            let id = pair.open(Client, &open("x"));
            pieces(pair, Client, id, SIZES[2].0);
        },
        answer: |pair, side, id| pieces(pair, side, id, SIZES[2].1),
        check: |pair| {
            expect_pieces(pair, Server, 1, SIZES[2].0);
            expect_pieces(pair, Client, 1, SIZES[2].1);
        },
    },
    Story {
        name: "three streams from both sides",
        start: |pair| {
            for side in [Client, Server, Client] {
                let id = pair.open(side, &open("x"));
                pieces(pair, side, id, 2);
            }
        },
        answer: |pair, side, id| pieces(pair, side, id, 1),
        check: |pair| {
            for (raw, opener) in [(1, Client), (2, Server), (3, Client)] {
                expect_pieces(pair, opener.peer(), raw, 2);
                expect_pieces(pair, opener, raw, 1);
            }
        },
    },
    Story {
        name: "one resets, one goes on",
        start: |pair| {
            for count in [2, 3] {
                let id = pair.open(Client, &open("x"));
                pieces(pair, Client, id, count);
            }
        },
        answer: |pair, side, id| {
            if id.raw() == 1 {
                pair.reset(side, id, ResetCode::Aborted);
            } else {
                pieces(pair, side, id, 2);
            }
        },
        check: |pair| {
            expect_pieces(pair, Server, 1, 2);
            assert_eq!(pair.seen(Client, StreamId::new(1)).reset, Some(ResetCode::Aborted));
            expect_pieces(pair, Server, 3, 3);
            expect_pieces(pair, Client, 3, 2);
        },
    },
    Story {
        name: "one is stopped, one goes on",
        start: |pair| {
            let stopped = pair.open(Client, &open("x"));
            pair.write(Client, stopped, &[1; 2 * PIECE]);
            let id = pair.open(Client, &open("x"));
            pieces(pair, Client, id, 3);
        },
        answer: |pair, side, id| {
            if id.raw() == 1 {
                pair.stop(side, id, ResetCode::Denied);
                pair.finish(side, id);
            } else {
                pieces(pair, side, id, 2);
            }
        },
        check: |pair| {
            let stopped = pair.seen(Client, StreamId::new(1));
            assert_eq!(stopped.stopped, Some(ResetCode::Denied));
            assert!(stopped.finished);
            expect_pieces(pair, Server, 3, 3);
            expect_pieces(pair, Client, 3, 2);
        },
    },
    Story {
        name: "a refused dial",
        start: |pair| {
            let id = pair.open(Client, &open("x"));
            pair.write(Client, id, b"early");
        },
        answer: |pair, side, id| {
            pair.reset(side, id, ResetCode::Refused);
            pair.stop(side, id, ResetCode::Refused);
        },
        check: |pair| {
            let seen = pair.seen(Client, StreamId::new(1));
            assert_eq!(seen.reset, Some(ResetCode::Refused));
            assert_eq!(seen.stopped, Some(ResetCode::Refused));
        },
    },
    Story {
        name: "one stream too many",
        start: |pair| {
            for _ in 0..4 {
                let id = pair.open(Client, &open("x"));
                pieces(pair, Client, id, 1);
            }
        },
        answer: |pair, side, id| pieces(pair, side, id, 1),
        check: |pair| {
            for raw in [1, 3, 5] {
                expect_pieces(pair, Server, raw, 1);
                expect_pieces(pair, Client, raw, 1);
            }
            let refused = pair.seen(Client, StreamId::new(7));
            assert_eq!(refused.reset, Some(ResetCode::Limit));
        },
    },
];

fn begin(story: &Story, slices: Slices) -> Pair {
    // Three at once; as nobody answers before the first step, the fourth always is one too many.
    let limited = LinkConfig { streams_max: 3, ..tight() };
    let mut pair = Pair::over(Conditions { slices, ..Conditions::default() }, limited, 7);
    (story.start)(&mut pair);
    pair
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
    for step in 0..400_000 {
        if kills.contains(&step) {
            pair.kill();
            pair.reconnect();
        }
        pair.pump();
        let first = if (schedule >> (step % 16)) & 1 == 1 { Server } else { Client };
        let moved = pair.deliver(first) || pair.deliver(first.peer());
        answer_all(story, pair);
        if !moved && kills.iter().all(|kill| *kill <= step) {
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

fn run(story: &Story, slices: Slices, kills: &[usize], schedule: u32) -> usize {
    let mut pair = begin(story, slices);
    let steps = converse(story, &mut pair, kills, schedule);
    conclude(story, &pair, &format!("{slices:?}, killed at {kills:?}, schedule {schedule:#x}"));
    steps
}

#[test]
fn one_kill_or_two_at_every_frame_of_every_conversation_lose_nothing() {
    let mut report = String::new();
    for story in STORIES {
        let mut runs = 0;
        for schedule in SCHEDULES {
            let steps = run(story, Slices::Frames, &[], schedule);
            for first in 0..=steps {
                run(story, Slices::Frames, &[first], schedule);
                runs += 1;
                // Steps after the first kill repeat what was lost: a little longer than alone.
                for second in first + 1..=steps + 8 {
                    run(story, Slices::Frames, &[first, second], schedule);
                    runs += 1;
                }
            }
        }
        writeln!(report, "{}: {runs} runs, all exact", story.name).unwrap();
    }
    println!("{report}");
}

#[test]
fn reads_of_any_size_give_the_same_result() {
    for story in STORIES {
        for slices in [Slices::Bytes, Slices::Random(3), Slices::Random(7000), Slices::Whole] {
            run(story, slices, &[], SCHEDULES[0]);
        }
    }
}

/// A short scripted conversation with all kinds of frames, small enough to be cut at every byte.
fn scripted() -> Pair {
    let mut pair = Pair::over(Conditions::default(), tight(), 3);
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
    for to in [Client, Server] {
        let mut whole = scripted();
        let length = play(&mut whole, to, &[]);
        check_script(&whole, "uncut");
        for first in 1..=length {
            // 8 + 4 + 3 entries of 29: 99 bytes of RESUME, and what follows it.
            for second in [None].into_iter().chain((1..=160).step_by(1 + runs % 3).map(Some)) {
                let mut pair = scripted();
                pair.cut_after(to, first);
                play(&mut pair, to, second.as_slice());
                check_script(&pair, &format!("{to:?} cut after {first}, then {second:?}"));
                runs += 1;
            }
        }
    }
    println!("{runs} runs cut by the byte");
}

/// A stream open at both ends, nothing under way.
fn opened() -> (Pair, StreamId) {
    let mut pair = Pair::over(Conditions::default(), tight(), 5);
    let id = pair.open(Client, &open("x"));
    pair.run();
    (pair, id)
}

fn lose_what_is_sent(pair: &mut Pair) {
    pair.pump();
    pair.kill();
    pair.reconnect();
}

#[test]
fn a_lost_open_is_sent_again_with_its_bytes() {
    let mut pair = Pair::over(Conditions::default(), tight(), 5);
    let id = pair.open(Client, &open("x"));
    pair.write(Client, id, b"early");
    lose_what_is_sent(&mut pair);
    pair.run();
    assert_eq!(pair.seen(Server, id).got, b"early");
}

#[test]
fn a_lost_credit_is_told_by_resume() {
    let (mut pair, id) = opened();
    pair.end_mut(Server).streams.get_mut(&id.raw()).unwrap().automatic = false;
    pair.write(Client, id, &[7; 40 << 10]);
    pair.run();
    assert_eq!(pair.seen(Server, id).count, 16 << 10, "credit has run out");
    pair.consume(Server, id, usize::MAX);
    lose_what_is_sent(&mut pair);
    pair.run();
    assert_eq!(pair.seen(Server, id).count, 32 << 10);
}

#[test]
fn a_lost_last_fin_is_sent_again() {
    let (mut pair, id) = opened();
    pair.finish(Server, id);
    pair.run();
    pair.finish(Client, id);
    lose_what_is_sent(&mut pair);
    pair.run();
    assert!(pair.seen(Server, id).finished);
    assert!(pair.seen(Server, id).closed && pair.seen(Client, id).closed);
}

#[test]
fn a_lost_acknowledgement_of_fin_is_repeated_for_a_forgotten_stream() {
    let (mut pair, id) = opened();
    pair.finish(Server, id);
    pair.run();
    pair.finish(Client, id);
    pair.pump();
    while pair.deliver(Server) {}
    // The server saw the FIN, told so and forgot; its words die with the carrier.
    pair.pump();
    assert!(pair.seen(Server, id).closed && !pair.seen(Client, id).closed);
    pair.kill();
    pair.reconnect();
    pair.run();
    assert!(pair.seen(Client, id).closed);
    assert_eq!(pair.seen(Client, id).reset, None);
}

#[test]
fn a_resume_of_many_frames_that_is_cut_between_them_starts_anew() {
    for cut in [8, 5000, 16_390, 20_000, 33_000] {
        let mut pair = Pair::over(Conditions::default(), tight(), 5);
        let ids: Vec<StreamId> = (0..1500).map(|_| pair.open(Client, &open("x"))).collect();
        pair.run();
        for id in &ids {
            pair.write(Client, *id, b"x");
            pair.finish(Client, *id);
        }
        pair.kill();
        pair.reconnect();
        pair.cut_after(Server, cut);
        while pair.end(Server).link.active_carrier().is_some() {
            pair.step();
        }
        pair.reconnect();
        pair.run();
        for id in &ids {
            assert!(pair.seen(Server, *id).finished);
            pair.finish(Server, *id);
        }
        pair.run();
        assert_eq!(pair.end(Client).link.stream_count(), 0);
        assert_eq!(pair.end(Server).link.stream_count(), 0);
    }
}

#[test]
fn a_standby_takes_over_whichever_end_notices() {
    for side in [Client, Server] {
        let (mut pair, id) = opened();
        let old = pair.carrier();
        pair.add();
        pair.run();
        for writer in [Client, Server] {
            pair.write(writer, id, b"lost on its way, ");
        }
        pair.pump();
        pair.lose(side, old);
        for writer in [Client, Server] {
            pair.write(writer, id, b"and sent again");
            pair.finish(writer, id);
        }
        pair.run();
        for reader in [Client, Server] {
            assert_eq!(pair.seen(reader, id).got, b"lost on its way, and sent again");
            assert!(pair.seen(reader, id).closed);
            assert_eq!(pair.end(reader).times(|event| *event == Event::Resumed), 1);
        }
        let noticed = pair.end(side.peer()).times(|event| *event == Event::CarrierDead(old));
        assert_eq!(noticed, 1, "the other end learned it from RESUME");
    }
}

#[test]
fn ends_that_choose_different_standbys_find_together_or_lose_both_and_redial() {
    let (mut pair, id) = opened();
    let first = pair.carrier();
    let second = pair.add();
    let third = pair.wire();
    // The server greeted a third; the client has not heard of it yet when the first dies.
    pair.attach(Server, third, Attach::Adds);
    pair.lose(Client, first);
    pair.lose(Server, first);
    pair.attach(Client, third, Attach::Adds);
    pair.write(Client, id, b"still here");
    pair.run();
    if pair.seen(Server, id).got.is_empty() {
        for number in [second, third] {
            pair.kill_carrier(number);
        }
        pair.reconnect();
        pair.run();
    }
    assert_eq!(pair.seen(Server, id).got, b"still here");
    assert_eq!(pair.end(Client).violation, None);
    assert_eq!(pair.end(Server).violation, None);
}

//! The same conversations with early data: the server sends a preview of its link before the client
//! is authenticated, and continues to read bytes in flight on the lost carrier.

use std::fmt::Write as _;

use proto::Side::{Client, Server};
use testkit::netem::{Conditions, Slices};
use testkit::pair::{Pair, open};

use crate::kill_model::stories::Story;
use crate::kill_model::{SCHEDULES, answer_all, begin, conclude, each};

/// The outcomes of kills, over all runs.
#[derive(Default)]
struct Tally {
    early: u32,
    void: u32,
}

/// The client loses its carrier with its last frames in flight. The server reads `before` of them
/// before the preview, and `between` of them between the preview and the authentication of the
/// client.
fn come_back_early(
    story: &Story,
    pair: &mut Pair,
    [before, between]: [usize; 2],
    tally: &mut Tally,
) {
    let read = |pair: &mut Pair, times: usize| {
        for _ in 0..times {
            pair.pump();
            pair.deliver(Server);
            answer_all(story, pair);
        }
    };
    pair.leave(Client, pair.carrier());
    read(pair, before);
    let (number, preview) = pair.preview();
    // The client has the server's RESUME, and sends its own and all queued frames.
    for _ in 0..4 {
        pair.deliver(Client);
        pair.pump();
    }
    read(pair, between);
    if pair.attach_previewed(number, &preview) {
        tally.early += 1;
    } else {
        tally.void += 1;
        pair.reconnect();
    }
}

fn run(
    story: &Story,
    laned: bool,
    kills: &[usize],
    late: [usize; 2],
    schedule: u32,
    tally: &mut Tally,
) -> usize {
    let mut pair = begin(story, laned, Slices::Frames);
    let mut steps = 0;
    for kill in kills.iter().copied().chain([usize::MAX]) {
        steps = crate::kill_model::converse_until(story, &mut pair, steps, kill, schedule);
        if kill != usize::MAX {
            come_back_early(story, &mut pair, late, tally);
        }
    }
    let how = format!("lanes {laned}, early at {kills:?}, late {late:?}, schedule {schedule:#x}");
    conclude(story, &pair, &how);
    steps
}

#[test]
fn a_client_that_comes_back_early_at_every_frame_of_every_conversation_loses_nothing() {
    let mut report = String::new();
    for (story, laned) in each() {
        let mut tally = Tally::default();
        for schedule in SCHEDULES {
            let steps = run(story, laned, &[], [0; 2], schedule, &mut tally);
            for first in 0..=steps {
                for late in [[0, 0], [0, 1], [0, 3], [1, 2], [2, 20]] {
                    run(story, laned, &[first], late, schedule, &mut tally);
                    for second in [first + 1, first + 2, first + 5, first + 11] {
                        run(story, laned, &[first, second], late, schedule, &mut tally);
                    }
                }
            }
        }
        assert!(tally.early > 0, "{}: previews are of use", story.name);
        let Tally { early, void } = tally;
        writeln!(report, "{}, lanes {laned}: {early} early, {void} void", story.name).unwrap();
    }
    println!("{report}");
}

/// The server consumes bytes in flight after its preview. The client repeats these bytes over a
/// slow carrier, and the credit for them arrives before the client has repeated them.
#[test]
fn credit_for_bytes_that_are_still_to_be_repeated_is_no_contradiction() {
    for laned in [false, true] {
        let mut pair = Pair::connected(1);
        let id = pair.open(Client, &open("web"));
        pair.feed(Client, id, 400_000);
        pair.run();
        pair.feed(Client, id, 400_000);
        pair.pump();
        pair.leave(Client, pair.carrier());
        pair.laned = laned;
        pair.conditions =
            Conditions { rate: Some(1_000_000), queue: 4_000, ..Conditions::default() };
        let (number, preview) = pair.preview();
        while pair.deliver(Server) {}
        assert!(pair.attach_previewed(number, &preview));
        assert_eq!(pair.seen(Server, id).count, 800_000, "in flight");
        pair.feed(Client, id, 400_000);
        pair.finish(Client, id);
        pair.run();
        for side in [Client, Server] {
            assert_eq!(pair.end(side).violation, None, "{side:?}, lanes {laned}");
        }
        assert_eq!(pair.seen(Server, id).count, 1_200_000, "lanes {laned}");
        assert!(pair.seen(Server, id).finished);
    }
}

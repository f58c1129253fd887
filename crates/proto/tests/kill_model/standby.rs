//! The same conversations with a standby: the active carrier dies at every frame, and the standby
//! takes over without a new carrier. One end detects the loss, or both do; otherwise the other end
//! learns it from RESUME.

use std::fmt::Write as _;

use proto::Side::{Client, Server};
use proto::{CarrierNumber, Side};
use testkit::netem::Slices;
use testkit::pair::Pair;

use crate::kill_model::stories::Story;
use crate::kill_model::{SCHEDULES, begin, conclude, converse_until, each};

/// The ends that detect a loss.
type Noticing = &'static [Side];

const EACH: [Noticing; 3] = [&[Client], &[Server], &[Client, Server]];

/// The carriers that are lost, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dies {
    Active,
    Standby,
}

/// A carrier is lost, and a new carrier replaces it if there was no standby.
fn die(pair: &mut Pair, number: CarrierNumber, noticing: Noticing) {
    for side in noticing {
        pair.lose(*side, number);
    }
    if pair.end(Client).link.active_carrier().is_none() {
        // The standby was lost before.
        pair.reconnect();
    }
}

fn run(
    story: &Story,
    laned: bool,
    kills: &[(usize, Dies)],
    noticing: Noticing,
    schedule: u32,
) -> usize {
    let mut pair = begin(story, laned, Slices::Frames);
    let mut standby = pair.add();
    let mut steps = 0;
    for (kill, dies) in kills {
        steps = converse_until(story, &mut pair, steps, *kill, schedule);
        let active = pair.end(Client).link.active_carrier();
        match dies {
            Dies::Active => active.into_iter().for_each(|number| die(&mut pair, number, noticing)),
            Dies::Standby => die(&mut pair, standby, noticing),
        }
        standby = pair.add();
    }
    let steps = converse_until(story, &mut pair, steps, usize::MAX, schedule);
    let how = format!("lanes {laned}, {kills:?} noticed by {noticing:?}, schedule {schedule:#x}");
    conclude(story, &pair, &how);
    steps
}

#[test]
fn a_standby_takes_over_at_every_frame_of_every_conversation_and_loses_nothing() {
    let mut report = String::new();
    for (story, laned) in each() {
        let mut runs = 0;
        for schedule in SCHEDULES {
            let steps = run(story, laned, &[], EACH[0], schedule);
            for (first, noticing) in (0..=steps).flat_map(|at| EACH.map(|who| (at, who))) {
                run(story, laned, &[(first, Dies::Active)], noticing, schedule);
                runs += 1;
                for (second, dies) in [0, 1, 2, 5, 11]
                    .into_iter()
                    .flat_map(|later| [Dies::Active, Dies::Standby].map(|dies| (later, dies)))
                {
                    let kills = [(first, Dies::Active), (first + second, dies)];
                    run(story, laned, &kills, noticing, schedule);
                    runs += 1;
                }
            }
        }
        writeln!(report, "{}, lanes {laned}: {runs} runs, all exact", story.name).unwrap();
    }
    println!("{report}");
}

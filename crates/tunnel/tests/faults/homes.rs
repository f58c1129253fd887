//! Nodes that are killed under load.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::busy::Busy;
use crate::clients::{ONE, TWO};
use crate::stage::{NODES, Stage};

/// The longest visit of a client that logs in at another node meanwhile, and the longest of a
/// client with another home.
const ONE_HOME: Duration = Duration::from_secs(2);
const TWO_HOMES: Duration = Duration::from_secs(2);

/// The pause between two kills.
const EVERY: Duration = Duration::from_secs(5);

/// A home of both clients is killed four times, each time another node, and comes back.
pub(crate) fn killed() {
    let stage = Stage::new("home-killed", 3, &[]);
    let mut busy = Busy::with_claims(stage, &NODES[..3]);
    for _ in 0..4 {
        let stage = &mut busy.stage;
        let home = stage.wait_homes("one", 1)[0];
        stage.kill_node(home);
        sleep(EVERY);
        stage.start_node(home);
        stage.wait_nodes();
        stage.history.end(Some(home));
        stage.wait_homes("two", 2);
        sleep(Duration::from_secs(2));
    }
    let stage = busy.end();
    stage.serves_all(ONE, ONE_HOME, Duration::from_secs(1));
    stage.serves_all(TWO, TWO_HOMES, Duration::from_secs(1));
}

/// One node after the other is killed, every 5 s, and starts again at once.
pub(crate) fn killed_in_turn() {
    let minutes: f64 = crate::setting("TUNNEL_CLUSTER_MINUTES", 2.0);
    let stage = Stage::new("killed-in-turn", 5, &[]);
    let mut busy = Busy::with_claims(stage, &NODES);
    let (begun, mut kills) = (Instant::now(), 0);
    for node in NODES.into_iter().cycle() {
        if begun.elapsed().as_secs_f64() > minutes * 60.0 {
            break;
        }
        let next = Instant::now() + EVERY;
        busy.stage.kill_node(node);
        kills += 1;
        sleep(Duration::from_secs(1));
        busy.stage.start_node(node);
        sleep(next.saturating_duration_since(Instant::now()));
        busy.stage.history.end(Some(node));
    }
    println!("{kills} kills");
    busy.stage.wait_nodes();
    let stage = busy.end();
    let served = stage.history.known().visits.iter().filter(|visit| visit.served.is_ok()).count();
    assert!(served > kills * 20, "{served} visitors were served");
}

//! Nodes that stop without an end, and networks that are cut.

use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;

use crate::busy::Busy;
use crate::clients::{ONE, TWO};
use crate::etcd::MEMBERS;
use crate::stage::{NODES, Stage};
use crate::verdict::BOUND;

const SECOND: Duration = Duration::from_secs(1);

/// What a visitor waits at most whom a fault does not concern, on a busy machine.
const UNTOUCHED: Duration = Duration::from_secs(2);

/// A home stops for 20 s. Meanwhile newer processes of its clients come elsewhere, and it goes on
/// with what it knew.
pub(crate) fn paused() {
    let mut busy = Busy::with_claims(Stage::new("node-paused", 3, &[]), &NODES[..3]);
    let home = busy.stage.wait_homes("one", 1)[0];
    let others: Vec<_> = NODES[..3].iter().copied().filter(|node| *node != home).collect();
    busy.stage.history.begin(Some(home), "SIGSTOP of node");
    busy.stage.signal_node(home, Signal::STOP);
    sleep(3 * SECOND);
    for (client, wanted) in [("one", ONE), ("two", TWO)] {
        let newer = busy.renew(client, &others);
        busy.stage.wait_served(wanted, &others, Some(newer), BOUND);
    }
    sleep(15 * SECOND);
    busy.stage.signal_node(home, Signal::CONT);
    busy.stage.history.end(Some(home));
    busy.stage.wait_nodes();
    busy.end();
}

/// The home of both clients and etcd: first nothing of the node reaches etcd, then nothing of etcd
/// reaches the node.
pub(crate) fn cut_from_etcd() {
    let mut busy = Busy::with_claims(Stage::new("cut-from-etcd", 3, &[]), &NODES[..3]);
    let home = busy.stage.wait_homes("one", 1)[0];
    for is_to_etcd in [true, false] {
        let way = if is_to_etcd { "to" } else { "from" };
        busy.stage.history.begin(None, &format!("nothing passes from node {home} {way} etcd"));
        for member in MEMBERS {
            let (from, to) = if is_to_etcd { (home, member) } else { (member, home) };
            busy.stage.lan.cut(from, to);
        }
        // Longer than a lease lives after an election.
        sleep(25 * SECOND);
        busy.stage.lan.mend();
        busy.stage.history.end(None);
        busy.stage.wait_nodes();
        sleep(5 * SECOND);
    }
    let stage = busy.end();
    for wanted in [ONE, TWO] {
        stage.serves_all(wanted, UNTOUCHED, Duration::ZERO);
    }
}

/// Two nodes do not reach each other, and both reach etcd and the third node. The client with two
/// homes has one of them at the third node.
pub(crate) fn cut_from_each_other() {
    let mut busy = Busy::with_claims(Stage::new("cut-from-each-other", 3, &[]), &NODES[..3]);
    let home = busy.stage.wait_homes("one", 1)[0];
    let homes = busy.stage.wait_homes("two", 2);
    let other = NODES[..3].iter().copied().find(|node| !homes.contains(node)).unwrap();
    busy.stage.history.begin(None, &format!("nothing passes between {home} and {other}"));
    busy.stage.lan.cut(home, other);
    busy.stage.lan.cut(other, home);
    sleep(30 * SECOND);
    busy.stage.lan.mend();
    busy.stage.history.end(None);
    sleep(5 * SECOND);
    let stage = busy.end();
    println!("{home} is a home of both clients, {other} of none");
    stage.serves_all(TWO, UNTOUCHED, Duration::ZERO);
}

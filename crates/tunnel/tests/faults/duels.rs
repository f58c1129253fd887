//! Two processes with one name that log in through two nodes at the same time.

use std::thread::sleep;
use std::time::{Duration, Instant};

use testkit::judge::Visit;
use testkit::stage::{LONG, wait};

use crate::clients::{ONE, Process, Start};
use crate::stage::{NODES, Stage};
use crate::visitor::{Kind, visit};

/// What the log of a process says that another process has replaced.
const REPLACED: &str = "a newer process of this client has taken over";

/// How long nothing may change after a duel.
const QUIET: Duration = Duration::from_millis(500);

/// How often a process was told that another process has its services, and how often it published
/// its services over TCP.
fn counts(process: &Process) -> [usize; 2] {
    let log = process.daemon.log();
    let published = format!("service {} is published at", process.service);
    [REPLACED, &*published].map(|text| log.lines().filter(|line| line.contains(text)).count())
}

/// What the service answers at each node.
fn generations(stage: &Stage) -> Vec<Option<u64>> {
    let ask = |node: &&str| {
        let (kind, begun) = (Kind::Http, stage.history.now());
        let served = visit(kind, ONE, ONE.at(kind, stage.lan.address(node)));
        let generation = served.as_ref().ok().map(|served| served.generation);
        let (key, entrance, ended) = (ONE.key(kind), (*node).to_owned(), stage.history.now());
        stage.history.known().visits.push(Visit { key, entrance, begun, ended, served });
        generation
    };
    NODES[..3].iter().map(ask).collect()
}

/// Many duels one after the other.
pub(crate) fn many() {
    let count: u64 = crate::setting("TUNNEL_CLUSTER_DUELS", 40);
    let stage = Stage::new("duels", 3, &[]);
    let (mut wins, mut most, mut longest) = ([0, 0], 0, Duration::ZERO);
    for duel in 0..count {
        // The node of the first process, the second one, and which process starts first differ.
        let turn = usize::try_from(duel % 3).unwrap();
        let nodes = [NODES[turn], NODES[(turn + 1) % 3]];
        let begun = Instant::now();
        let mut both = nodes.map(|node| {
            let (client, homes, by) = ("one", 1, &[node][..]);
            stage.clients.start(Start { client, homes, wanted: ONE, by })
        });
        let told = wait("one of two processes to be replaced", LONG, || {
            let replaced = both.each_ref().map(|process| counts(process)[0] > 0);
            let published = both.each_ref().map(|process| counts(process)[1] > 0);
            // Both must have been told something.
            let is_settled = replaced[0] != replaced[1] && published[usize::from(replaced[0])];
            (is_settled || replaced == [true, true]).then_some(replaced)
        });
        assert_ne!(told, [true, true], "duel {duel}: both processes were replaced");
        let winner = usize::from(told[0]);
        wins[winner] += 1;
        let generation = both[winner].generation;
        wait("all nodes to lead to the process that has won", LONG, || {
            generations(&stage).iter().all(|it| *it == Some(generation)).then_some(())
        });
        longest = longest.max(begun.elapsed());
        let before = both.each_ref().map(counts);
        sleep(QUIET);
        let after = both.each_ref().map(counts);
        assert_eq!(before, after, "duel {duel}: nothing changes any more");
        let kicks = after[0][0] + after[1][0];
        most = most.max(kicks);
        assert!(kicks <= 2, "duel {duel}: {kicks} kicks");
        let at = generations(&stage);
        assert!(at.iter().all(|it| *it == Some(generation)), "duel {duel}: {at:?}");
        both.iter().for_each(|process| process.daemon.terminate());
        for process in &mut both {
            process.daemon.wait_end(LONG);
        }
    }
    println!("{count} duels, won by {wins:?}, at most {most} kicks, at most {longest:?} each");
    stage.judge();
}

//! A cluster without its etcd, and the time for which visitors wait after a node was killed.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cluster::{NODES, Stage};

#[test]
fn what_is_published_stays_reachable_while_etcd_is_away() {
    let mut stage = Stage::new();
    stage.start_client();
    stage.wait_served(&[0, 1, 2]);
    stage.kill_etcd();
    // Longer than a lease lives.
    let until = Instant::now() + Duration::from_secs(60);
    let [names, tcp] = stage.visited();
    let mut served = 0;
    while Instant::now() < until {
        for node in 0..NODES.len() {
            assert!(stage.serves(node, tcp), "the port of node {node}");
            assert!(stage.serves(node, names), "the name at node {node}");
            served += 2;
        }
        sleep(Duration::from_millis(100));
    }
    println!("{served} visitors were served without etcd");
    stage.start_etcd();
    stage.wait_nodes(&[0, 1, 2]);
    stage.wait_served(&[0, 1, 2]);
}

#[test]
fn a_request_waits_two_seconds_at_most_after_the_node_of_its_client_was_killed() {
    let mut stage = Stage::new();
    stage.start_client();
    stage.wait_served(&[0, 1, 2]);
    let home = stage.home();
    let [names, _] = stage.visited();
    stage.kill_node(home);
    let others: Vec<_> = (0..NODES.len()).filter(|node| *node != home).collect();
    let until = Instant::now() + Duration::from_secs(20);
    let mut worst = Duration::ZERO;
    while Instant::now() < until {
        for node in &others {
            let begun = Instant::now();
            assert!(stage.serves(*node, names), "the name at node {node}");
            worst = worst.max(begun.elapsed());
        }
    }
    println!("the longest request took {worst:?}");
    assert!(worst < Duration::from_secs(2), "{worst:?}");
}

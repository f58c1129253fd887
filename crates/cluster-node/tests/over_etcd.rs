//! Nodes on a real etcd of one member.

use std::time::Duration;

use cluster::names::Instance;
use cluster::node::{Claimed, Located, Subject};
use tokio::time::{Instant, sleep};

use crate::ground::{Network, TestNode, client_name, eventually, held, is_taken_by, start};
use crate::member::{Members, run};
use crate::scenes::{self, LEASED, QUICK};

/// As in production.
const DEADLINE: Duration = Duration::from_secs(1);

/// Nodes `a`, `b`, `c` on one etcd, which see each other.
async fn nodes<const COUNT: usize>(members: &Members) -> [TestNode; COUNT] {
    let network = Network::default();
    // Each node has a client of its own, as each process has.
    let name = |at: usize| ["a", "b", "c"][at];
    let nodes = std::array::from_fn(|at| start(name(at), members.etcd(DEADLINE), &network));
    for node in &nodes {
        node.sees(COUNT).await;
    }
    nodes
}

#[test]
fn two_nodes_agree_about_claims_and_processes() {
    run(async {
        let members = Members::start(1, &[]).await;
        let [mut one, mut two] = nodes(&members).await;
        scenes::claims_are_exclusive(&one, &two).await;
        scenes::an_old_release_frees_nothing(&one, &two).await;
        scenes::two_processes_settle(&mut one, &mut two).await;
        scenes::bytes_of_the_server_are_shared(&one, &two).await;
        scenes::clients_are_listed_in_pages(&one, &two).await;
    });
}

#[test]
fn three_nodes_take_over_from_a_node_that_leaves_and_from_a_node_that_dies() {
    run(async {
        let members = Members::start(1, &[]).await;
        let [one, two, three] = nodes(&members).await;
        scenes::a_node_that_leaves_frees_at_once(one, &two).await;
        scenes::claims_of_a_dead_node_are_free_after_its_lease(two, &three).await;
        three.sees(1).await;
    });
}

#[test]
fn known_answers_go_on_while_etcd_is_away() {
    run(async {
        let mut members = Members::start(1, &[]).await;
        let [one, two] = nodes(&members).await;
        one.cluster.logged_in(client_name("c"), Instance(1), 1);
        let generation = held(one.claim(1, "c", 1).await);
        let subject = Subject::Client(client_name("c"));
        let is_there = |found: &Located| matches!(found, Located::There { .. });
        eventually(QUICK, async || Some(two.cluster.find(subject.clone()).await).filter(is_there))
            .await;

        members.kill(0);
        for _ in 0..3 {
            assert!(is_there(&two.cluster.find(subject.clone()).await));
            assert_eq!(one.cluster.find(subject.clone()).await, Located::Here(Instance(1)));
            sleep(Duration::from_millis(500)).await;
        }
        let start = Instant::now();
        assert_eq!(two.claim(2, "d", 2).await, Claimed::Away);
        assert!(start.elapsed() < QUICK);
        // A release is kept until the engine answers.
        one.cluster.release([(crate::ground::key(1), generation)]);

        members.begin(0);
        members.ready(0).await;
        two.insist(2, LEASED).await;
        two.insist(1, LEASED).await;
        assert!(is_taken_by(&one.claim(2, "e", 3).await, &two));
        one.sees(2).await;
        // The watches go on: a node that joins and leaves is seen.
        let three = start_third(&members);
        three.sees(3).await;
        one.sees(3).await;
        two.sees(3).await;
    });
}

fn start_third(members: &Members) -> TestNode {
    start("c", members.etcd(DEADLINE), &Network::default())
}

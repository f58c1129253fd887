//! Nodes on an engine in memory, in virtual time, with faults.

use std::time::Duration;

use bytes::Bytes;
use cluster::blob::{BlobExpected, BlobOutcome, BlobWish};
use cluster::engine::{Operation, Transaction};
use cluster::keys::{BlobPlace, Keyspace, RecordPlace};
use cluster::names::{Instance, NodeEpoch};
use cluster::node::{Claimed, Located, NodeEvent, Subject};
use cluster::record::{Record as _, Revoked};
use cluster_node::{LEAVING, ServerEvent};
use tokio::time::{Instant, sleep, timeout};

use crate::ground::{
    Network, TestNode, client_name, eventually, held, is_taken_by, key, start, start_after, wanted,
};
use crate::memory::MemoryEngine;
use crate::scenes::{self, QUICK};

const SECOND: Duration = Duration::from_secs(1);

/// Two nodes that see each other, and the engine as each of them sees it.
async fn two() -> ([TestNode; 2], [MemoryEngine; 2]) {
    let first = MemoryEngine::new();
    let engines = [first.of_another_node(), first];
    let network = Network::default();
    let nodes =
        [start("a", engines[0].clone(), &network), start("b", engines[1].clone(), &network)];
    for node in &nodes {
        node.sees(2).await;
    }
    (nodes, engines)
}

#[tokio::test(start_paused = true)]
async fn two_nodes_agree() {
    let ([mut one, mut two], _) = two().await;
    scenes::claims_are_exclusive(&one, &two).await;
    scenes::an_old_release_frees_nothing(&one, &two).await;
    scenes::two_processes_settle(&mut one, &mut two).await;
    scenes::bytes_of_the_server_are_shared(&one, &two).await;
    scenes::clients_are_listed_in_pages(&one, &two).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_frees_at_once() {
    let ([one, two], _) = two().await;
    scenes::a_node_that_leaves_frees_at_once(one, &two).await;
}

#[tokio::test(start_paused = true)]
async fn claims_of_a_dead_node_are_free_after_its_lease() {
    let ([one, two], _) = two().await;
    let start = Instant::now();
    scenes::claims_of_a_dead_node_are_free_after_its_lease(one, &two).await;
    assert!((6..12).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_node_runs_on_a_current_thread_in_real_time() {
    let engine = MemoryEngine::new();
    let node = start("a", engine, &Network::default());
    node.sees(1).await;
    held(node.claim(1, "c", 1).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_runs_on_several_threads() {
    let engine = MemoryEngine::new();
    let node = start("a", engine, &Network::default());
    node.sees(1).await;
    let claims = (1..50).map(|port| {
        let cluster = node.cluster.clone();
        tokio::spawn(async move { cluster.claim(vec![wanted(port, "c", 1)]).await })
    });
    for claim in claims.collect::<Vec<_>>() {
        held(claim.await.unwrap().remove(0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_claims_is_one_batch_of_the_engine() {
    let engine = MemoryEngine::new();
    let node = start("a", engine.clone(), &Network::default());
    node.sees(1).await;
    let before = engine.batches();
    let batch = (1..=100).map(|port| wanted(port, "c", 1)).collect();
    let claimed = node.cluster.claim(batch).await;
    assert!(claimed.iter().all(|claimed| matches!(claimed, Claimed::Held(_))), "{claimed:?}");
    assert_eq!(engine.batches() - before, 1);
    let mut ports = node.cluster.ports();
    timeout(SECOND, ports.wait_for(|ports| ports.len() == 100)).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_claim_is_released() {
    let ([one, two], _) = two().await;
    // The future ends before the engine has answered, and at any time after that.
    for micros in [0, 500, 1_500, 2_500, 10_000] {
        let limit = Duration::from_micros(micros);
        let claimed = timeout(limit, one.claim(1, "a", 1)).await;
        if let Ok(Claimed::Held(generation)) = claimed {
            one.cluster.release([(key(1), generation)]);
        }
        let generation = two.insist(1, SECOND).await;
        two.cluster.release([(key(1), generation)]);
        sleep(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_all_handles_ends_the_node() {
    let engine = MemoryEngine::new();
    let node = start("a", engine.clone(), &Network::default());
    node.sees(1).await;
    assert!(engine.keys().iter().any(|key| key.contains("/node/a")), "{:?}", engine.keys());
    let (other, start) = (node.cluster.clone(), Instant::now());
    drop(node.cluster);
    sleep(SECOND).await;
    assert!(!node.task.is_finished());
    drop(other);
    node.task.await.unwrap();
    assert!(start.elapsed() < SECOND + LEAVING, "{:?}", start.elapsed());
    assert!(engine.keys().iter().all(|key| !key.contains("/node/a")), "{:?}", engine.keys());
}

#[tokio::test(start_paused = true)]
async fn a_node_leaves_within_2_s_also_without_an_engine() {
    let engine = MemoryEngine::new();
    let node = start("a", engine.clone(), &Network::default());
    node.sees(1).await;
    engine.hang(true);
    let (cluster, start) = (node.cluster.clone(), Instant::now());
    let claim = tokio::spawn(async move { cluster.claim(vec![wanted(1, "c", 1)]).await });
    sleep(Duration::from_millis(1)).await;
    node.cluster.leave().await;
    assert!(start.elapsed() <= LEAVING + Duration::from_millis(10), "{:?}", start.elapsed());
    // Whoever waited is told.
    assert_eq!(claim.await.unwrap(), [Claimed::Away]);
    assert_eq!(node.claim(1, "c", 1).await, Claimed::Away);
    assert!(!*node.cluster.readiness().borrow());
    assert_eq!(node.cluster.membership().borrow().epoch, None);
}

#[tokio::test(start_paused = true)]
async fn a_node_stays_a_member_while_a_member_of_the_engine_answers_nothing() {
    let ([one, _two], [engine, _]) = two().await;
    engine.hang_member(0);
    let epoch = one.cluster.membership().borrow().epoch;
    let start = Instant::now();
    while start.elapsed() < 60 * SECOND {
        assert!(one.cluster.membership().borrow().is_leased);
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(one.cluster.membership().borrow().epoch, epoch);
    held(one.claim(1, "c", 1).await);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_begun_at_another_member() {
    let ([one, two], [engine, _]) = two().await;
    engine.silence(0);
    engine.silence(1);
    two.cluster.leave().await;
    let mut nodes = one.cluster.nodes();
    // For each of the two members 3 s until the next write, and silence of 2 s after it.
    timeout(11 * SECOND, nodes.wait_for(|nodes| nodes.len() == 1)).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_port_of_this_node_is_in_its_table_at_once_also_while_the_watch_is_silent() {
    let ([one, _], [engine, _]) = two().await;
    (0..3).for_each(|member| engine.silence(member));
    let generation = held(one.claim(1, "c", 1).await);
    let mut ports = one.cluster.ports();
    let is_there = ports.wait_for(|ports| ports.get(&key(1)).is_some_and(|it| it.0 == generation));
    timeout(SECOND, is_there).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_is_lost_is_held_once() {
    let ([one, two], [engine, _]) = two().await;
    engine.lose(2);
    let start = Instant::now();
    let generation = held(one.claim(1, "c", 1).await);
    assert!((2..3).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert!(is_taken_by(&two.claim(1, "d", 2).await, &one));
    one.cluster.release([(key(1), generation)]);
    two.insist(1, SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn other_nodes_answer_in_the_place_of_the_engine() {
    let engine = MemoryEngine::new();
    let (first, second) = (engine.of_another_node(), engine);
    let network = Network::default();
    let one = start("a", first.clone(), &network);
    let two = start("b", second.clone(), &network);
    one.sees(2).await;
    two.sees(2).await;
    network.link(&one, &two);
    one.cluster.logged_in(client_name("c"), Instance(1), 1);
    held(one.claim(1, "c", 1).await);
    first.hang(true);
    second.hang(true);
    sleep(2 * SECOND).await;
    let start = Instant::now();
    let found = two.cluster.find(Subject::Client(client_name("c"))).await;
    assert!(
        matches!(&found, Located::There { record, .. } if record.instance == Instance(1)),
        "{found:?}"
    );
    let found = two.cluster.find(Subject::Resource(key(1))).await;
    assert!(matches!(&found, Located::Held { record, .. } if record.node == one.id), "{found:?}");
    assert!(start.elapsed() < 4 * SECOND, "{:?}", start.elapsed());
    // A name that nobody knows.
    let found = two.cluster.find(Subject::Client(client_name("x"))).await;
    assert_eq!(found, Located::Away);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_cut_off_claims_again_what_it_has() {
    let ([mut one, mut two], [engine, _]) = two().await;
    let kept = held(one.claim(1, "c", 1).await);
    let lost = held(one.claim(2, "c", 1).await);
    let before = one.cluster.membership().borrow().epoch;
    engine.hang(true);
    // The lease ends, and another node takes one of both resources.
    two.insist(2, 15 * SECOND).await;
    let mut membership = one.cluster.membership();
    timeout(15 * SECOND, membership.wait_for(|now| !now.is_leased)).await.unwrap().unwrap();
    assert_eq!(one.claim(5, "c", 1).await, Claimed::Away);
    engine.hang(false);
    let joined = membership.wait_for(|now| now.is_leased && now.epoch.is_some());
    let after = timeout(QUICK, joined).await.unwrap().unwrap().epoch;
    assert!(after > before, "{before:?} {after:?}");

    let (mut events, mut lines, mut renumbered) = (Vec::new(), Vec::new(), None);
    while events.len() < 2 {
        let event = timeout(QUICK, one.events.next()).await.unwrap().unwrap();
        if let ServerEvent::Report { event, line } = event {
            lines.push((event, line));
        } else if let ServerEvent::Renumbered { key: of, former, generation } = event {
            assert_eq!((&of, former), (&key(1), kept));
            renumbered = Some(generation);
            events.push(of);
        } else {
            assert_eq!(event, ServerEvent::Lost { key: key(2), generation: lost });
            events.push(key(2));
        }
    }
    events.sort();
    assert_eq!(events, [key(1), key(2)]);
    let ended = NodeEvent::EpochEnded(before.unwrap_or(NodeEpoch(0)));
    assert!(lines.iter().any(|(event, line)| *event == ended && line.contains("joins again")));
    // A release may name the former number.
    one.cluster.release([(key(1), kept)]);
    let newer = two.insist(1, SECOND).await;
    assert!(Some(newer) > renumbered);
    assert_eq!(two.event(SECOND).await, None);
}

#[tokio::test(start_paused = true)]
async fn known_answers_go_on_and_releases_wait_while_the_engine_is_away() {
    let ([one, two], [first, second]) = two().await;
    one.cluster.logged_in(client_name("c"), Instance(1), 1);
    let generation = held(one.claim(1, "c", 1).await);
    let subject = Subject::Client(client_name("c"));
    let is_there = |found: &Located| matches!(found, Located::There { .. });
    eventually(QUICK, async || Some(two.cluster.find(subject.clone()).await).filter(is_there))
        .await;
    first.hang(true);
    second.hang(true);
    let start = Instant::now();
    one.cluster.release([(key(1), generation)]);
    one.cluster.logged_out(client_name("c"), Instance(1));
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(is_there(&two.cluster.find(subject.clone()).await));
    assert_eq!(start.elapsed().as_millis(), 0);
    assert_eq!(two.claim(1, "d", 2).await, Claimed::Away);
    assert!((4..6).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    first.hang(false);
    second.hang(false);
    two.insist(1, 5 * SECOND).await;
    // What was found is used until the owner refuses an OPEN.
    let Located::There { generation, .. } = two.cluster.find(subject.clone()).await else {
        panic!()
    };
    two.cluster.refused(subject.clone(), generation, None);
    assert_eq!(two.cluster.find(subject).await, Located::Nowhere);
}

#[tokio::test(start_paused = true)]
async fn the_record_of_a_node_says_how_it_is() {
    let ([one, two], _) = two().await;
    one.cluster.describe(false, 3);
    one.cluster.describe(true, 7);
    let mut nodes = two.cluster.nodes();
    let is_told = |nodes: &cluster_node::LivingNodes| {
        let record = nodes.get(&one.id).and_then(|node| node.record.as_ref());
        record.is_some_and(|record| record.draining && record.links == 7)
    };
    timeout(4 * SECOND, nodes.wait_for(is_told)).await.unwrap().unwrap();
    assert!(*two.cluster.readiness().borrow());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_loses_its_rights_is_told() {
    let ([mut one, _two], [engine, _]) = two().await;
    let place = RecordPlace::Revoked(client_name("c"));
    let record = Keyspace::new("test").of(&place);
    let put = Operation::Put { key: record.clone(), value: Revoked {}.encode(), lease: None };
    for (operation, is_revoked) in [(put, true), (Operation::Delete { key: record }, false)] {
        engine.transact(&Transaction { then: vec![operation], ..Transaction::default() }).unwrap();
        let event = ServerEvent::Revoked { client: client_name("c"), is_revoked };
        assert_eq!(one.event(SECOND).await, Some(event));
    }
}

#[tokio::test(start_paused = true)]
async fn wishes_about_bytes_are_answered_without_an_engine() {
    let ([one, _two], engines) = two().await;
    engines[0].hang(true);
    let start = Instant::now();
    let wishes = || {
        let value = Bytes::from_static(b"key");
        vec![
            BlobWish::get(BlobPlace::Tickets(1)),
            BlobWish::put(BlobPlace::Tickets(2), value, BlobExpected::Any),
        ]
    };
    let away = |may_be_done| BlobOutcome::Away { may_be_done };
    assert_eq!(one.cluster.blobs(wishes()).await, [away(false), away(true)]);
    assert!(start.elapsed() < 2 * SECOND, "{:?}", start.elapsed());
    one.cluster.leave().await;
    assert_eq!(one.cluster.blobs(wishes()).await, [away(false), away(false)]);
}

#[tokio::test(start_paused = true)]
async fn a_node_says_how_it_is_doing_without_an_engine() {
    let ([one, _two], engines) = two().await;
    held(one.claim(1, "c", 1).await);
    let before = one.cluster.snapshot().await.unwrap();
    assert!(before.is_leased && before.is_ready && before.epoch.is_some(), "{before:?}");
    assert_eq!((before.nodes, before.backlog), (2, 0), "{before:?}");
    assert!(before.counts.batches >= 1 && before.counts.unanswered == 0, "{before:?}");
    assert!(before.tables.is_some_and(|age| age <= 4 * SECOND), "{before:?}");
    engines[0].hang(true);
    sleep(20 * SECOND).await;
    let after = one.cluster.snapshot().await.unwrap();
    assert!(!after.is_leased && after.counts.unanswered > 0, "{after:?}");
    assert!(after.heard.is_some_and(|heard| heard >= 19 * SECOND), "{after:?}");
    one.cluster.leave().await;
    assert_eq!(one.cluster.snapshot().await, None);
}

#[tokio::test(start_paused = true)]
async fn another_process_of_a_node_goes_on_with_its_epoch() {
    let ([one, two], engines) = two().await;
    let first = held(one.claim(1, "a", 1).await);
    let epoch = one.cluster.membership().borrow().epoch;
    assert!(one.cluster.hand_over().await.is_some());
    // The next process has failed.
    one.cluster.go_on().await;
    let second = held(one.claim(2, "a", 1).await);
    one.cluster.release([(key(2), second)]);
    let left = one.cluster.hand_over().await.unwrap();
    let next = start_after("a", engines[0].clone(), &Network::default(), Some(left));
    one.cluster.end().await;
    one.task.await.unwrap();
    next.sees(2).await;
    assert_eq!(next.cluster.membership().borrow().epoch, epoch);
    assert_eq!(held(next.claim(1, "a", 1).await), first);
    assert!(is_taken_by(&two.claim(1, "b", 2).await, &next));
    // What the former process had released is free.
    two.insist(2, QUICK).await;
    sleep(SECOND * 30).await;
    assert_eq!(next.cluster.membership().borrow().epoch, epoch);
    // Without an engine a batch has no answer, and the node goes on.
    engines[0].hang(true);
    let (cluster, begun) = (next.cluster.clone(), Instant::now());
    let claim = tokio::spawn(async move { cluster.claim(vec![wanted(3, "c", 1)]).await });
    sleep(Duration::from_millis(1)).await;
    assert_eq!(next.cluster.hand_over().await, None);
    assert!(begun.elapsed() < SECOND * 3, "{:?}", begun.elapsed());
    engines[0].hang(false);
    assert!(matches!(claim.await.unwrap()[..], [Claimed::Held(_) | Claimed::Away]));
    next.insist(4, QUICK).await;
}

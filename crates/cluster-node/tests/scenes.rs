//! What holds on each engine: the scenes run in memory in virtual time, and on a real etcd.

use std::time::Duration;

use bytes::Bytes;
use cluster::blob::{BlobAct, BlobExpected, BlobOutcome, BlobWish};
use cluster::engine::KeyValue;
use cluster::keys::{BlobPlace, PagedTable, RecordPlace};
use cluster::names::{Generation, Instance};
use cluster::node::{Located, OpenVerdict, PeerOpen, Subject};
use cluster::record::{At, Record as _};
use cluster_node::{RecordPage, ServerEvent, WantedPage};
use tokio::time::{Instant, sleep};

use crate::ground::{TestNode, client_name, eventually, held, is_taken_by, key};

/// The time for what takes some round trips to the engine, on a busy machine.
pub(crate) const QUICK: Duration = Duration::from_secs(20);

/// The time after which a lease of 10 s has ended for sure, on a busy machine.
pub(crate) const LEASED: Duration = Duration::from_secs(40);

fn client(name: &str) -> Subject {
    Subject::Client(client_name(name))
}

/// Of two nodes one gets a resource, and the other after the release.
pub(crate) async fn claims_are_exclusive(one: &TestNode, two: &TestNode) {
    let (first, second) = tokio::join!(one.claim(1, "a", 1), two.claim(1, "b", 2));
    let (winner, loser, first) = if is_taken_by(&second, one) {
        (one, two, held(first))
    } else {
        assert!(is_taken_by(&first, two), "{first:?} {second:?}");
        (two, one, held(second))
    };
    assert!(is_taken_by(&loser.claim(1, "c", 3).await, winner));
    // A node frees nothing that it does not hold.
    loser.cluster.release([(key(1), first)]);
    assert!(is_taken_by(&loser.claim(1, "c", 3).await, winner));
    winner.cluster.release([(key(1), first)]);
    loser.insist(1, QUICK).await;
}

/// A release that comes after a newer claim frees nothing.
pub(crate) async fn an_old_release_frees_nothing(one: &TestNode, two: &TestNode) {
    let first = held(one.claim(2, "a", 1).await);
    one.cluster.release([(key(2), first)]);
    // A release comes before each claim that is made after it.
    let second = held(one.claim(2, "a", 1).await);
    assert!(second > first);
    one.cluster.release([(key(2), first)]);
    assert!(is_taken_by(&two.claim(2, "b", 2).await, one));
    sleep(Duration::from_millis(500)).await;
    assert!(is_taken_by(&two.claim(2, "b", 2).await, one));
}

/// The number of the record by which a node finds this process.
async fn found_at(node: &TestNode, instance: Instance) -> Option<Generation> {
    let found = node.cluster.find(client("twice")).await;
    let Located::There { generation, record, .. } = found else { return None };
    (record.instance == instance).then_some(generation)
}

/// Two processes of a client log in at two nodes: the later one is in charge, and the other is
/// kicked once.
pub(crate) async fn two_processes_settle(one: &mut TestNode, two: &mut TestNode) {
    let name = client_name("twice");
    one.cluster.logged_in(name.clone(), Instance(1), 1);
    let generation = eventually(QUICK, async || found_at(two, Instance(1)).await).await;
    let open = PeerOpen { client: name.clone(), instance: Instance(1), generation };
    assert_eq!(one.cluster.judge(open.clone()).await, OpenVerdict::Serve);

    two.cluster.logged_in(name.clone(), Instance(2), 1);
    let kick = ServerEvent::Kick { client: name.clone(), instance: Instance(1) };
    assert_eq!(one.event(QUICK).await, Some(kick));
    one.cluster.logged_out(name.clone(), Instance(1));
    let moved = one.cluster.judge(open).await;
    assert!(
        matches!(&moved, OpenVerdict::Moved(newer, at)
            if *newer > generation && at.instance == Instance(2)),
        "{moved:?}"
    );
    eventually(QUICK, async || found_at(one, Instance(2)).await).await;
    // Nobody else yields, also when the former process tries again.
    one.cluster.logged_in(name.clone(), Instance(1), 1);
    let kick = ServerEvent::Kick { client: name.clone(), instance: Instance(1) };
    assert_eq!(one.event(QUICK).await, Some(kick));
    one.cluster.logged_out(name.clone(), Instance(1));
    assert_eq!(two.event(Duration::from_secs(4)).await, None);
    assert_eq!(two.cluster.find(client("twice")).await, Located::Here(Instance(2)));
    two.cluster.logged_out(name, Instance(2));
}

/// A node that leaves has ended within 2 s, and what it held is free at once.
pub(crate) async fn a_node_that_leaves_frees_at_once(one: TestNode, two: &TestNode) {
    held(one.claim(3, "a", 1).await);
    assert!(is_taken_by(&two.claim(3, "b", 2).await, &one));
    let start = Instant::now();
    one.cluster.leave().await;
    one.task.await.unwrap();
    two.insist(3, Duration::from_secs(5)).await;
    assert!(start.elapsed() < Duration::from_secs(7), "{:?}", start.elapsed());
    assert_eq!(one.cluster.find(client("x")).await, Located::Away);
}

/// The claims of a node that dies are free after its lease.
pub(crate) async fn claims_of_a_dead_node_are_free_after_its_lease(one: TestNode, two: &TestNode) {
    held(one.claim(4, "a", 1).await);
    one.task.abort();
    assert!(is_taken_by(&two.claim(4, "b", 2).await, &one));
    two.insist(4, LEASED).await;
}

/// The clients of all nodes are read page by page, at any node.
pub(crate) async fn clients_are_listed_in_pages(one: &TestNode, two: &TestNode) {
    let names = ["p/1", "p/2", "p/3", "p2"];
    for (name, node) in names.into_iter().zip([one, two, one, two]) {
        node.cluster.logged_in(client_name(name), Instance(7), 2);
    }
    let page = async |node: &TestNode, after: Option<&str>, limit| {
        let after = after.map(|name| RecordPlace::At(client_name(name)));
        let wanted = WantedPage { table: PagedTable::Homes, begins: "p/".to_owned(), after, limit };
        node.cluster.page(wanted).await.unwrap()
    };
    let names_of = |page: &RecordPage| -> Vec<String> {
        let name = |(place, found): &(RecordPlace, KeyValue)| {
            let RecordPlace::At(client) = place else { panic!("{place:?}") };
            assert_eq!(At::decode(&found.value).unwrap().homes.len(), 1);
            client.to_string()
        };
        page.records.iter().map(name).collect()
    };
    for node in [one, two] {
        let first = eventually(QUICK, async || {
            let first = page(node, None, 200).await;
            (first.records.len() == 3).then_some(first)
        })
        .await;
        assert!(!first.more);
        assert_eq!(names_of(&first), ["p/1", "p/2", "p/3"]);
        let first = page(node, None, 2).await;
        assert!(first.more);
        assert_eq!(names_of(&first), ["p/1", "p/2"]);
        let second = page(node, Some("p/2"), 2).await;
        assert_eq!((names_of(&second), second.more), (vec!["p/3".to_owned()], false));
        assert_eq!(page(node, Some("q"), 2).await, RecordPage::default());
    }
}

/// Bytes of the server are the same at all nodes, written by one of two, taken once, and gone after
/// their time.
pub(crate) async fn bytes_of_the_server_are_shared(one: &TestNode, two: &TestNode) {
    let client = || BlobPlace::Client(client_name("a"));
    let create = |text: &'static str| {
        vec![BlobWish::put(client(), Bytes::from_static(text.as_bytes()), BlobExpected::Absent)]
    };
    let (first, second) =
        tokio::join!(one.cluster.blobs(create("1")), two.cluster.blobs(create("2")));
    let written = |outcome: &BlobOutcome| matches!(outcome, BlobOutcome::Written(_));
    assert_eq!([&first[0], &second[0]].into_iter().filter(|it| written(it)).count(), 1);
    let read = || vec![BlobWish::get(client()), BlobWish::get(BlobPlace::Tickets(7))];
    let found = one.cluster.blobs(read()).await;
    assert!(matches!(&found[..], [BlobOutcome::Found(Some(_)), BlobOutcome::Found(None)]));
    assert_eq!(two.cluster.blobs(read()).await, found);

    let take = || vec![BlobWish::delete(client(), BlobExpected::Any)];
    let (first, second) = tokio::join!(one.cluster.blobs(take()), two.cluster.blobs(take()));
    let taken = [first, second].concat();
    assert!(taken.contains(&BlobOutcome::Deleted), "{taken:?}");
    assert!(taken.contains(&BlobOutcome::Refused(None)), "{taken:?}");

    let challenge = || BlobPlace::Challenge("token".into());
    let (value, keep) = (Bytes::from_static(b"answer"), Some(Duration::from_secs(2)));
    let act = BlobAct::Put { value, expected: BlobExpected::Any, keep };
    let given = one.cluster.blobs(vec![BlobWish { place: challenge(), act }]).await;
    assert!(written(&given[0]), "{given:?}");
    eventually(LEASED, async || {
        let found = two.cluster.blobs(vec![BlobWish::get(challenge())]).await;
        (found == [BlobOutcome::Found(None)]).then_some(())
    })
    .await;
}

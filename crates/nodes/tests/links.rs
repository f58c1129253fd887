//! The life of a link: cuts, nodes that vanish, nodes that move.

use std::cell::Cell;
use std::time::Duration;

use cluster::node::PeerMessage;
use tokio::time::{Instant, sleep, timeout};

use crate::ground::{Ground, SOON, eventually, introduce};
use crate::streams::{BOTH, converse};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_whose_carrier_is_cut_goes_on_and_the_cluster_hears_nothing() {
    for listen in [&BOTH[..1], &BOTH[1..]] {
        let ground = Ground::new();
        let (a, b) = (ground.start("a", listen, 1).await, ground.start("b", listen, 1).await);
        introduce(&[&a, &b]);
        a.is_linked_to(&[&b]).await;
        for _ in 0..3 {
            assert_eq!(a.cut(&b).await, 1);
            assert_eq!(converse(&a, 0, &b, b"again".to_vec()).await.unwrap(), b"again");
        }
        assert_eq!(a.table.changes(&b.id), 1);
        assert_eq!(a.status(&b.id).await.outgoing, 1, "the same link");
        a.stop().await;
        b.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_in_both_directions_outlive_cuts_without_a_lost_byte() {
    for listen in [&BOTH[..1], &BOTH[1..]] {
        let ground = Ground::new();
        let (a, b) = (ground.start("a", listen, 1).await, ground.start("b", listen, 1).await);
        introduce(&[&a, &b]);
        a.is_linked_to(&[&b]).await;
        b.is_linked_to(&[&a]).await;
        let stream = async |n: u8| {
            let bytes: Vec<u8> = (0..2 << 20).map(|at: u32| at.to_le_bytes()[1] ^ n).collect();
            let (from, to) = if n.is_multiple_of(2) { (&a, &b) } else { (&b, &a) };
            assert_eq!(converse(from, 0, to, bytes.clone()).await.unwrap(), bytes);
        };
        let cuts = Cell::new(0);
        // Streams follow each other until some of them were cut.
        let streams = async {
            while cuts.get() < 3 {
                tokio::join!(
                    async { tokio::join!(stream(0), stream(1), stream(2), stream(3)) },
                    async { tokio::join!(stream(4), stream(5), stream(6), stream(7)) },
                    async { tokio::join!(stream(8), stream(9), stream(10), stream(11)) },
                );
            }
        };
        let cutting = async {
            loop {
                cuts.set(cuts.get() + a.cut(&b).await + b.cut(&a).await);
                sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::select! {
            () = streams => {}
            () = cutting => unreachable!("it has no end"),
        }
        println!("{listen:?}: {} cuts", cuts.get());
        a.stop().await;
        b.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_vanishes_is_unlinked_within_seconds_and_linked_when_it_is_back() {
    for listen in [&BOTH[..1], &BOTH[1..]] {
        let ground = Ground::new();
        let (a, b) = (ground.start("a", listen, 1).await, ground.start("b", listen, 1).await);
        introduce(&[&a, &b]);
        a.is_linked_to(&[&b]).await;
        let (id, begun) = (b.id.clone(), Instant::now());
        b.stop().await;
        eventually("unlinked", async || (!a.table.is_linked(&id)).then_some(())).await;
        // Over UDP nobody is told that a process has gone: an unanswered message shows it.
        assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
        let b = ground.start("b", listen, 1).await;
        introduce(&[&a, &b]);
        a.is_linked_to(&[&b]).await;
        assert_eq!(converse(&a, 0, &b, b"back".to_vec()).await.unwrap(), b"back");
        a.stop().await;
        b.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_other_addresses_is_dialled_there() {
    let ground = Ground::new();
    let (a, b) = (ground.start("a", &BOTH, 1).await, ground.start("b", &BOTH, 1).await);
    introduce(&[&a, &b]);
    a.is_linked_to(&[&b]).await;
    let tls: Vec<_> =
        b.addresses.iter().filter(|at| at.url.starts_with("tls://")).cloned().collect();
    a.table.set(&[(b.id.clone(), tls)]);
    eventually("another transport", async || {
        (a.status(&b.id).await.transport == Some("tls")).then_some(())
    })
    .await;
    assert_eq!(converse(&a, 0, &b, b"moved".to_vec()).await.unwrap(), b"moved");
    eventually("one link", async || (a.status(&b.id).await.outgoing == 1).then_some(())).await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_leaves_the_table_keeps_its_links_for_a_while() {
    let ground = Ground::new();
    let (a, b) = (ground.start("a", &BOTH, 1).await, ground.start("b", &BOTH, 1).await);
    introduce(&[&a, &b]);
    a.is_linked_to(&[&b]).await;
    a.table.set(&[]);
    sleep(Duration::from_millis(300)).await;
    let talk = converse(&a, 0, &b, b"still here".to_vec());
    assert_eq!(timeout(SOON, talk).await.unwrap().unwrap(), b"still here");
    introduce(&[&a, &b]);
    sleep(Duration::from_millis(300)).await;
    assert_eq!((a.table.changes(&b.id), a.status(&b.id).await.outgoing), (1, 1));
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_frozen_is_unlinked_while_messages_wait_and_linked_when_it_goes_on() {
    const FROZEN: Duration = Duration::from_secs(7);
    let ground = Ground::new();
    let (a, b) = (ground.start("a", &BOTH, 1).await, ground.start("b", &BOTH, 1).await);
    introduce(&[&a, &b]);
    a.is_linked_to(&[&b]).await;
    let begun = Instant::now();
    #[expect(clippy::disallowed_methods, reason = "a worker that does not go on")]
    b.workers.handles()[0].run(|_| std::thread::sleep(FROZEN)).await.unwrap();
    // As the cluster does, but for the pauses.
    let unlinked = async || {
        a.send(&b, PeerMessage::Status { hears_engine: true });
        (!a.table.is_linked(&b.id)).then_some(())
    };
    eventually("unlinked", unlinked).await;
    // A second until the message is overdue, and two of grace.
    assert!(begun.elapsed() < FROZEN, "{:?}", begun.elapsed());
    a.is_linked_to(&[&b]).await;
    assert_eq!(converse(&a, 0, &b, b"awake".to_vec()).await.unwrap(), b"awake");
    a.stop().await;
    b.stop().await;
}

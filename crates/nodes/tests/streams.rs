//! Streams, flows and messages between nodes.

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use cluster::names::ClientName;
use cluster::node::{PeerMessage, Subject};
use node::session::Worker;
use proto::{Hop, Open, Priority, ResetCode, Target};
use relay::open_duplex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;
use tokio::time::timeout;
use transport::{FlowConnector as _, FlowOutlet};

use crate::ground::{Ground, SOON, TestNode, eventually, introduce, lock};

pub(crate) const BOTH: [&str; 2] = ["tls://127.0.0.1:0", "quic://127.0.0.1:0"];

/// The address without certificates.
pub(crate) const PLAIN: [&str; 1] = ["tcp://127.0.0.1:0"];

pub(crate) fn hop() -> Hop {
    let (client, service) = ("home".parse().unwrap(), "web".parse().unwrap());
    Hop { client, instance: 7, generation: 42, service, claim: 43, mark: None, visitor: None }
}

fn visitor() -> SocketAddr {
    "192.0.2.7:50000".parse().unwrap()
}

pub(crate) fn open(target: Target) -> Open {
    Open { target, visitor: Some(visitor()), priority: Priority::Bulk, fields: None }
}

/// Sends `bytes` over a stream to another node, from this worker. Returns what came back.
pub(crate) async fn converse(
    from: &TestNode,
    worker: usize,
    to: &TestNode,
    bytes: Vec<u8>,
) -> std::io::Result<Vec<u8>> {
    let session = from.links.session(&to.id).unwrap();
    let talk = move |worker: Rc<Worker>| async move {
        let link = loop {
            let revived = session.revived.notified();
            if let Some(link) = worker.state.live_link(&session) {
                break link;
            }
            session.demand(worker.index);
            revived.await;
        };
        let stream = open_duplex(&link, open(Target::Hop(hop())), &Rc::default(), None).unwrap();
        let (mut reads, mut writes) = tokio::io::split(stream);
        let expected = bytes.len();
        let send = async {
            writes.write_all(&bytes).await?;
            writes.flush().await
        };
        let mut back = vec![0; expected];
        let (sent, read) = tokio::join!(send, reads.read_exact(&mut back));
        sent?;
        read?;
        Ok(back)
    };
    timeout(SOON, from.workers.handles()[worker].task(talk)).await.unwrap().unwrap()
}

#[derive(Debug)]
struct First(std::cell::RefCell<Option<oneshot::Sender<Bytes>>>);

impl FlowOutlet for First {
    fn deliver(&self, datagram: Bytes) {
        if let Some(first) = self.0.take() {
            first.send(datagram).unwrap();
        }
    }

    fn close(&self, code: ResetCode) {
        panic!("{code}");
    }
}

/// Sends a datagram over a flow to another node. Returns the datagram that came back.
async fn exchange(from: &TestNode, to: &TestNode, datagram: &'static [u8]) -> Bytes {
    let session = from.links.session(&to.id).unwrap();
    let talk = move |worker: Rc<Worker>| async move {
        let link = worker.state.live_link(&session).unwrap();
        let (reply, first) = oneshot::channel();
        let outlet = Rc::new(First(Some(reply).into()));
        let inlet = link.open_flow(open(Target::Hop(hop())), outlet).unwrap();
        assert_eq!(inlet.send(&mut std::iter::once(datagram)), 0);
        first.await.unwrap()
    };
    timeout(SOON, from.workers.handles()[0].task(talk)).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_flows_go_in_both_directions_and_say_whose_they_are() {
    for listen in [&BOTH[..], &BOTH[..1], &BOTH[1..], &PLAIN] {
        let ground = Ground::new();
        let (a, b) = (ground.start("a", listen, 1).await, ground.start("b", listen, 1).await);
        introduce(&[&a, &b]);
        a.is_linked_to(&[&b]).await;
        b.is_linked_to(&[&a]).await;
        for (from, to) in [(&a, &b), (&b, &a)] {
            let bytes: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[0]).collect();
            assert_eq!(converse(from, 0, to, bytes.clone()).await.unwrap(), bytes);
            assert_eq!(exchange(from, to, b"datagram").await, b"datagram"[..]);
            let hops = lock(&to.serves.hops).clone();
            assert_eq!(hops.len(), 2);
            for (of, _, asked, stream) in hops {
                assert_eq!((&of, asked), (&from.id, hop()));
                assert_eq!((stream.visitor, stream.priority), (Some(visitor()), Priority::Bulk));
            }
            let status = from.status(&to.id).await;
            let first = if listen.len() == 1 { listen[0] } else { "quic://" };
            assert_eq!(status.transport, first.split(':').next(), "{status:?}");
            assert!(status.is_live && status.outgoing == 1 && status.incoming == 1, "{status:?}");
            assert!(status.sent >= 300_000 && status.round_trip.is_some(), "{status:?}");
        }
        a.stop().await;
        b.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_the_cluster_arrive_in_order_and_name_their_sender() {
    let ground = Ground::new();
    let nodes = [
        ground.start("a", &BOTH, 2).await,
        ground.start("b", &BOTH, 2).await,
        ground.start("c", &BOTH, 1).await,
    ];
    let [a, b, c] = &nodes;
    introduce(&[a, b, c]);
    for node in [a, b, c] {
        let others: Vec<_> = [a, b, c].into_iter().filter(|other| other.id != node.id).collect();
        node.is_linked_to(&others).await;
    }
    let ask = |id| PeerMessage::Ask {
        id,
        subject: Subject::Client(ClientName::new("home").unwrap()),
        ask_engine: id % 2 == 0,
    };
    for id in 0..50 {
        a.send(b, ask(id));
        b.send(a, ask(100 + id));
    }
    c.send(a, PeerMessage::Status { hears_engine: true });
    for id in 0..50 {
        assert_eq!(b.message().await, (a.id.clone(), ask(id)));
    }
    let mut of_c = 0;
    let mut next = 100;
    for _ in 0..51 {
        match a.message().await {
            (from, PeerMessage::Status { hears_engine: true }) if from == c.id => of_c += 1,
            (from, message) => {
                assert_eq!((from, message), (b.id.clone(), ask(next)));
                next += 1;
            }
        }
    }
    assert_eq!(of_c, 1);
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_worker_makes_a_link_for_its_first_visitor() {
    let ground = Ground::new();
    let (a, b) = (ground.start("a", &BOTH, 2).await, ground.start("b", &BOTH, 2).await);
    introduce(&[&a, &b]);
    a.is_linked_to(&[&b]).await;
    assert_eq!(a.status(&b.id).await.outgoing, 1);
    assert_eq!(converse(&a, 1, &b, b"hello".to_vec()).await.unwrap(), b"hello");
    assert_eq!(a.status(&b.id).await.outgoing, 2);
    for handle in a.workers.handles().iter().chain(&b.workers.handles()[..]) {
        let seen =
            |worker: &Rc<Worker>| (worker.state.all_links().len(), worker.state.session_ids());
        let (links, sessions) = handle.call(seen).await.unwrap();
        assert!(links > 0 && sessions.is_empty(), "nodes are no clients: {sessions:?}");
    }
    // No news for the cluster.
    assert_eq!(a.table.changes(&b.id), 1);
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_of_another_kind_is_refused() {
    let ground = Ground::new();
    let (a, b) = (ground.start("a", &BOTH, 1).await, ground.start("b", &BOTH, 1).await);
    introduce(&[&a, &b]);
    a.is_linked_to(&[&b]).await;
    let session = a.links.session(&b.id).unwrap();
    let ask = move |worker: Rc<Worker>| async move {
        let link = worker.state.live_link(&session).unwrap();
        let target = Target::Forward("tcp://127.0.0.1:22".to_owned());
        let mut stream = open_duplex(&link, open(target), &Rc::default(), None).unwrap();
        let read = stream.read_u8().await;
        let service = open(Target::Service("web".to_owned()));
        let mut other = open_duplex(&link, service, &Rc::default(), None).unwrap();
        (read.is_err(), other.read_u8().await.is_err())
    };
    let refused = timeout(SOON, a.workers.handles()[0].task(ask)).await.unwrap().unwrap();
    assert_eq!(refused, (true, true));
    assert!(lock(&b.serves.hops).is_empty());
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_leaves_lets_its_streams_end() {
    let ground = Ground::new();
    let (a, b) = (ground.start("a", &BOTH, 1).await, ground.start("b", &BOTH, 1).await);
    introduce(&[&a, &b]);
    a.is_linked_to(&[&b]).await;
    b.is_linked_to(&[&a]).await;
    timeout(SOON, b.links.leave()).await.unwrap();
    eventually("no link", async || (!b.table.is_linked(&a.id)).then_some(())).await;
    eventually("the end of the link", async || (!a.table.is_linked(&b.id)).then_some(())).await;
    let trouble = a.trouble(&b.id).await;
    assert!(trouble.contains("node b is stopping"), "{trouble}");
    a.stop().await;
    b.stop().await;
}

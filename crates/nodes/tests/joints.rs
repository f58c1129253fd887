//! A node that joins the streams of another node with streams of a link of its own, as it does with
//! the links of its clients: on one worker, and on two.

use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cluster::names::NodeId;
use node::session::Worker;
use nodes::{HopStream, NodeLinks, ServesHops};
use proto::{Hop, Open, ResetCode, Target};
use relay::{Crossing, Visitor, accept_duplex, bridge, open_duplex, span};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};
use transport::{Connector as _, FlowInlet, FlowOutlet, Inlet, Outlet};

use crate::ground::{Ground, SOON, TestNode, common_with, introduce, node_id, start_with};
use crate::streams::{BOTH, PLAIN, converse, hop, open};

/// Joins the streams of a node with streams to another node.
#[derive(Debug)]
struct Joins {
    links: OnceLock<NodeLinks>,
    to: NodeId,
    /// The other stream is on another worker.
    crosses: bool,
}

impl ServesHops for Joins {
    fn stream(
        &self,
        worker: &Rc<Worker>,
        _: &NodeId,
        hop: Hop,
        stream: HopStream,
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet> {
        let session = self.links.get().unwrap().session(&self.to).unwrap();
        let HopStream { visitor, priority, fields } = stream;
        let open = Open { target: Target::Hop(hop), visitor, priority, fields };
        if !self.crosses {
            let link = worker.state.live_link(&session).unwrap();
            return bridge(inlet, &link, open, Crossing::default()).unwrap();
        }
        let (near, far) = span();
        let near = near.carry(Crossing::default());
        let outlet = near.outlet();
        let other = worker.peers[1 - worker.index].clone();
        let begin = move |worker: Rc<Worker>| async move {
            let link = loop {
                let revived = session.revived.notified();
                if let Some(link) = worker.state.live_link(&session) {
                    break link;
                }
                session.demand(worker.index);
                revived.await;
            };
            let far = far.carry(Crossing::default());
            let opened = link.open(open, far.outlet()).unwrap();
            far.join(opened);
        };
        spawn_local(async move {
            other.task(begin).await.unwrap();
            near.join(inlet);
        });
        outlet
    }

    fn flow(
        &self,
        _: &Rc<Worker>,
        _: &NodeId,
        _: Hop,
        _: HopStream,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>> {
        inlet.close(ResetCode::Unknown);
        None
    }
}

/// Reads so many bytes of each stream, answers with one, and reads nothing more.
#[derive(Debug)]
struct Reads(usize);

impl ServesHops for Reads {
    fn stream(
        &self,
        _: &Rc<Worker>,
        _: &NodeId,
        _: Hop,
        _: HopStream,
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet> {
        let (outlet, mut stream) = accept_duplex(inlet, Visitor::Unknown, &Rc::default(), None);
        let mut left = self.0;
        spawn_local(async move {
            let mut buf = vec![0; 256 << 10];
            while left > 0 {
                let most = left.min(buf.len());
                left -= stream.read(&mut buf[..most]).await.unwrap();
            }
            stream.write_all(b"x").await.unwrap();
            stream.flush().await.unwrap();
            std::future::pending::<()>().await;
        });
        outlet
    }

    fn flow(
        &self,
        _: &Rc<Worker>,
        _: &NodeId,
        _: Hop,
        _: HopStream,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>> {
        inlet.close(ResetCode::Unknown);
        None
    }
}

/// The visitor's node, the node between, and a node that reads.
struct Path {
    nodes: [TestNode; 3],
}

impl Path {
    async fn start(listen: &[&str], crosses: bool, reads: usize, window_max: usize) -> Self {
        let ground = Ground::new();
        let common = common_with(window_max);
        let settings = |name: &str| ground.settings(listen, &format!("node:{name}"));
        let joins = Arc::new(Joins { links: OnceLock::new(), to: node_id("c"), crosses });
        let workers = if crosses { 2 } else { 1 };
        let reads = Arc::new(Reads(reads));
        let a = start_with("a", &settings("a"), (1, &common), Arc::clone(&reads) as _).await;
        let b = start_with("b", &settings("b"), (workers, &common), Arc::clone(&joins) as _).await;
        let c = start_with("c", &settings("c"), (1, &common), reads).await;
        joins.links.set(b.links.clone()).unwrap();
        introduce(&[&a, &b, &c]);
        a.is_linked_to(&[&b]).await;
        b.is_linked_to(&[&c]).await;
        Self { nodes: [a, b, c] }
    }

    /// Sends `bytes` through the node between, and waits for the answer. Then sends more until
    /// nothing moves for a while. Returns the time of the first part, and the bytes of the second.
    async fn send(&self, bytes: usize, stalls: bool) -> (Duration, usize) {
        let [a, b, _] = &self.nodes;
        let session = a.links.session(&b.id).unwrap();
        let talk = move |worker: Rc<Worker>| async move {
            let link = worker.state.live_link(&session).unwrap();
            let stream = open_duplex(&link, open(Target::Hop(hop())), &Rc::default(), None);
            let mut stream = stream.unwrap();
            let piece = vec![7; 128 << 10];
            let begun = Instant::now();
            let mut sent = 0;
            while sent < bytes {
                sent += stream.write(&piece[..piece.len().min(bytes - sent)]).await.unwrap();
            }
            stream.flush().await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), b'x');
            let took = begun.elapsed();
            let mut more = 0;
            while stalls
                && let Ok(written) = timeout(Duration::from_millis(700), stream.write(&piece)).await
            {
                more += written.unwrap();
            }
            (took, more)
        };
        timeout(SOON * 3, a.workers.handles()[0].task(talk)).await.unwrap().unwrap()
    }

    async fn stop(self) {
        for node in self.nodes {
            node.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_crosses_a_node_and_a_reader_that_stops_bounds_what_the_nodes_hold() {
    let all = [
        (&BOTH[..1], false),
        (&BOTH[..1], true),
        (&BOTH[1..], true),
        (&PLAIN[..], false),
        (&PLAIN[..], true),
    ];
    for (listen, crosses) in all {
        let bytes = 32 << 20;
        let path = Path::start(listen, crosses, bytes, 16).await;
        let (took, held) = path.send(bytes, true).await;
        println!("{listen:?} crosses: {crosses}: {took:?}, {} KiB are held", held >> 10);
        // The windows of two links, and what the two ends have in hand.
        assert!(held <= 10 << 20, "{held}");
        path.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_crosses_a_node_as_pages_and_arrives_as_it_was_sent() {
    let ground = Ground::new();
    let settings = |name: &str| ground.settings(&PLAIN, &format!("node:{name}"));
    for crosses in [false, true] {
        let joins = Arc::new(Joins { links: OnceLock::new(), to: node_id("c"), crosses });
        let (workers, common) = (if crosses { 2 } else { 1 }, common_with(16));
        let a = ground.start("a", &PLAIN, 1).await;
        let b = start_with("b", &settings("b"), (workers, &common), Arc::clone(&joins) as _).await;
        let c = ground.start("c", &PLAIN, 1).await;
        joins.links.set(b.links.clone()).unwrap();
        introduce(&[&a, &b, &c]);
        a.is_linked_to(&[&b]).await;
        b.is_linked_to(&[&c]).await;
        let bytes: Vec<u8> = (0..8_000_000_u32).map(|n| (n % 251).to_le_bytes()[0]).collect();
        let back = converse(&a, 0, &b, bytes.clone()).await.unwrap();
        assert!(back == bytes, "crosses: {crosses}");
        for node in [a, b, c] {
            node.stop().await;
        }
    }
}

//! A stream of another node that waits for its verdict.

use std::collections::VecDeque;
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cluster::names::{Generation, NodeEpoch, NodeId};
use cluster::node::{Located, OpenVerdict, PeerOpen, Subject};
use config::{ServerFlags, Text};
use link::{Link, Owner, Settings, State};
use node::session::{Session, Worker};
use ops::Serving as _;
use proto::control::{ControlMessage, Register, ServiceSpec, ServiceTerms};
use proto::greeting::Features;
use proto::{Hop, LinkConfig, NamePattern, Open, Priority, ResetCode, Side, Unlimited};
use relay::Gate;
use tokio::sync::Notify;
use tokio::time::timeout;
use transport::{Inlet, Outlet};

use super::serve::{HopVisitor, Hops};
use super::{ClusterPlaces, PlaceAnswer};
use crate::registry::tests::{session, sources};
use crate::{Server, directory};

/// The serial of the link of the client.
const LINK: u64 = 7;

/// A cluster that gives a verdict when it is notified.
#[derive(Debug, Default)]
struct Judge(Notify);

impl ClusterPlaces for Judge {
    fn find(&self, _: Subject) -> PlaceAnswer<'_, Located> {
        Box::pin(pending())
    }

    fn refused(&self, _: Subject, _: Generation) {}

    fn judge(&self, _: PeerOpen) -> PlaceAnswer<'_, OpenVerdict> {
        Box::pin(async {
            self.0.notified().await;
            OpenVerdict::Serve
        })
    }

    fn has_claim(&self, _: &str, _: u64) -> bool {
        true
    }

    fn claimed(&self, _: &str, _: u64) -> Option<(directory::Key, directory::Generation)> {
        None
    }

    fn epoch(&self) -> Option<NodeEpoch> {
        None
    }

    fn others(&self) -> Vec<NodeId> {
        Vec::new()
    }

    fn awaits(&self, _: &str, _: u64) -> bool {
        false
    }

    fn has_handed_over(&self) -> bool {
        false
    }

    fn edition(&self) -> u64 {
        1
    }
}

/// The owner of the link of the client, which does nothing.
#[derive(Debug)]
struct Nobody;

impl Owner for Nobody {
    fn accept(&self, _: &Link, _: Open, _: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        unreachable!("the link has no carrier")
    }

    fn message(&self, _: &Link, _: ControlMessage) {}

    fn changed(&self, _: &Link, _: State) {}
}

/// The stream of the other node.
#[derive(Debug)]
struct OfNode;

impl Inlet for OfNode {
    fn room(&self) -> usize {
        0
    }

    fn send(&self, _: &mut BytesMut) {}

    fn finish(&self) {}

    fn reset(&self, _: ResetCode) {}

    fn stop(&self, _: ResetCode) {}

    fn consumed(&self, _: usize) {}
}

/// Gives the session a live link of this worker.
fn add_link(worker: &Rc<Worker>, session: &Arc<Session>) {
    let settings = Settings {
        side: Side::Server,
        config: LinkConfig::default(),
        budget: Rc::new(Unlimited),
        serial: LINK,
        features: Features::OURS,
    };
    let link = Link::new(settings, Rc::new(Nobody));
    worker.state.add_link(worker.index, session, &link);
    worker.state.set_live(worker.index, session, LINK, true);
}

/// Ends the link, as its owner does.
fn end_link(worker: &Rc<Worker>, session: &Session) {
    worker.state.link(session, LINK).unwrap().close();
    worker.state.remove_link(worker.index, session, LINK);
}

/// The outlets of the streams to the client.
fn outlets(worker: &Rc<Worker>, session: &Session) -> Vec<String> {
    let link = worker.state.link(session, LINK).unwrap();
    let streams = link.streams(0..link.stream_slots());
    streams.into_iter().map(|(_, outlet)| format!("{:?}", outlet.unwrap())).collect()
}

/// The client has the private service `web`, which `laptop` may visit.
fn publish(server: &Server, session: &Arc<Session>) {
    let visitors: Arc<[NamePattern]> = Arc::from(["laptop".parse().unwrap()]);
    let terms = ServiceTerms { private: Some(visitors), ..ServiceTerms::default() };
    let service = ServiceSpec { name: "web".parse().unwrap(), public: Vec::new(), terms };
    let (services, leaving, standby) = (vec![service], false, false);
    let register = Register { generation: 1, services, leaving, standby };
    server.registry().shared().private.publish(session, &Gate::new(None), &register);
}

/// Opens a stream to the service of the client, as another node does, with a first byte. `visitor`:
/// a client that visits the private service.
fn open(worker: &Rc<Worker>, hops: &Arc<Hops>, visitor: Option<&str>) {
    let hop = Hop {
        client: "home".parse().unwrap(),
        instance: u64::from_be_bytes([1; 8]),
        generation: 1,
        service: "web".parse().unwrap(),
        claim: 0,
        mark: None,
        visitor: visitor.map(|name| name.parse().unwrap()),
    };
    let visitor = HopVisitor { address: None, priority: Priority::Normal, fields: None };
    let outlet = hops.stream(worker, hop, visitor, Box::new(OfNode));
    assert_eq!(outlet.deliver(&mut VecDeque::from([Bytes::from_static(b"a")])), 0);
}

async fn start() -> Server {
    let text = "listen: tcp://127.0.0.1:0\nworkers: 2\npublic_bind: 127.0.0.1\n\
                clients: [{ name: home, token: q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi, \
                allow: { tcp: 1024-65535 } }]\n";
    let text = Text { name: "server.yaml", text };
    let config = config::load_server(Some(text), &ServerFlags::default(), &sources()).unwrap();
    Server::start(config.config, None).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_waited_is_joined_where_its_worker_has_a_link_of_the_client() {
    let is_joined = |outlet: &str| outlet.contains("of a bridge");
    for (at, visitor) in [(0, None), (1, None), (0, Some("laptop")), (1, Some("laptop"))] {
        let server = start().await;
        let session = session(server.registry(), "home");
        publish(&server, &session);
        let judge = Arc::new(Judge::default());
        let hops = Arc::new(Hops::new(server.registry(), Arc::<Judge>::clone(&judge) as _));
        let handles = server.registry().handles();
        let of_client = Arc::clone(&session);
        handles[at].call(move |worker| add_link(worker, &of_client)).await.unwrap();
        handles[0].call(move |worker| open(worker, &hops, visitor)).await.unwrap();
        judge.0.notify_one();
        let joined = async {
            loop {
                let of_client = Arc::clone(&session);
                let all = handles[at].call(move |worker| outlets(worker, &of_client)).await;
                if let Some(outlet) = all.unwrap().pop() {
                    break outlet;
                }
            }
        };
        let outlet = timeout(Duration::from_secs(10), joined).await.unwrap();
        assert_eq!(is_joined(&outlet), at == 0, "{visitor:?}, link of worker {at}: {outlet}");
        handles[at].call(move |worker| end_link(worker, &session)).await.unwrap();
        server.close().await;
    }
}

//! Private services of clients that have their links with other nodes of the cluster.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use net::pages::Pages;
use node::session::Session;
use proto::greeting::Name;
use proto::{Hop, Open, Priority, ResetCode, Target};
use tokio::time::sleep;
use transport::Outlet;

/// The pause between two questions to the cluster about one client. The node keeps its answers, so
/// most questions cost the engine nothing.
const AGAIN: Duration = Duration::from_millis(250);

/// The answer about a client.
pub(crate) type Seeking<'a> = Pin<Box<dyn Future<Output = Option<FarWay>> + Send + 'a>>;

/// Finds the nodes with which a client has its links.
pub(crate) trait FindsAbroad: fmt::Debug + Send + Sync {
    /// The way to a client. `None`: no other node has it, or the cluster does not answer.
    fn find(&self, client: &Name) -> Seeking<'_>;

    /// A node has refused a stream: the client is not there.
    fn moved(&self, client: &Name, generation: u64);
}

/// The way to a client at other nodes.
#[derive(Clone, Debug)]
pub(crate) struct FarWay {
    /// The sessions of the links to its nodes, the preferred node first.
    pub(crate) sessions: Vec<Arc<Session>>,
    /// The process of the client that has its services.
    pub(crate) instance: u64,
    /// The number of the record by which the process was found.
    pub(crate) generation: u64,
}

/// A client that was found at another node.
#[derive(Debug)]
pub(crate) struct FoundAbroad {
    pub(super) session: Arc<Session>,
    instance: u64,
    generation: u64,
}

impl FoundAbroad {
    /// The request for the node that has the client.
    pub(super) fn open(
        &self,
        (visitor, address): (&str, Option<SocketAddr>),
        client: &Name,
        service: &Name,
    ) -> Option<Open> {
        let hop = Hop {
            client: client.clone(),
            instance: self.instance,
            generation: self.generation,
            service: service.clone(),
            claim: 0,
            mark: None,
            visitor: Some(Name::new(visitor).ok()?),
        };
        let (target, priority) = (Target::Hop(hop), Priority::Normal);
        Some(Open { target, visitor: address, priority, fields: None })
    }

    /// Watches a stream to the node for the answer that the client is not there.
    pub(super) fn watch(
        &self,
        abroad: Arc<dyn FindsAbroad>,
        client: &Name,
        outlet: Rc<dyn Outlet>,
    ) -> Rc<dyn Outlet> {
        let (client, generation) = (client.clone(), self.generation);
        Rc::new(WatchedHop { outlet, abroad, client, generation })
    }
}

/// Looks for a client at other nodes until a node with a live link to this node has it. Returns the
/// node, and a worker with the link. Does not complete while there is none.
pub(super) async fn seek(
    abroad: &Arc<dyn FindsAbroad>,
    client: &Name,
    from: usize,
) -> (FoundAbroad, usize) {
    loop {
        if let Some(FarWay { sessions, instance, generation }) = abroad.find(client).await {
            let live = |session: Arc<Session>| Some((session.live_worker(from)?, session));
            if let Some((worker, session)) = sessions.into_iter().find_map(live) {
                return (FoundAbroad { session, instance, generation }, worker);
            }
        }
        sleep(AGAIN).await;
    }
}

/// A stream to another node, which may say that the client is not there any more. The visitor
/// learns that the client is away, and tries again.
#[derive(Debug)]
struct WatchedHop {
    outlet: Rc<dyn Outlet>,
    abroad: Arc<dyn FindsAbroad>,
    client: Name,
    generation: u64,
}

impl WatchedHop {
    fn note(&self, code: ResetCode) -> ResetCode {
        if code != ResetCode::Moved {
            return code;
        }
        self.abroad.moved(&self.client, self.generation);
        ResetCode::Unreachable
    }
}

impl Outlet for WatchedHop {
    fn deliver(&self, pieces: &mut VecDeque<Bytes>) -> usize {
        self.outlet.deliver(pieces)
    }

    fn finish(&self) {
        self.outlet.finish();
    }

    fn reset(&self, code: ResetCode) {
        self.outlet.reset(self.note(code));
    }

    fn stop(&self, code: ResetCode) {
        self.outlet.stop(self.note(code));
    }

    fn room(&self) {
        self.outlet.room();
    }

    fn silent(&self) {
        self.outlet.silent();
    }

    fn takes_pages(&self) -> bool {
        self.outlet.takes_pages()
    }

    fn deliver_pages(&self, pages: Pages) -> usize {
        self.outlet.deliver_pages(pages)
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.outlet.peer()
    }

    fn counted_in(&self) -> *const () {
        self.outlet.counted_in()
    }
}

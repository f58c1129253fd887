//! The node that has the client: streams and flows of other nodes are joined with streams and flows
//! over the links of the client.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cluster::names::{ClientName, Generation, Instance};
use cluster::node::{OpenVerdict, PeerOpen, Subject};
use link::Link;
use node::session::{HOLD, Served, Session, Worker};
use proto::{Hop, Open, Priority, ResetCode, Target, VisitorFields};
use relay::{Carried, Crossing, Permit, bridge, bridge_flow, flow_span, refuse_stream, span};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, sleep_until};
use transport::{Connector as _, FlowConnector as _, FlowInlet, FlowOutlet, Inlet, Outlet};

use super::ClusterPlaces;
use super::judged::Judged;
use crate::registry::Registry;

/// The most streams and flows of other nodes that wait for a verdict or for a link of their client.
/// A waiting stream costs a task and up to 16 KiB of first bytes.
const WAITING_MAX: u32 = 4096;

/// The poll interval for a client of a former process of this node, which comes to this process
/// within milliseconds.
const COMES: Duration = Duration::from_millis(20);

/// The poll interval for a live link of a client.
const LOOK: Duration = Duration::from_millis(100);

/// The visitor of a hop, and what its stream needs.
#[derive(Clone, Debug)]
pub(crate) struct HopVisitor {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) priority: Priority,
    pub(crate) fields: Option<VisitorFields>,
}

/// Serves the hops of other nodes.
#[derive(Debug)]
pub(crate) struct Hops {
    pub(super) registry: Arc<Registry>,
    pub(super) places: Arc<dyn ClusterPlaces>,
    pub(super) waiting: Arc<AtomicU32>,
    /// The carriers of clients that reached other nodes.
    pub(super) carriers: Arc<AtomicU32>,
}

/// A slot among those that wait.
pub(super) struct HopSlot(Arc<AtomicU32>);

impl HopSlot {
    pub(super) fn new(all: &Arc<AtomicU32>) -> Option<Self> {
        let place = Self(Arc::clone(all));
        (all.fetch_add(1, Ordering::Relaxed) < WAITING_MAX).then_some(place)
    }
}

impl Drop for HopSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a stream needs at the worker that has a link of its client.
struct ToClient {
    session: Arc<Session>,
    hop: Hop,
    visitor: HopVisitor,
    permit: Permit,
}

impl Hops {
    pub(crate) fn new(registry: &Arc<Registry>, places: Arc<dyn ClusterPlaces>) -> Self {
        let (waiting, carriers) = Default::default();
        Self { registry: Arc::clone(registry), places, waiting, carriers }
    }

    /// Joins a stream of another node with a stream to the client.
    pub(crate) fn stream(
        self: &Arc<Self>,
        worker: &Rc<Worker>,
        hop: Hop,
        visitor: HopVisitor,
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet> {
        if let Some(guest) = hop.visitor.clone() {
            return self.visit(worker, (hop, &guest), visitor, inlet);
        }
        let Some(permit) = self.admit(&hop) else {
            return refuse_stream(&*inlet, None, ResetCode::Limit);
        };
        let here = self.is_judged(worker, &hop).then(|| self.here(worker, &hop)).flatten();
        if let Some((session, link)) = here {
            let to = ToClient { session, hop, visitor, permit };
            return to.stream(worker, &link, inlet);
        }
        let Some(place) = HopSlot::new(&self.waiting) else {
            return refuse_stream(&*inlet, None, ResetCode::Limit);
        };
        let (near, far) = span();
        // The far end counts the bytes, because it knows the service.
        let near = near.carry(Crossing::default().of_visitor(visitor.address));
        let outlet = near.outlet();
        let (own, worker) = (Arc::clone(self), Rc::clone(worker));
        spawn_local(async move {
            let found = own.find(&worker, &hop, || near.is_reset()).await;
            drop(place);
            // As for a stream that did not wait: its pages pass between links of one worker.
            let here = found.is_ok().then(|| own.here(&worker, &hop)).flatten();
            if let Some((session, link)) = here {
                let to = ToClient { session, hop, visitor, permit };
                return to.join_here(&worker, &link, near, inlet);
            }
            let outcome = match found {
                Ok((session, at)) => {
                    let to = ToClient { session, hop, visitor, permit };
                    let job = move |worker: &Rc<Worker>| to.join(worker, far);
                    match worker.peers.get(at) {
                        // A worker that has stopped has no links.
                        Some(handle) => handle.call(job).await.unwrap_or(Err(ResetCode::Shutdown)),
                        None => Err(ResetCode::Shutdown),
                    }
                }
                Err(code) => Err(code),
            };
            match outcome {
                Ok(()) => near.join(inlet),
                Err(code) => near.refuse(&*inlet, code),
            }
        });
        outlet
    }

    /// Joins a flow of another node with a flow to the client. `None`: the flow is refused.
    pub(crate) fn flow(
        self: &Arc<Self>,
        worker: &Rc<Worker>,
        hop: Hop,
        visitor: HopVisitor,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>> {
        let refuse = |inlet: Box<dyn FlowInlet>, code| {
            inlet.close(code);
            None
        };
        // A private service is visited by streams alone.
        if hop.visitor.is_some() {
            return refuse(inlet, ResetCode::Unknown);
        }
        let Some(permit) = self.admit(&hop) else { return refuse(inlet, ResetCode::Limit) };
        let here = self.is_judged(worker, &hop).then(|| self.here(worker, &hop)).flatten();
        if let Some((session, link)) = here {
            let to = ToClient { session, hop, visitor, permit };
            let (open, link, permits) = to.into_open(worker, link);
            return match bridge_flow(inlet, &link, open, permits) {
                Ok(outlet) => Some(outlet),
                Err((inlet, error)) => refuse(inlet, relay::open_error_code(error)),
            };
        }
        let Some(place) = HopSlot::new(&self.waiting) else {
            return refuse(inlet, ResetCode::Limit);
        };
        let (near, far) = flow_span();
        let outlet = near.outlet(visitor.address);
        let (own, worker) = (Arc::clone(self), Rc::clone(worker));
        spawn_local(async move {
            let found = own.find(&worker, &hop, || false).await;
            drop(place);
            let outcome = match found {
                Ok((session, at)) => {
                    let to = ToClient { session, hop, visitor, permit };
                    let job = move |worker: &Rc<Worker>| to.join_flow(worker, far);
                    match worker.peers.get(at) {
                        Some(handle) => handle.call(job).await.unwrap_or(Err(ResetCode::Shutdown)),
                        None => Err(ResetCode::Shutdown),
                    }
                }
                Err(code) => Err(code),
            };
            match outcome {
                Ok(()) => near.join(inlet, Vec::new()),
                Err(code) => inlet.close(code),
            }
        });
        Some(outlet)
    }

    /// A place in the limits of the client, which its streams of all nodes pass.
    fn admit(&self, hop: &Hop) -> Option<Permit> {
        // A client without an entry has no links, so its stream is refused later.
        let client = self.registry.shared().clients.find(hop.client.as_str());
        client.map_or_else(|| relay::Gate::new(None).admit(), |client| client.gate.admit())
    }

    /// Whether the stream is served without a question.
    fn is_judged(&self, worker: &Rc<Worker>, hop: &Hop) -> bool {
        worker.state.of::<Judged>().covers(hop, self.places.edition())
    }

    /// A live link of the client on this worker.
    fn here(&self, worker: &Rc<Worker>, hop: &Hop) -> Option<(Arc<Session>, Link)> {
        let sessions = self.registry.processes_of(hop.client.as_str(), Instance(hop.instance));
        sessions.into_iter().find_map(|session| {
            let link = worker.state.visitor_link(worker.index, &session)?;
            Some((session, link))
        })
    }

    /// Asks for a verdict, and waits for a worker with a live link of the client.
    async fn find(
        &self,
        worker: &Rc<Worker>,
        hop: &Hop,
        is_gone: impl Fn() -> bool,
    ) -> Result<(Arc<Session>, usize), ResetCode> {
        let (edition, asked) = (self.places.edition(), Instant::now());
        if !worker.state.of::<Judged>().covers(hop, edition) {
            self.arrived(hop, &is_gone).await;
            self.judge(hop).await?;
            worker.state.of::<Judged>().keep(hop, (edition, asked));
        }
        let until = Instant::now() + HOLD;
        loop {
            let sessions = self.registry.processes_of(hop.client.as_str(), Instance(hop.instance));
            // The last link of the process has ended: the client comes back here or elsewhere.
            let first = sessions.first().ok_or(ResetCode::Moved)?;
            let live = sessions
                .iter()
                .find_map(|one| Some((Arc::clone(one), one.live_worker(worker.index)?)));
            if let Some(live) = live {
                return Ok(live);
            }
            if self.places.has_handed_over() {
                // The client has its links with the next process, and the other node soon too.
                return Err(ResetCode::Moved);
            }
            tokio::select! {
                () = first.revived.notified() => {}
                () = sleep_until(until) => return Err(ResetCode::Shutdown),
                () = sleep(LOOK) => {}
            }
            if is_gone() {
                return Err(ResetCode::Aborted);
            }
        }
    }

    /// Waits for a client of a former process of this node, which claims its services here soon.
    async fn arrived(&self, hop: &Hop, is_gone: impl Fn() -> bool) {
        let client = hop.client.as_str();
        let until = Instant::now() + HOLD;
        while self.places.awaits(client, hop.claim) && Instant::now() < until && !is_gone() {
            sleep(COMES).await;
        }
    }

    /// Asks whether this node serves the client.
    pub(super) async fn judge(&self, hop: &Hop) -> Result<(), ResetCode> {
        let client = ClientName::new(hop.client.as_str()).map_err(|_| ResetCode::Unknown)?;
        // The visitor was admitted under terms that are not in force any more.
        if hop.claim != 0 && !self.places.has_claim(client.as_str(), hop.claim) {
            return Err(ResetCode::Moved);
        }
        let open = PeerOpen {
            client: client.clone(),
            instance: Instance(hop.instance),
            generation: Generation(hop.generation),
        };
        match self.places.judge(open.clone()).await {
            OpenVerdict::Serve => return Ok(()),
            OpenVerdict::Moved(..) | OpenVerdict::Gone => return Err(ResetCode::Moved),
            OpenVerdict::Ask => {}
        }
        // The answer to the question is a part of the second verdict.
        self.places.find(Subject::Client(client)).await;
        match self.places.judge(open).await {
            OpenVerdict::Serve => Ok(()),
            OpenVerdict::Moved(..) | OpenVerdict::Gone | OpenVerdict::Ask => Err(ResetCode::Moved),
        }
    }
}

impl ToClient {
    /// The OPEN towards the client, the link for it, and the permits of the stream.
    fn into_open(self, worker: &Rc<Worker>, link: Link) -> (Open, Link, Vec<Permit>) {
        let Self { session, hop, visitor, permit } = self;
        let HopVisitor { address, priority, fields } = visitor;
        let service = hop.service.as_str().to_owned();
        let target = match hop.mark {
            Some(mark) => Target::Marked { service, mark },
            None => Target::Service(service),
        };
        let link = worker.state.link_of_class(&session, link, priority);
        (Open { target, visitor: address, priority, fields }, link, vec![permit])
    }

    /// As [`Self::into_open`], with the account of the stream.
    fn into_crossing(self, worker: &Rc<Worker>, link: &Link) -> (Open, Link, Crossing) {
        let address = self.visitor.address;
        let stats = worker.state.of::<Served>().stats_of(&self.session, &self.hop.service);
        let (open, link, permits) = self.into_open(worker, link.clone());
        (open, link, Crossing::new(stats, permits).of_visitor(address))
    }

    /// Joins the stream with a stream over a link of this worker.
    fn stream(self, worker: &Rc<Worker>, link: &Link, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        let (open, link, crossing) = self.into_crossing(worker, link);
        match bridge(inlet, &link, open, crossing) {
            Ok(outlet) => outlet,
            Err((inlet, error)) => refuse_stream(&*inlet, None, relay::open_error_code(error)),
        }
    }

    /// As [`Self::stream`], for a stream that waited for its verdict.
    fn join_here(self, worker: &Rc<Worker>, link: &Link, near: Carried, inlet: Box<dyn Inlet>) {
        let (open, link, crossing) = self.into_crossing(worker, link);
        near.bridge(inlet, &link, open, crossing);
    }

    /// As [`Self::stream`], for a stream of another worker.
    fn join(self, worker: &Rc<Worker>, far: relay::Span) -> Result<(), ResetCode> {
        let link = worker.state.live_link(&self.session).ok_or(ResetCode::Shutdown)?;
        let address = self.visitor.address;
        let stats = worker.state.of::<Served>().stats_of(&self.session, &self.hop.service);
        let (open, link, permits) = self.into_open(worker, link);
        // The bytes are counted from the client's side, so the directions are swapped.
        let far = far.carry(Crossing::far(stats, permits).of_visitor(address));
        let opened = link.open(open, far.outlet());
        far.join(opened.map_err(relay::open_error_code)?);
        Ok(())
    }

    /// As [`Self::join`], for a flow.
    fn join_flow(self, worker: &Rc<Worker>, far: relay::FlowSpan) -> Result<(), ResetCode> {
        let link = worker.state.live_link(&self.session).ok_or(ResetCode::Shutdown)?;
        let outlet = far.outlet(self.visitor.address);
        let (open, link, permits) = self.into_open(worker, link);
        let inlet = link.open_flow(open, outlet).map_err(relay::open_error_code)?;
        far.join(inlet, permits);
        Ok(())
    }
}

//! A door on one worker, and its undecided connections.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use node::accept::{self, AcceptRules, ArrivingVisitor, NotAccepted};
use node::names::Services;
use node::pending::PendingSet;
use node::session::Worker;
use node::{descriptors, memory};
use proto::VisitorFields;
use relay::shares::Kind;
use relay::{Held, Holder, Socket};
use tokio::time::Instant;

use super::doors::Doors;

/// The maximum number of undecided connections of one door on one worker.
const UNDECIDED: usize = 4096;

/// The memory that an undecided connection costs this process: its socket, its task and the parser
/// state.
pub(super) const UNDECIDED_STATE: u64 = 4 << 10;

/// The maximum number of bytes of an undecided connection that the kernel buffers for a peek.
const UNDECIDED_COST: u64 = 16 << 10;

/// A door on one worker.
pub(super) struct Port {
    pub(super) worker: Rc<Worker>,
    pub(super) doors: Arc<Doors>,
    pub(super) undecided: PendingSet,
    pub(super) most: usize,
    /// The holder of the descriptors of the door's undecided connections, on all workers.
    pub(super) holder: Arc<Holder>,
    /// The URL of the door, if connections of trusted reverse proxies begin with a PROXY protocol
    /// header.
    pub(super) announced_at: Option<String>,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port on worker {}", self.worker.index)
    }
}

impl Port {
    pub(super) fn new(
        worker: &Rc<Worker>,
        doors: Arc<Doors>,
        (holder, announced_at): (Arc<Holder>, Option<String>),
    ) -> Self {
        let most = memory::strangers(&worker.state.budget, worker.peers.len(), UNDECIDED_COST);
        let (worker, most) = (Rc::clone(worker), most.min(UNDECIDED));
        Self { worker, doors, undecided: PendingSet::default(), most, holder, announced_at }
    }

    /// Takes an accepted connection through the stages of [`node::accept`], and decides its
    /// destination. When too many connections are undecided, one is closed.
    pub(super) fn take<F: Future<Output = ()>>(
        &self,
        socket: Socket,
        peer: Option<SocketAddr>,
        decide: impl FnOnce(Undecided) -> F + 'static,
    ) {
        let mut visitor = ArrivingVisitor::new(socket, peer);
        if let Err(why) = accept::arrive(self, &mut visitor) {
            return refuse(visitor, why, "");
        }
        let source = peer.filter(|_| !self.doors.trusts(peer)).map(|peer| peer.ip());
        let door = self.announced_at.clone().filter(|_| visitor.waits());
        let (worker, doors) = (Rc::clone(&self.worker), Arc::clone(&self.doors));
        self.undecided.run(source, async move |mut place| {
            if let Err(why) = accept::settle(&mut visitor).await {
                return refuse(visitor, why, door.as_deref().unwrap_or_default());
            }
            if visitor.announced.is_some()
                && let Some(known) = visitor.peer.filter(|_| !doors.trusts(visitor.peer))
            {
                place.belongs_to(known.ip());
            }
            let ArrivingVisitor { socket, peer, announced, held, .. } = visitor;
            let fields = announced.and_then(|header| VisitorFields::new(&header.fields));
            let until = None;
            decide(Undecided { worker, doors, socket, peer, fields, until, _held: held }).await;
            drop(place);
        });
        if self.undecided.count() > self.most {
            self.undecided.abort_one();
        }
    }
}

/// The seats are those of the door's undecided connections. When these have used up their share of
/// the descriptors, a connection of this worker is evicted for the new connection; a worker with
/// fewer than two accepts the new connection beyond the share. The new connection is refused if its
/// source has used up its share of the descriptors, or if the budget is exhausted.
impl AcceptRules for Port {
    fn are_announced(&self, peer: Option<SocketAddr>) -> bool {
        self.announced_at.is_some() && self.doors.trusts(peer)
    }

    fn holder<T>(&self, ask: impl FnOnce(Option<&Arc<Holder>>) -> T) -> T {
        ask(Some(&self.holder))
    }

    fn gives_way(&self, holder: &Holder) -> bool {
        !holder.has_room() && self.undecided.gives_way()
    }

    fn hold(&self, peer: Option<SocketAddr>) -> Result<Option<Held>, NotAccepted> {
        let held = self.worker.state.accounts.draw(UNDECIDED_STATE, peer);
        held.map(Some).ok_or(NotAccepted::Memory)
    }
}

/// Closes a connection that a stage has refused. `door`: the URL of the door.
fn refuse(visitor: ArrivingVisitor, why: NotAccepted, door: &str) {
    match why {
        NotAccepted::Seat => {
            tracing::debug!(
                visitor = ?visitor.peer,
                "no descriptor is left for a connection at a door"
            );
        }
        NotAccepted::Header(error) => error.complain(visitor.peer, &door),
        NotAccepted::Memory | NotAccepted::Full(_) => {}
    }
    relay::drop_socket(visitor.socket);
}

/// Moves the seat of a visitor to the client of these services, for a visitor whose requests go to
/// them. False: the client has used up its share of the descriptors; the refusal is not counted,
/// because no service of the client was requested.
pub(super) fn takes(services: &Services, socket: &mut Socket) -> bool {
    let in_force = services.first().map(|first| first.entrance.in_force());
    in_force
        .as_ref()
        .and_then(|in_force| in_force.gate().holder())
        .is_none_or(|holder| socket.move_to(holder))
}

/// The holder of the descriptors of decided connections that go to no client or to several clients:
/// those to default targets, and HTTP/2 without TLS.
pub(super) fn settled_holder() -> &'static Arc<Holder> {
    static HOLDER: OnceLock<Arc<Holder>> = OnceLock::new();
    HOLDER.get_or_init(|| Holder::new(descriptors::table(), Kind::Unclaimed))
}

/// A connection whose destination is not decided.
pub(super) struct Undecided {
    pub(super) worker: Rc<Worker>,
    pub(super) doors: Arc<Doors>,
    pub(super) socket: Socket,
    pub(super) peer: Option<SocketAddr>,
    /// The report of a load balancer about the visitor.
    pub(super) fields: Option<VisitorFields>,
    /// The time until which the visitor may be held, if it was held already.
    pub(super) until: Option<Instant>,
    pub(super) _held: Option<Held>,
}

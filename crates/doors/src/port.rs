//! A door on one worker, and its undecided connections.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use node::entrance::Unannounced;
use node::names::Services;
use node::pending::PendingSet;
use node::session::Worker;
use node::{descriptors, entrance, memory};
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

    /// Takes an accepted connection, and decides its destination, after the header of a load
    /// balancer if there is one. When too many connections are undecided, one is closed.
    pub(super) fn take<F: Future<Output = ()>>(
        &self,
        socket: Socket,
        peer: Option<SocketAddr>,
        decide: impl FnOnce(Undecided) -> F + 'static,
    ) {
        let Some(mut visitor) = self.visitor(socket, peer) else { return };
        let is_trusted = self.doors.trusts(peer);
        let source = peer.filter(|_| !is_trusted).map(|peer| peer.ip());
        let door = self.announced_at.clone().filter(|_| is_trusted);
        self.undecided.run(source, async move |mut place| {
            if let Some(door) = door {
                match entrance::announced(&mut visitor.socket, peer).await {
                    Ok((header, known)) => {
                        (visitor.peer, visitor.fields) =
                            (known, VisitorFields::new(&header.fields));
                    }
                    Err(Unannounced::Header(error)) => {
                        error.complain(peer, &door);
                        return relay::drop_socket(visitor.socket);
                    }
                    Err(Unannounced::Full(_)) => return relay::drop_socket(visitor.socket),
                }
                if let Some(known) = visitor.peer.filter(|_| !visitor.doors.trusts(visitor.peer)) {
                    place.belongs_to(known.ip());
                }
            }
            decide(visitor).await;
            drop(place);
        });
        if self.undecided.count() > self.most {
            self.undecided.abort_one();
        }
    }

    /// An accepted connection, which is charged to the budget and has a seat among the undecided
    /// connections of the door. When these have used up their share of the descriptors, a
    /// connection of this worker is evicted for the new connection; a worker with fewer than two
    /// accepts the new connection beyond the share. The new connection is refused if its source has
    /// used up its share of the descriptors, or if the budget is exhausted.
    pub(super) fn visitor(
        &self,
        mut socket: Socket,
        peer: Option<SocketAddr>,
    ) -> Option<Undecided> {
        let leaves = !self.holder.has_room() && self.undecided.gives_way();
        let seat = if leaves {
            self.holder.seat(&socket, descriptors::source(peer))
        } else {
            entrance::seat(&self.holder, &socket, peer)
        };
        let Some(seat) = seat else {
            tracing::debug!(visitor = ?peer, "no descriptor is left for a connection at a door");
            relay::drop_socket(socket);
            return None;
        };
        socket.sit(seat);
        let (worker, doors) = (Rc::clone(&self.worker), Arc::clone(&self.doors));
        let Some(_held) = worker.state.accounts.draw(UNDECIDED_STATE, peer) else {
            relay::drop_socket(socket);
            return None;
        };
        Some(Undecided { worker, doors, socket, peer, fields: None, until: None, _held })
    }
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
    pub(super) _held: Held,
}

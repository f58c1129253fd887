//! The connections of a listener that have not logged in. When descriptors run short, or too many
//! connections wait for their log-in, the oldest connection of the source with the most is closed.
//! A client with a token logs in quickly, and clients without a token could otherwise hold all
//! descriptors.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use link::Lease;
use link::server::Backlog;
use logging::RepeatLimit;
use proto::Budget as _;
use relay::Room;
use transport::{Incoming, Listener, LocalFuture, Transport};

use crate::pending::{PendingGuard, PendingSet};
use crate::session::Worker;
use crate::{descriptors, memory};

/// The maximum number of connections that wait for their log-in at one listener of one worker,
/// within [`memory::strangers`]. Accepted connections proceed before new connections are accepted,
/// so a connection of a real client waits only for its own round trips.
const STRANGERS: usize = 4096;

/// The memory charged for a connection until its log-in, in bytes. It is the most that an
/// unauthenticated peer can make this end hold: over TCP a handshake of at most 32 KiB, its TLS
/// session, the header of a WebSocket request and the task; over QUIC and KCP the connection (about
/// 60 KiB) and 64 KiB of unread data.
const COST: u64 = 48 << 10;
const UDP_COST: u64 = 128 << 10;

/// Held from the check for a free descriptor to the accept that takes it. Two accept loops that see
/// the same free descriptor would exceed the limit, one connection at a time.
static TABLE: Mutex<()> = Mutex::new(());

/// The unauthenticated connections of one listener on one worker, and their log-in.
#[derive(Debug)]
pub struct Unauthenticated<L> {
    waiting: PendingSet,
    most: usize,
    cost: u64,
    budget: Rc<Lease>,
    room: Room,
    complaints: RepeatLimit<()>,
    log_in: L,
}

impl<L> Unauthenticated<L> {
    /// `log_in` logs a connection in, and holds the place of the connection.
    pub fn new(worker: &Worker, transport: Transport, log_in: L) -> Self {
        let cost = if transport.stays() { UDP_COST } else { COST };
        let budget = Rc::clone(&worker.state.budget);
        Self {
            waiting: PendingSet::default(),
            most: memory::strangers(&budget, worker.peers.len(), cost).min(STRANGERS),
            cost,
            budget,
            room: descriptors::room_of_strangers(),
            complaints: RepeatLimit::new(),
            log_in,
        }
    }
}

impl<L, F> Backlog for Unauthenticated<L>
where
    L: Fn(Box<dyn Incoming>, PendingGuard) -> F,
    F: Future<Output = ()> + 'static,
{
    fn poll_accept(
        &self,
        listener: &mut dyn Listener,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Box<dyn Incoming>>>> {
        // The mutex guards no data that a panic could have left inconsistent.
        let _held = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        if self.waiting.count() > 1 && !self.room.is_there() {
            return Poll::Ready(None);
        }
        listener.poll_accept(cx).map(Some)
    }

    fn begin(&self, incoming: Box<dyn Incoming>) -> bool {
        let charge = Charge::new(&self.budget, self.cost);
        self.waiting.run(incoming.source(), |place| {
            let log_in = (self.log_in)(incoming, place);
            async move {
                let _charge = charge;
                log_in.await;
            }
        });
        self.waiting.count() <= self.most
    }

    fn make_room(&self) -> LocalFuture<'_, bool> {
        Box::pin(self.waiting.one_leaves())
    }

    fn failed(&self, at: SocketAddr, error: &io::Error) {
        if let Some(more) = self.complaints.pass((), Instant::now()) {
            tracing::warn!(%at, %error, more, "the listener at {at} cannot accept clients: {error}");
        }
    }
}

/// The memory of an unauthenticated connection, charged to the budget of its worker.
#[derive(Debug)]
struct Charge {
    budget: Rc<Lease>,
    bytes: u64,
}

impl Charge {
    fn new(budget: &Rc<Lease>, bytes: u64) -> Self {
        budget.charge(bytes);
        Self { budget: Rc::clone(budget), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

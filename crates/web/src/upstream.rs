//! HTTP/1.1 connections to targets, opened by the service and kept for the next request of the same
//! visitor.

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::{Rc, Weak},
    time::Duration,
};

use hyper::client::conn::http1::{Builder, Connection, Parts, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{
    io::AsyncWriteExt as _,
    sync::oneshot,
    task::{AbortHandle, spawn_local},
    time::{Instant, sleep},
};

use crate::{
    Identity, OpenFailed, Place, Service,
    account::{Account, SMALL, UPSTREAM},
    body::RequestBody,
    gate::NO_MEMORY,
    wire::{Wire, WireState},
};

/// The maximum number of idle connections that a visitor keeps to one service, and to all services.
/// A browser over HTTP/1.1 opens six connections, each with one connection to the target.
const MOST_IDLE: usize = 4;
const MOST_IDLE_OF_ALL: usize = 16;
/// Over HTTP/2 requests come in bursts, so up to a connection per stream of the visitor is kept for
/// once to twice this time. Each new connection costs a dial at the client.
const MOST_OF_BURST: usize = 128;
const BURST: Duration = Duration::from_secs(1);
/// The maximum of hyper's response buffer, in bytes. The longest header fits, even if it was
/// rewritten.
const MOST_BUFFER: usize = h1::ANSWER_HEAD + SMALL;

/// A connection to a target.
pub(crate) struct Upstream {
    pub(crate) sender: SendRequest<RequestBody>,
    /// The stream, once the target has switched to another protocol.
    pub(crate) switched: oneshot::Receiver<Parts<TokioIo<Wire>>>,
    pub(crate) wire: Rc<WireState>,
    task: AbortHandle,
}

impl Upstream {
    /// Opens a connection to the target of a service.
    pub(crate) async fn open(
        service: &dyn Service,
        place: Option<Place>,
        account: &Rc<Account>,
    ) -> Result<Self, OpenFailed> {
        let Some(hold) = account.take(UPSTREAM) else {
            account.count_refusal();
            let reason = NO_MEMORY.reason.trim_end_matches('.').to_owned();
            return Err(OpenFailed { status: NO_MEMORY.status, reason: reason.into() });
        };
        let stream = service.open(place).await?;
        let wire = Rc::new(WireState::new(hold));
        let io = TokioIo::new(Wire::new(stream, &wire));
        let mut builder = Builder::new();
        // Field names keep the case of the visitor. Those of HTTP/2 get title case: some old
        // devices accept no other.
        builder
            .preserve_header_case(true)
            .title_case_headers(true)
            .max_headers(h1::ANSWER_FIELDS)
            .max_buf_size(MOST_BUFFER);
        let (sender, connection) = builder.handshake(io).await.map_err(|error| OpenFailed {
            status: 502,
            reason: format!("the connection to the target failed: {error}").into(),
        })?;
        let (switches, switched) = oneshot::channel();
        let task = spawn_local(run(connection, switches, Rc::clone(&wire))).abort_handle();
        Ok(Self { sender, switched, wire, task })
    }
}

/// Drives a connection until it ends or switches to another protocol.
async fn run(
    mut connection: Connection<TokioIo<Wire>, RequestBody>,
    switches: oneshot::Sender<Parts<TokioIo<Wire>>>,
    wire: Rc<WireState>,
) {
    let end = std::future::poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    if let Err(error) = end {
        tracing::debug!(%error, "a connection to a target broke");
        return;
    }
    let parts = connection.into_parts();
    // A connection that the pool holds has a receiver of the switch as well, and would keep the
    // parts until the next request of the visitor.
    let unused = if wire.asked_to_switch.get() { switches.send(parts).err() } else { Some(parts) };
    if let Some(mut parts) = unused {
        // No request waits for a switch: the connection is idle and is shut down gracefully.
        let _ = parts.io.inner_mut().shutdown().await;
    }
}

/// Aborts a request in progress, which would continue although its response is no longer awaited.
/// An idle connection ends when its sender is dropped.
impl Drop for Upstream {
    fn drop(&mut self) {
        if !self.sender.is_ready() {
            self.task.abort();
        }
    }
}

/// The idle connections of one visitor.
#[derive(Default)]
pub(crate) struct Pool {
    /// Ordered by idle time, the longest first.
    idle: RefCell<Vec<Idle>>,
    /// Whether a task closes the connections left over from a burst.
    is_swept: Cell<bool>,
}

struct Idle {
    /// The service of the target.
    owner: Identity,
    since: Instant,
    upstream: Upstream,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.idle.borrow().len()).finish()
    }
}

impl Pool {
    /// The most recently used connection to a service, if it was idle for less than `most`. A
    /// request without a place takes a connection to any place.
    pub(crate) fn take(&self, identity: Identity, most: Option<Duration>) -> Option<Upstream> {
        let mut idle = self.idle.borrow_mut();
        idle.retain(|one| !one.upstream.sender.is_closed());
        let leads = |one: &Idle| {
            let place = identity.place.or(one.owner.place);
            one.owner == Identity { place, ..identity }
        };
        let at = idle.iter().rposition(|one| leads(one) && one.upstream.sender.is_ready())?;
        let is_fresh = most.is_none_or(|most| idle[at].since.elapsed() < most);
        is_fresh.then(|| {
            let Idle { upstream, .. } = idle.remove(at);
            upstream.wire.is_idle.set(false);
            upstream
        })
    }

    /// Closes all idle connections.
    pub(crate) fn clear(&self) {
        let idle = self.idle.take();
        drop(idle);
    }

    fn put(self: &Rc<Self>, identity: Identity, upstream: Upstream) {
        // The body of the request may still be in transit, or may have been rejected.
        if upstream.sender.is_closed() || upstream.wire.sending.get() {
            return;
        }
        // It is unknown how a target interprets bytes after a request to switch: as the other
        // protocol, or as a body.
        if upstream.wire.asked_to_switch.get() {
            return;
        }
        // An idle connection is optional.
        if !upstream.wire.account().may_grow(0) {
            return;
        }
        upstream.wire.is_idle.set(true);
        let mut idle = self.idle.borrow_mut();
        let dropped = (idle.len() >= MOST_OF_BURST).then(|| idle.remove(0));
        idle.push(Idle { owner: identity, since: Instant::now(), upstream });
        let is_burst = !self.is_swept.get() && surplus(&idle).is_some();
        drop(idle);
        drop(dropped);
        if is_burst {
            self.is_swept.set(true);
            spawn_local(sweep(Rc::downgrade(self)));
        }
    }

    /// Takes a connection left over from a burst. Also returns whether others may follow later.
    fn take_surplus(&self) -> (Option<Idle>, bool) {
        let mut idle = self.idle.borrow_mut();
        let at = surplus(&idle);
        let is_burst = at.is_some();
        let at = at.filter(|&at| idle[at].since.elapsed() >= BURST);
        (at.map(|at| idle.remove(at)), is_burst)
    }
}

/// The position of the oldest connection that is kept only for a burst.
fn surplus(idle: &[Idle]) -> Option<usize> {
    // Recently used connections are at the end, so the oldest of an owner are the surplus.
    let of_owner = |owner| idle.iter().filter(|one| one.owner == owner).count();
    if idle.len() <= MOST_IDLE {
        return None;
    }
    idle.iter()
        .position(|one| of_owner(one.owner) > MOST_IDLE)
        .or_else(|| (idle.len() > MOST_IDLE_OF_ALL).then_some(0))
}

/// Closes connections left over from a burst, until there are none.
async fn sweep(pool: Weak<Pool>) {
    loop {
        sleep(BURST).await;
        let Some(pool) = pool.upgrade() else { return };
        loop {
            let (taken, is_burst) = pool.take_surplus();
            if !is_burst {
                pool.is_swept.set(false);
                return;
            }
            if taken.is_none() {
                break;
            }
        }
    }
}

/// A connection to a target while its response is read. Dropping it breaks the connection.
pub(crate) struct Exchange {
    upstream: Upstream,
    identity: Identity,
    pool: Rc<Pool>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Exchange {
    pub(crate) const fn new(upstream: Upstream, identity: Identity, pool: Rc<Pool>) -> Self {
        Self { upstream, identity, pool }
    }

    pub(crate) fn wire(&self) -> Rc<WireState> {
        Rc::clone(&self.upstream.wire)
    }

    /// Returns the connection to the pool: the response has been read completely.
    pub(crate) fn complete(self) {
        self.pool.put(self.identity, self.upstream);
    }
}

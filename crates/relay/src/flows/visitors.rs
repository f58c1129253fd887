//! The end of flows at which peers send to a port: one socket, and a flow for each pair of peer and
//! local address.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use net::socket::canonical;
use net::udp::{Arrival, FlowSocket, Route, Steering};
use proto::ResetCode;
use proto::control::FlowTimes;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use transport::{FlowInlet, FlowOutlet};

use super::idle::IdleTimer;
use super::near::{Ends, NearFlows, NearSocket};
use super::table::IsFull;
use super::waking::TaskWaker;
use super::{DropReason, FlowSettings, FlowStats, hand_over, pass_on};
use crate::Permit;
use crate::announced::{Announced, of_datagram};

/// Opens the flows of a listener.
pub trait FlowHandler: fmt::Debug {
    /// Opens a flow for a peer: authorizes the peer, admits the flow, and selects a link of this
    /// worker. The call must not block. The permit is returned when the flow ends.
    ///
    /// # Errors
    /// Why the flow cannot be opened: [`ResetCode::Denied`] for a peer without permission,
    /// [`ResetCode::Limit`], or [`ResetCode::Shutdown`] without a link. The datagram is dropped and
    /// counted under the reason, and the peer's next datagram tries again.
    fn open(
        &self,
        peer: SocketAddr,
        outlet: Rc<dyn FlowOutlet>,
    ) -> Result<(Box<dyn FlowInlet>, Option<Permit>), ResetCode>;

    /// Whether `peer` is a trusted load balancer, which prepends a PROXY protocol header to each
    /// datagram. The header contains the peer of the flow.
    fn is_announcer(&self, _peer: SocketAddr) -> bool {
        false
    }
}

/// The key of a flow of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    route: Route,
    /// The visitor behind a load balancer, from the balancer's header.
    visitor: Option<SocketAddr>,
}

/// Serves the peers of a bound socket in a task of this thread until the guard is dropped. Each
/// worker calls this function with its own socket of the group; `steering` is that of the group,
/// which counts the flows, with the index of the socket.
///
/// # Errors
/// The socket cannot be registered, or lacks an option.
pub fn listen_flows(
    socket: UdpSocket,
    steering: Option<(Arc<Steering>, usize)>,
    handler: Rc<dyn FlowHandler>,
    settings: Rc<FlowSettings>,
) -> io::Result<ListeningFlows> {
    let socket = FlowSocket::listen(socket)?;
    let port = Port {
        address: socket.local_addr()?,
        socket: RefCell::new(Some(Rc::new(socket))),
        waker: TaskWaker::default(),
        turn: Cell::new(0),
        steering,
        handler,
    };
    let flows = NearFlows::new(port, settings);
    let task = Serving { flows: Rc::clone(&flows), timer: IdleTimer::default() };
    let task = async move {
        net::handover::serving().await;
        task.await;
    };
    let task = tokio::task::spawn_local(task).abort_handle();
    Ok(ListeningFlows { flows, task })
}

/// A live listener. Dropping it closes the socket at once and ends all of its flows.
#[derive(Debug)]
pub struct ListeningFlows {
    flows: Rc<NearFlows<Port>>,
    task: AbortHandle,
}

impl ListeningFlows {
    /// The address of the listener, with the port that the system chose.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.flows.socket.address
    }

    /// A duplicate of the socket: the port stays open when the listener is dropped.
    ///
    /// # Errors
    /// This process has no descriptor left.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        let socket = self.flows.socket.socket.borrow();
        socket.as_ref().ok_or(io::ErrorKind::NotConnected)?.duplicate()
    }

    /// Ends all flows. The next datagram of a peer opens a new flow through the handler.
    pub fn renew(&self) {
        self.flows.end_all(ResetCode::Shutdown);
    }

    /// Changes the idle times, also of existing flows.
    pub fn set_times(&self, times: FlowTimes) {
        self.flows.set_times(times);
        self.flows.socket.waker.wake();
    }
}

impl Drop for ListeningFlows {
    fn drop(&mut self) {
        // The task may keep the owner of the socket alive for a while.
        if let Some(socket) = self.flows.socket.socket.take() {
            socket.flush_last(&*self.flows.settings.stats);
        }
        self.flows.end_all(ResetCode::Shutdown);
        self.task.abort();
    }
}

/// The socket of a port.
struct Port {
    /// `None` once the listener is dropped.
    socket: RefCell<Option<Rc<FlowSocket>>>,
    waker: TaskWaker,
    /// The number of the task's current turn, so that a flow is refreshed once per turn.
    turn: Cell<u64>,
    address: SocketAddr,
    steering: Option<(Arc<Steering>, usize)>,
    handler: Rc<dyn FlowHandler>,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port({})", self.address)
    }
}

impl NearSocket for Port {
    type Key = Key;
    type To = Route;

    fn send(&self, to: &Route, dscp: u8, datagram: Bytes, stats: &FlowStats) -> bool {
        let socket = self.socket.borrow().clone();
        let Some(socket) = socket else { return false };
        // Queued datagrams have woken the task already.
        let is_first = !socket.has_unsent();
        socket.send(Route { dscp, ..*to }, datagram, stats);
        if is_first {
            self.waker.wake();
        }
        true
    }

    fn begins_turn(&self, seen: &Cell<u64>) -> bool {
        let turn = self.turn.get();
        seen.replace(turn) != turn
    }

    fn sender(&self, to: &Route, _peer: SocketAddr) -> SocketAddr {
        canonical(to.peer)
    }

    fn steering(&self) -> Option<(&Arc<Steering>, usize)> {
        self.steering.as_ref().map(|(steering, worker)| (steering, *worker))
    }

    fn complain(&self, full: IsFull, peer: SocketAddr, settings: &FlowSettings) {
        let FlowSettings { stats, bounds, .. } = settings;
        if !stats.complaints.ready() {
            return;
        }
        let source = bounds.source(peer.ip());
        let is_of_source = full == IsFull::Source || !bounds.has_share(source.as_ref());
        let (listener, flows, evicted) = (self.address, bounds.live(), stats.evicted());
        let (of, most, key) = if is_of_source {
            ("one source has", bounds.per_source(), "limits.source.flows")
        } else {
            ("there are", bounds.most(), "limits.flows")
        };
        tracing::warn!(
            %listener, flows, evicted,
            "udp://{listener} drops datagrams: {of} as many flows as may be ({most}); `{key}` of the \
             client on the server is the bound"
        );
        tracing::debug!(%listener, %peer, "a flow of this peer was refused or has ended early");
    }
}

/// Passes on datagrams from one peer.
fn arrived(flows: &Rc<NearFlows<Port>>, arrival: &Arrival<'_>) {
    let stats = &flows.settings.stats;
    let (route, count, bytes) = (arrival.route, arrival.count(), arrival.bytes());
    stats.count_in(count, bytes);
    let now = Instant::now();
    if flows.socket.handler.is_announcer(canonical(route.peer)) {
        return arrival.datagrams().for_each(|datagram| announced(flows, route, datagram, now));
    }
    match flow_of(flows, Key { route, visitor: None }, now) {
        Ok(flow) => flow.pass(count, bytes, |inlet| pass_on(arrival, inlet, stats)),
        Err(reason) => stats.count_dropped(reason, count),
    }
}

/// Finds or opens a flow.
///
/// # Errors
/// The reason to drop its datagrams.
fn flow_of(flows: &Rc<NearFlows<Port>>, key: Key, now: Instant) -> Result<Ends<Port>, DropReason> {
    if let Some(flow) = flows.look_up(&key, now)? {
        return Ok(flow);
    }
    let peer = key.visitor.unwrap_or_else(|| canonical(key.route.peer));
    let open = |outlet| flows.socket.handler.open(peer, outlet);
    flows.open(key, key.route, peer, now, |outlet| open(outlet).map_err(DropReason::of_refusal))
}

/// Passes on a datagram of a load balancer without its header. Answers are sent to the balancer
/// without a header; the balancer identifies the visitor by its own port.
fn announced(flows: &Rc<NearFlows<Port>>, route: Route, datagram: &[u8], now: Instant) {
    let stats = &flows.settings.stats;
    let Some((Announced { visitor, .. }, size)) = of_datagram(datagram) else {
        return stats.count_dropped(DropReason::NoHeader, 1);
    };
    let payload = datagram.get(size..).unwrap_or_default();
    match flow_of(flows, Key { route, visitor }, now) {
        Ok(flow) => flow.pass(1, payload.len(), |inlet| {
            hand_over(&mut std::iter::once(payload), 1, inlet, stats)
        }),
        Err(reason) => stats.count_dropped(reason, 1),
    }
}

/// The task of a listener. A queued answer wakes it, and the runtime polls it after all ready
/// tasks, so the answers of a turn are sent together.
struct Serving {
    flows: Rc<NearFlows<Port>>,
    timer: IdleTimer,
}

impl Future for Serving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { flows, timer } = &mut *self;
        let port = &flows.socket;
        port.waker.note(cx);
        port.turn.set(port.turn.get() + 1);
        let socket = port.socket.borrow().clone();
        let Some(socket) = socket else { return Poll::Ready(()) };
        let stats = &*flows.settings.stats;
        let Poll::Pending = socket.poll_read(cx, stats, |arrival| {
            // The far side's answer to an earlier datagram may have closed the listener.
            if port.socket.borrow().is_some() {
                arrived(flows, &arrival);
            }
        });
        // Pending: the send buffer is full, and the socket wakes this task later.
        let _ = socket.poll_flush(cx, stats);
        loop {
            if timer.poll(cx, flows.next_idle()).is_pending() {
                return Poll::Pending;
            }
            if flows.end_idle() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }
}

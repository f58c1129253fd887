//! The end of flows at which peers send: one socket, and a flow for each peer and address that the
//! peer sends to. `reply` is the way back.

mod reply;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use net::socket::canonical;
use net::udp::{Arrival, FlowSocket, Route, Steering};
use proto::ResetCode;
use proto::control::FlowTimes;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use transport::{FlowInlet, FlowOutlet};

use super::idle::{self, IdleTimer};
use super::table::{IsFull, Slot, Table};
use super::waking::TaskWaker;
use super::{DropReason, FlowSettings, FlowStats, is_refusal, pass_on};
use crate::{End, Permit};
use reply::Reply;

/// The far side refused the flow of a peer. Datagrams of the peer within this time are dropped, so
/// that each of them does not open a flow again.
const REFUSED: Duration = Duration::from_secs(1);

/// Opens the flows of a listener.
pub trait FlowHandler: fmt::Debug {
    /// Opens a flow for a peer: checks whether the peer may visit, admits the flow, and finds a link
    /// of this worker. The call must not block. The permit is returned when the flow ends.
    ///
    /// # Errors
    /// Why the flow cannot be opened: [`ResetCode::Denied`] for a peer that may not visit,
    /// [`ResetCode::Limit`], or [`ResetCode::Shutdown`] without a link. The datagram is dropped and
    /// counted under the reason, and the next one of the peer asks again.
    fn open(
        &self,
        peer: SocketAddr,
        outlet: Rc<dyn FlowOutlet>,
    ) -> Result<(Box<dyn FlowInlet>, Option<Permit>), ResetCode>;
}

/// Serves the peers of a bound socket in a task of this thread until the guard is dropped. Each
/// worker calls this function with its own socket of the group; `steering` is that of the group,
/// which counts the flows.
///
/// # Errors
/// The socket cannot be registered, or lacks an option.
pub fn listen_flows(
    socket: UdpSocket,
    steering: Option<Arc<Steering>>,
    handler: Rc<dyn FlowHandler>,
    settings: Rc<FlowSettings>,
) -> io::Result<ListeningFlows> {
    let socket = FlowSocket::listen(socket)?;
    let address = socket.local_addr()?;
    let visitors = Rc::new(Visitors {
        socket: RefCell::new(Some(Rc::new(socket))),
        table: RefCell::new(Table::new(Arc::clone(&settings.bounds))),
        times: Cell::new(settings.times),
        waker: TaskWaker::default(),
        turn: Cell::new(0),
        address,
        steering,
        handler,
        settings,
    });
    let task = Serving { visitors: Rc::clone(&visitors), timer: IdleTimer::default() };
    let task = tokio::task::spawn_local(task).abort_handle();
    Ok(ListeningFlows { visitors, task })
}

/// A live listener. Dropping it closes the socket at once and ends all of its flows.
#[derive(Debug)]
pub struct ListeningFlows {
    visitors: Rc<Visitors>,
    task: AbortHandle,
}

impl ListeningFlows {
    /// The address of the listener, with the port that the system chose.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.visitors.address
    }

    /// Ends all flows. The next datagram of a peer opens a flow again, which leads to where the
    /// handler leads now.
    pub fn renew(&self) {
        let flows = self.visitors.table.borrow_mut().drain();
        flows.into_iter().for_each(|flow| flow.end(End::Cut, ResetCode::Shutdown));
    }

    /// Changes when idle flows end, of those that exist as well.
    pub fn set_times(&self, times: FlowTimes) {
        self.visitors.times.set(times);
        self.visitors.waker.wake();
    }
}

impl Drop for ListeningFlows {
    fn drop(&mut self) {
        let visitors = &self.visitors;
        // The task may hold the socket's owner for a while.
        if let Some(socket) = visitors.socket.take() {
            socket.flush_last(&*visitors.settings.stats);
        }
        let flows = visitors.table.borrow_mut().drain();
        flows.into_iter().for_each(|flow| flow.end(End::Cut, ResetCode::Shutdown));
        self.task.abort();
    }
}

/// The flows of one socket.
struct Visitors {
    socket: RefCell<Option<Rc<FlowSocket>>>,
    table: RefCell<Table<Flow>>,
    times: Cell<FlowTimes>,
    waker: TaskWaker,
    /// Counts the turns of the task, so that a flow is refreshed once in each.
    turn: Cell<u64>,
    address: SocketAddr,
    steering: Option<Arc<Steering>>,
    handler: Rc<dyn FlowHandler>,
    settings: Rc<FlowSettings>,
}

impl fmt::Debug for Visitors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Visitors({})", self.address)
    }
}

/// A flow in the table.
enum Flow {
    Live(Live),
    /// The far side refused it.
    Refused {
        until: Instant,
        reason: DropReason,
    },
}

/// Both ways of a flow.
type Ends = (Rc<Reply>, Rc<dyn FlowInlet>);

struct Live {
    reply: Rc<Reply>,
    inlet: Rc<dyn FlowInlet>,
    _permit: Option<Permit>,
    _counted: Counted,
}

/// Counts a live flow.
struct Counted {
    stats: Rc<FlowStats>,
    steering: Option<Arc<Steering>>,
    peer: SocketAddr,
}

impl Counted {
    fn new(visitors: &Visitors, peer: SocketAddr) -> Self {
        let steering = visitors.steering.clone();
        if let Some(steering) = &steering {
            steering.enter(peer);
        }
        visitors.settings.stats.enter();
        Self { stats: Rc::clone(&visitors.settings.stats), steering, peer }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.stats.leave();
        if let Some(steering) = &self.steering {
            steering.leave(self.peer);
        }
    }
}

impl Flow {
    /// The flow that the far side refused with `code`, if that is a reason to wait.
    fn refused(code: ResetCode, now: Instant) -> Option<Self> {
        let reason = DropReason::of_refusal(code);
        is_refusal(code).then(|| Self::Refused { until: now + REFUSED, reason })
    }

    /// Ends the flow on the far side. The table must not be borrowed.
    fn end(self, end: End, code: ResetCode) {
        if let Self::Live(live) = self {
            live.reply.closed.set(Some(code));
            live.reply.tell_end(end);
            live.inlet.close(code);
        }
    }
}

impl Visitors {
    /// Passes on what one peer sent.
    fn arrived(self: &Rc<Self>, arrival: &Arrival<'_>) {
        let stats = &self.settings.stats;
        let count = arrival.count();
        stats.count_in(count, arrival.bytes());
        let now = Instant::now();
        let (reply, inlet) = match self.look_up(&arrival.route, now) {
            Ok(Some(flow)) => flow,
            Ok(None) => match self.open(arrival.route, now) {
                Ok(flow) => flow,
                Err(reason) => return stats.count_dropped(reason, count),
            },
            Err(reason) => return stats.count_dropped(reason, count),
        };
        if let Some(visit) = &reply.visit {
            visit.count_read(arrival.bytes());
        }
        let dropped = pass_on(arrival, &*inlet, stats);
        if !reply.is_answered.get() {
            reply.unanswered.set(reply.unanswered.get().saturating_add(count - dropped));
        }
    }

    /// Finds the flow of a peer and refreshes it. An error: the far side has refused it.
    fn look_up(&self, route: &Route, now: Instant) -> Result<Option<Ends>, DropReason> {
        let mut table = self.table.borrow_mut();
        let Some(slot) = table.find(route) else { return Ok(None) };
        match table.value(slot) {
            Some(Flow::Live(live)) => {
                let flow = (Rc::clone(&live.reply), Rc::clone(&live.inlet));
                table.touch(slot, now);
                Ok(Some(flow))
            }
            Some(Flow::Refused { until, reason }) if now < *until => Err(*reason),
            Some(Flow::Refused { .. }) | None => {
                table.remove(slot);
                Ok(None)
            }
        }
    }

    fn open(self: &Rc<Self>, route: Route, now: Instant) -> Result<Ends, DropReason> {
        let peer = canonical(route.peer);
        let source = self.settings.bounds.source(peer.ip());
        if let Err(full) = self.table.borrow().admits(source, now) {
            self.complain(full, peer);
            return Err(match full {
                IsFull::Table => DropReason::Limit,
                IsFull::Source => DropReason::SourceLimit,
            });
        }
        let reply = Reply::new(self, route, peer);
        let outlet = Rc::<Reply>::clone(&reply);
        let (inlet, permit) = self.handler.open(peer, outlet).map_err(DropReason::of_refusal)?;
        let inlet: Rc<dyn FlowInlet> = inlet.into();
        if let Some(code) = reply.closed.get() {
            if let Some(refused) = Flow::refused(code, now) {
                let _ = self.insert(route, source, refused, now);
            }
            return Err(DropReason::of_refusal(code));
        }
        let live = Live {
            reply: Rc::clone(&reply),
            inlet: Rc::clone(&inlet),
            _permit: permit,
            _counted: Counted::new(self, peer),
        };
        match self.insert(route, source, Flow::Live(live), now) {
            Ok(slot) => {
                reply.slot.set(Some(slot));
                if reply.is_answered.get() {
                    self.table.borrow_mut().answer(slot, now);
                }
                Ok((reply, inlet))
            }
            Err(flow) => {
                flow.end(End::Refused(ResetCode::Limit), ResetCode::Limit);
                Err(DropReason::Limit)
            }
        }
    }

    /// Puts a flow into the table, and ends the flows that have to go for it.
    fn insert(
        &self,
        route: Route,
        source: Option<IpAddr>,
        flow: Flow,
        now: Instant,
    ) -> Result<Slot, Flow> {
        let mut gone = Vec::new();
        let mut table = self.table.borrow_mut();
        let outcome = table.insert(Some(route), source, flow, now, &mut gone);
        drop(table);
        gone.into_iter().for_each(|flow| self.evict(flow));
        outcome
    }

    /// Ends a flow whose place another one took. The answers to a peer that still waits are lost.
    fn evict(&self, gone: Flow) {
        if let Flow::Live(live) = &gone {
            let stats = &self.settings.stats;
            stats.count_evicted();
            if !live.reply.is_answered.get() {
                stats.count_dropped(DropReason::Evicted, live.reply.unanswered.take());
                self.complain(IsFull::Table, live.reply.peer);
            }
        }
        gone.end(End::Cut, ResetCode::Limit);
    }

    fn complain(&self, full: IsFull, peer: SocketAddr) {
        let FlowSettings { stats, bounds, .. } = &*self.settings;
        if !stats.complaints.ready() {
            return;
        }
        let source = self.settings.bounds.source(peer.ip());
        let is_of_source = full == IsFull::Source || !bounds.has_share(source);
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

    /// Ends flows that are idle. Returns true if the budget ended first.
    fn end_idle(&self) -> bool {
        let now = Instant::now();
        for _ in 0..idle::BUDGET {
            let idle = self.table.borrow_mut().take_idle(now, self.times.get());
            match idle {
                None => return false,
                Some(Flow::Refused { .. }) => {}
                Some(flow) => {
                    self.settings.stats.count_idle();
                    flow.end(End::Idle, ResetCode::Timeout);
                }
            }
        }
        true
    }
}

/// The task of a listener. Whoever sends an answer wakes it, and the runtime polls it after all
/// tasks that are ready, so the answers of a turn leave together.
struct Serving {
    visitors: Rc<Visitors>,
    timer: IdleTimer,
}

impl Future for Serving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { visitors, timer } = &mut *self;
        visitors.waker.note(cx);
        visitors.turn.set(visitors.turn.get() + 1);
        let socket = visitors.socket.borrow().clone();
        let Some(socket) = socket else { return Poll::Ready(()) };
        let stats = &*visitors.settings.stats;
        let Poll::Pending = socket.poll_read(cx, stats, |arrival| {
            // The far side's answer to an earlier datagram may have closed the listener.
            if visitors.socket.borrow().is_some() {
                visitors.arrived(&arrival);
            }
        });
        // Pending: the socket is full, and wakes this task.
        let _ = socket.poll_flush(cx, stats);
        loop {
            let due = visitors.table.borrow().next_idle(visitors.times.get());
            if timer.poll(cx, due).is_pending() {
                return Poll::Pending;
            }
            if visitors.end_idle() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }
}

//! The end of flows that sends to a target: a connected socket for each flow, which lives as long as
//! the flow. A target sees one port per peer, whatever happens to carriers.
//!
//! ```text
//!   Looking: the name is looked up, a few datagrams wait
//!      │ connect(2)
//!      ▼
//!   Open: datagrams leave at the end of the turn; what the target sends goes into the link
//!      │ idle, closed by the far side, evicted, or the target is denied or unknown
//!      ▼
//!   Closed
//! ```

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use net::udp::{Arrival, FlowSocket, Loss, Tally, dialling};
use proto::ResetCode;
use proto::control::FlowTimes;
use rustix::io::Errno;
use tokio::time::Instant;
use transport::{FlowInlet, FlowOutlet, LocalFuture};

use super::idle::{self, IdleTimer};
use super::ports::Port;
use super::table::{Slot, Source, Table};
use super::{DropReason, FlowSettings, pass_on};
use crate::Permit;
use crate::dial::{Allow, DialError, TargetAddr, addresses_of};
use crate::room::Place;

/// Datagrams that wait for a lookup, and their bytes.
const WAITING: usize = 8;
const WAITING_BYTES: usize = 64 << 10;

/// The far end of a flow that arrives.
#[derive(Debug, Default)]
pub struct FlowCaller {
    /// The rule for the target. It is asked about the name and about every resolved address. Without
    /// a rule every target is permitted.
    pub allow: Option<Allow>,
    /// The peer, as the far side tells it. Its address has a share of the flows
    /// ([`super::FlowCaps::per_source`]).
    pub visitor: Option<SocketAddr>,
    /// Returned when the flow ends.
    pub permit: Option<Permit>,
}

/// Connects a flow that arrives with `target`, which must be a [`TargetAddr::Udp`]. The outlet is
/// returned at once; up to 8 datagrams (64 KiB) wait for the lookup of a name. A flow that cannot be
/// connected is closed with the reason.
pub fn connect_flow(
    target: TargetAddr,
    caller: FlowCaller,
    inlet: Box<dyn FlowInlet>,
    settings: &Rc<FlowSettings>,
) -> Rc<dyn FlowOutlet> {
    let FlowCaller { allow, visitor, permit } = caller;
    let flow = Rc::new(Target {
        settings: Rc::clone(settings),
        address: target.clone(),
        state: RefCell::new(State::Looking),
        inlet: RefCell::new(Some(inlet.into())),
        permit: Cell::new(permit),
        slot: Cell::new(None),
        waiting: RefCell::default(),
        others: RefCell::default(),
        waker: Cell::new(None),
        is_answered: Cell::new(false),
        was_refused: Cell::new(false),
    });
    settings.stats.enter();
    let source = visitor.map(|visitor| Source::of(visitor.ip()));
    if !settings.targets.add(&flow, source) {
        settings.stats.count_dropped(DropReason::Limit, 1);
        flow.end(Some(ResetCode::Limit));
        return flow;
    }
    // A clone of the lookups would touch a counter that all workers share.
    let own = Rc::clone(settings);
    let mut lookup: Lookup = Box::pin(async move {
        let FlowSettings { dial, lookups, .. } = &*own;
        let found = addresses_of(&target, allow.as_ref(), lookups);
        tokio::time::timeout(*dial, found)
            .await
            .unwrap_or_else(|_| Err(DialError::Timeout(target.clone())))
    });
    // An address needs no lookup, and a burst that opens a flow need not wait for the next turn.
    let lookup = match lookup.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(found) => {
            flow.found(found);
            None
        }
        Poll::Pending => Some(lookup),
    };
    if !matches!(*flow.state.borrow(), State::Closed) {
        tokio::task::spawn_local(Serving { flow: Rc::clone(&flow), lookup });
    }
    flow
}

type Lookup = LocalFuture<'static, Result<Vec<SocketAddr>, DialError>>;

/// The flows to the targets of one service (or of the forwards of one link) on one worker.
#[derive(Default)]
pub struct FlowTargets {
    table: RefCell<Table<Rc<Target>>>,
    times: Cell<FlowTimes>,
    timer: RefCell<IdleTimer>,
    waker: Cell<Option<Waker>>,
    has_task: Cell<bool>,
}

impl fmt::Debug for FlowTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowTargets({})", self.len())
    }
}

impl FlowTargets {
    /// The number of flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.borrow().len()
    }

    /// Whether there is no flow.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a flow, with the caps and times of its settings. Returns false if there is no place.
    fn add(self: &Rc<Self>, flow: &Rc<Target>, source: Option<Source>) -> bool {
        let FlowSettings { caps, times, stats, .. } = &*flow.settings;
        self.times.set(*times);
        let inserted = {
            let mut table = self.table.borrow_mut();
            table.set_caps(*caps);
            table.insert(None, source, Rc::clone(flow), Instant::now())
        };
        let Ok((slot, gone)) = inserted else { return false };
        flow.slot.set(Some(slot));
        if let Some(gone) = gone {
            stats.count_evicted();
            gone.end(Some(ResetCode::Limit));
        }
        self.watch_idle();
        true
    }

    /// Ends the flow that was never answered and is unused for longest, but not `spared`.
    fn make_room(&self, spared: Slot) -> bool {
        let gone = self.table.borrow_mut().evict_unanswered(spared);
        let Some(gone) = gone else { return false };
        gone.settings.stats.count_evicted();
        gone.end(Some(ResetCode::Limit));
        true
    }

    /// Sees to it that a task ends idle flows.
    fn watch_idle(self: &Rc<Self>) {
        if !self.has_task.replace(true) {
            tokio::task::spawn_local(Sweep(Rc::downgrade(self)));
            return;
        }
        let due = self.table.borrow().next_idle(self.times.get());
        if due.is_some_and(|due| !self.timer.borrow().covers(due)) {
            wake(&self.waker);
        }
    }

    fn poll_idle(&self, cx: &mut Context<'_>) -> Poll<()> {
        note(&self.waker, cx);
        loop {
            let due = self.table.borrow().next_idle(self.times.get());
            if due.is_none() {
                self.has_task.set(false);
                return Poll::Ready(());
            }
            ready!(self.timer.borrow_mut().poll(cx, due));
            let now = Instant::now();
            for _ in 0..idle::BUDGET {
                let idle = self.table.borrow_mut().take_idle(now, self.times.get());
                let Some(flow) = idle else { break };
                flow.settings.stats.count_idle();
                flow.end(Some(ResetCode::Timeout));
            }
            if self.table.borrow().next_idle(self.times.get()).is_some_and(|due| due <= now) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }
}

/// Ends idle flows. The task lives while there are flows.
struct Sweep(Weak<FlowTargets>);

impl Future for Sweep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.upgrade().map_or(Poll::Ready(()), |targets| targets.poll_idle(cx))
    }
}

enum State {
    Looking,
    Open { socket: Rc<FlowSocket>, target: SocketAddr, _port: Port },
    Closed,
}

/// The flow to one target.
struct Target {
    settings: Rc<FlowSettings>,
    address: TargetAddr,
    state: RefCell<State>,
    inlet: RefCell<Option<Rc<dyn FlowInlet>>>,
    permit: Cell<Option<Permit>>,
    slot: Cell<Option<Slot>>,
    /// Datagrams that wait for the lookup. If the name has several addresses, they stay until one
    /// has answered.
    waiting: RefCell<Vec<Bytes>>,
    /// Addresses that were not tried, the next one last.
    others: RefCell<Vec<SocketAddr>>,
    waker: Cell<Option<Waker>>,
    is_answered: Cell<bool>,
    was_refused: Cell<bool>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.address)
    }
}

impl Target {
    /// The lookup is over.
    fn found(&self, found: Result<Vec<SocketAddr>, DialError>) {
        match found {
            Ok(mut addresses) => {
                addresses.reverse();
                self.others.replace(addresses);
                self.connect();
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Connects to the next address that the system has a route to, and sends what waits.
    fn connect(&self) {
        let mut first = None;
        let socket = loop {
            let Some(target) = self.others.borrow_mut().pop() else { break None };
            match self.open_or_make_room(target) {
                Ok((socket, port)) => {
                    let socket = Rc::new(socket);
                    let open = State::Open { socket: Rc::clone(&socket), target, _port: port };
                    self.state.replace(open);
                    break Some(socket);
                }
                Err(error) => first = first.or(Some(error)),
            }
        };
        let Some(socket) = socket else {
            let source = first.unwrap_or_else(|| io::ErrorKind::NotFound.into());
            let target = self.address.clone();
            return self.fail(&match Errno::from_io_error(&source) {
                Some(Errno::MFILE | Errno::NFILE) => DialError::Exhausted(target),
                Some(Errno::AGAIN) => DialError::Ports(target),
                _ => DialError::Connect { target, source },
            });
        };
        let waiting = if self.others.borrow().is_empty() {
            self.waiting.take()
        } else {
            self.waiting.borrow().clone()
        };
        for datagram in waiting {
            self.send(&socket, datagram);
        }
    }

    fn open_or_make_room(&self, target: SocketAddr) -> io::Result<(FlowSocket, Port)> {
        let is_exhausted = |error: &io::Error| {
            let errno = Errno::from_io_error(error);
            matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::AGAIN))
        };
        match self.open(target) {
            Err(error) if is_exhausted(&error) => {
                let slot = self.slot.get();
                if slot.is_some_and(|slot| self.settings.targets.make_room(slot)) {
                    self.open(target)
                } else {
                    Err(error)
                }
            }
            outcome => outcome,
        }
    }

    fn open(&self, target: SocketAddr) -> io::Result<(FlowSocket, Port)> {
        let port = Port::take().ok_or(Errno::AGAIN)?;
        let socket = dialling(target)?;
        if self.settings.room.place(&socket) != Place::Inside {
            return Err(Errno::MFILE.into());
        }
        Ok((FlowSocket::connect(socket, target)?, port))
    }

    /// Gathers a datagram, which leaves at the end of the turn.
    fn send(&self, socket: &FlowSocket, datagram: Bytes) {
        let Some(route) = socket.route() else { return };
        // Datagrams that wait have woken the task.
        let is_first = !socket.has_unsent();
        socket.send(route, datagram, &Told(self));
        if is_first {
            wake(&self.waker);
        }
    }

    /// Keeps a copy of a datagram: it may be a small part of a large buffer.
    fn keep(&self, datagram: &[u8]) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        let bytes: usize = waiting.iter().map(Bytes::len).sum();
        let has_room = waiting.len() < WAITING && bytes + datagram.len() <= WAITING_BYTES;
        if has_room {
            waiting.push(Bytes::copy_from_slice(datagram));
        }
        has_room
    }

    /// Passes on what the target sent.
    fn arrived(&self, arrival: &Arrival<'_>) {
        let FlowSettings { stats, targets, watcher, .. } = &*self.settings;
        stats.count_in(arrival.count(), arrival.bytes());
        if let Some(slot) = self.slot.get() {
            targets.table.borrow_mut().answer(slot, Instant::now());
        }
        if !self.is_answered.replace(true) {
            self.others.take();
            self.waiting.take();
            if let Some(watcher) = watcher {
                watcher.dialled(Ok(()));
            }
        }
        let inlet = self.inlet.borrow().clone();
        let Some(inlet) = inlet else { return };
        pass_on(arrival, &*inlet, stats);
    }

    /// Looks whether the target refused what was sent, as long as it has not answered. Returns true
    /// if another address is to be tried: a name may have an IPv6 address on which nobody listens.
    fn is_refused(&self, socket: &FlowSocket) -> bool {
        if self.is_answered.get() {
            return false;
        }
        let has_others = !self.others.borrow().is_empty();
        if has_others && socket.take_error() {
            Told(self).lost(Loss::Unreachable, 1);
        }
        if !self.was_refused.take() {
            return false;
        }
        if !has_others {
            self.tell(&DialError::Connect {
                target: self.address.clone(),
                source: io::ErrorKind::ConnectionRefused.into(),
            });
        }
        has_others
    }

    /// The target cannot be reached at all.
    fn fail(&self, error: &DialError) {
        let code = error.code();
        let reason = DropReason::of_refusal(code);
        self.settings.stats.count_dropped(reason, self.waiting.borrow().len());
        tracing::debug!(%error, "the target of a flow cannot be reached");
        self.tell(error);
        self.end(Some(code));
    }

    fn tell(&self, error: &DialError) {
        let FlowSettings { stats, watcher, .. } = &*self.settings;
        let Some(watcher) = watcher else { return };
        watcher.dialled(Err(error));
        // The code that denied the target logs the denial, with the missing right.
        if !matches!(error, DialError::Denied(_)) && stats.complaints.ready() {
            let reason = DropReason::of_refusal(error.code());
            watcher.complain_of_dial(error, stats.dropped(reason).max(1));
        }
    }

    /// Ends the flow; with a code on the far side as well. No table may be borrowed.
    fn end(&self, code: Option<ResetCode>) {
        let FlowSettings { stats, targets, .. } = &*self.settings;
        match self.state.replace(State::Closed) {
            State::Closed => return,
            State::Looking => {}
            State::Open { socket, .. } => socket.flush_last(&**stats),
        }
        if let Some(slot) = self.slot.take() {
            let gone = targets.table.borrow_mut().remove(slot);
            drop(gone);
        }
        let inlet = self.inlet.take();
        if let (Some(inlet), Some(code)) = (inlet, code) {
            inlet.close(code);
        }
        self.waiting.take();
        self.others.take();
        drop(self.permit.take());
        stats.leave();
        wake(&self.waker);
    }
}

impl FlowOutlet for Target {
    fn deliver(&self, datagram: Bytes) {
        let FlowSettings { stats, targets, .. } = &*self.settings;
        let socket = match &*self.state.borrow() {
            State::Closed => return stats.count_dropped(DropReason::Late, 1),
            State::Looking => None,
            State::Open { socket, .. } => Some(Rc::clone(socket)),
        };
        // The datagrams of a turn are one use of the flow.
        let is_first = socket.as_ref().is_none_or(|socket| !socket.has_unsent());
        if let Some(slot) = self.slot.get().filter(|_| is_first) {
            targets.table.borrow_mut().touch(slot, Instant::now());
        }
        match socket {
            None if self.keep(&datagram) => {}
            None => stats.count_dropped(DropReason::Early, 1),
            Some(socket) => {
                if !self.others.borrow().is_empty() {
                    self.keep(&datagram);
                }
                self.send(&socket, datagram);
            }
        }
    }

    fn close(&self, _code: ResetCode) {
        self.end(None);
    }

    fn peer(&self) -> Option<SocketAddr> {
        match &*self.state.borrow() {
            State::Open { target, .. } => Some(net::socket::canonical(*target)),
            State::Looking | State::Closed => None,
        }
    }

    fn counted_in(&self) -> *const () {
        self.settings.stats.identity()
    }
}

/// Counts for a flow, and notes that the target refused a datagram.
struct Told<'a>(&'a Target);

impl Tally for Told<'_> {
    fn sent(&self, datagrams: usize, bytes: usize) {
        self.0.settings.stats.sent(datagrams, bytes);
    }

    fn lost(&self, loss: Loss, datagrams: usize) {
        if loss == Loss::Unreachable {
            self.0.was_refused.set(true);
        }
        self.0.settings.stats.lost(loss, datagrams);
    }
}

/// The task of a flow: waits for the lookup, then for the socket. Whoever sends wakes the task, and
/// the runtime polls it after all tasks that are ready, so the datagrams of a turn leave together.
struct Serving {
    flow: Rc<Target>,
    lookup: Option<Lookup>,
}

impl Future for Serving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { flow, lookup } = &mut *self;
        note(&flow.waker, cx);
        loop {
            let socket = match &*flow.state.borrow() {
                State::Closed => return Poll::Ready(()),
                State::Looking => None,
                State::Open { socket, .. } => Some(Rc::clone(socket)),
            };
            let Some(socket) = socket else {
                let Some(waiting) = lookup else { return Poll::Ready(()) };
                let found = ready!(waiting.as_mut().poll(cx));
                *lookup = None;
                flow.found(found);
                continue;
            };
            let told = Told(flow);
            let Poll::Pending = socket.poll_read(cx, &told, |arrival| flow.arrived(&arrival));
            // Pending: the socket is full, and wakes this task.
            let _ = socket.poll_flush(cx, &told);
            if !flow.is_refused(&socket) {
                return Poll::Pending;
            }
            flow.connect();
        }
    }
}

fn wake(waker: &Cell<Option<Waker>>) {
    if let Some(noted) = waker.take() {
        noted.wake_by_ref();
        waker.set(Some(noted));
    }
}

fn note(waker: &Cell<Option<Waker>>, cx: &Context<'_>) {
    let kept = waker.take().filter(|noted| noted.will_wake(cx.waker()));
    waker.set(Some(kept.unwrap_or_else(|| cx.waker().clone())));
}

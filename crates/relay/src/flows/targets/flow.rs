//! The flow to one target.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use net::socket::canonical;
use net::udp::{Arrival, FlowSocket, Loss, Tally, dialling};
use proto::ResetCode;
use rustix::io::Errno;
use tokio::time::Instant;
use transport::{FlowInlet, FlowOutlet};

use super::all::FlowTargets;
use super::caller::{FlowCaller, FlowEntry};
use crate::admit::Way;
use crate::dial::{Allow, DialError, TargetAddr, more_specific};
use crate::flows::ports::Port;
use crate::flows::table::Slot;
use crate::flows::waking::TaskWaker;
use crate::flows::{DropReason, FlowSettings, pass_on};
use crate::room::Position;
use crate::{Gate, Permit, Targets, pace};

/// The maximum number of datagrams that wait for a lookup; [`WAITING_BYTES`] limits their bytes.
const WAITING: usize = 8;
const WAITING_BYTES: usize = 64 << 10;

/// A flow without an answer for this time is in doubt. Most protocols answer sooner, and the check
/// costs a lookup.
const SILENT: Duration = Duration::from_secs(4);

/// The backoff between checks of a flow without an answer doubles up to 2^4 s, so that a target
/// that never answers costs little.
const PAUSES: u8 = 4;

pub(super) enum State {
    Looking,
    Open { socket: Rc<FlowSocket>, target: SocketAddr, local: Option<IpAddr>, port: Port },
    Closed,
}

/// The flow to one target.
pub(super) struct Target {
    pub(super) settings: Rc<FlowSettings>,
    /// The table of the flow.
    pub(super) flows: Rc<FlowTargets>,
    /// The target; until the first answer, another target may replace it.
    pub(super) address: RefCell<TargetAddr>,
    /// The rule for the target.
    pub(super) allow: Option<Allow>,
    pub(super) state: RefCell<State>,
    /// `None` after the end of the link.
    pub(super) inlet: RefCell<Option<Rc<dyn FlowInlet>>>,
    pub(super) permit: Cell<Option<Permit>>,
    /// The gate whose byte rates apply to the flow.
    pub(super) gate: OnceCell<Arc<Gate>>,
    /// The entry by which the next flow of the visitor finds this flow.
    pub(super) entry: RefCell<Option<Box<dyn FlowEntry>>>,
    pub(super) slot: Cell<Option<Slot>>,
    /// Datagrams that wait for the lookup. If the name has several addresses, the datagrams are
    /// kept until one address has answered.
    waiting: RefCell<Vec<Bytes>>,
    /// Untried addresses, the next address last.
    pub(super) others: RefCell<Vec<SocketAddr>>,
    stand_ins: Option<StandIns>,
    pub(super) waker: TaskWaker,
    /// Whether the counters include the flow.
    pub(super) is_counted: Cell<bool>,
    /// Whether the target has answered on the current socket.
    pub(super) is_answered: Cell<bool>,
    was_refused: Cell<bool>,
    doubt: Doubt,
}

/// The fallback targets of a flow.
struct StandIns {
    targets: Rc<dyn Targets>,
    /// Why the previous targets failed.
    failed: RefCell<Vec<DialError>>,
}

/// Evidence that the socket of a flow has an outdated address.
#[derive(Debug, Default)]
struct Doubt {
    /// The time of the first datagram sent since the last answer.
    unanswered_since: Cell<Option<Instant>>,
    /// The target refused a datagram since the last answer, or was unreachable.
    is_refused: Cell<bool>,
    /// The time before which the flow is not checked again, after a check without a result.
    until: Cell<Option<Instant>>,
    /// The number of such checks.
    times: Cell<u8>,
    /// The target has answered since an answer was last reported to the targets.
    is_heard: Cell<bool>,
    /// Datagrams were sent since the silence was last reported to the targets.
    is_used: Cell<bool>,
    /// The time at which the silence was last reported to the targets.
    reported: Cell<Option<Instant>>,
}

impl Doubt {
    fn begin(&self, now: Instant) {
        self.is_used.set(true);
        if self.unanswered_since.get().is_none() {
            self.unanswered_since.set(Some(now));
        }
    }

    fn end(&self) {
        self.is_heard.set(true);
        self.unanswered_since.take();
        self.is_refused.take();
        self.until.take();
        self.times.take();
    }

    fn is_there(&self, now: Instant) -> bool {
        self.until.get().is_none_or(|until| until <= now)
            && (self.is_refused.get() || self.is_silent(now))
    }

    fn is_silent(&self, now: Instant) -> bool {
        self.unanswered_since.get().is_some_and(|since| since + SILENT <= now)
    }

    /// Restarts the time without an answer: the datagrams are sent now, after a lookup or to
    /// another address.
    fn begin_anew(&self, now: Instant) {
        self.unanswered_since.set(Some(now));
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.address.borrow())
    }
}

impl Target {
    pub(super) fn new(
        address: TargetAddr,
        inlet: Box<dyn FlowInlet>,
        settings: &Rc<FlowSettings>,
        flows: &Rc<FlowTargets>,
        caller: FlowCaller,
    ) -> Rc<Self> {
        let FlowCaller { allow, visitor: _, permit, stand_ins, entry, former: _ } = caller;
        let flow = Rc::new(Self {
            settings: Rc::clone(settings),
            flows: Rc::clone(flows),
            address: RefCell::new(address),
            stand_ins: stand_ins.map(|targets| StandIns { targets, failed: RefCell::default() }),
            allow,
            state: RefCell::new(State::Looking),
            inlet: RefCell::new(Some(inlet.into())),
            permit: Cell::default(),
            gate: OnceCell::new(),
            entry: RefCell::new(entry),
            slot: Cell::new(None),
            waiting: RefCell::default(),
            others: RefCell::default(),
            waker: TaskWaker::default(),
            is_counted: Cell::new(false),
            is_answered: Cell::new(false),
            was_refused: Cell::new(false),
            doubt: Doubt::default(),
        });
        flow.admitted(permit);
        flow
    }

    /// The number of a flow whose socket may move.
    pub(super) fn id(&self) -> Option<u64> {
        self.entry.borrow().as_ref().map(|entry| entry.id())
    }

    /// Counts the flow, which is in the table now.
    pub(super) fn enter(&self) {
        self.settings.stats.enter();
        self.is_counted.set(true);
    }

    /// Handles the result of the lookup.
    pub(super) fn found(&self, found: Result<Vec<SocketAddr>, DialError>) {
        match found {
            Ok(mut addresses) => {
                addresses.reverse();
                self.others.replace(addresses);
                self.connect();
            }
            Err(error) => self.fail(error),
        }
    }

    /// Connects to the next address to which the system has a route, and sends the waiting
    /// datagrams.
    pub(super) fn connect(&self) {
        let mut first: Option<io::Error> = None;
        let socket = loop {
            let Some(target) = self.others.borrow_mut().pop() else { break None };
            match self.open_or_make_room(target) {
                Ok((socket, port)) => {
                    let socket = Rc::new(socket);
                    let local = socket.local_addr().ok().map(|local| local.ip());
                    let open = State::Open { socket: Rc::clone(&socket), target, local, port };
                    self.state.replace(open);
                    break Some(socket);
                }
                Err(error) => {
                    first = Some(match first {
                        Some(first) => more_specific(first, error),
                        None => error,
                    });
                }
            }
        };
        let Some(socket) = socket else {
            let source = first.unwrap_or_else(|| io::ErrorKind::NotFound.into());
            let target = self.address.borrow().clone();
            return self.fail(match Errno::from_io_error(&source) {
                Some(Errno::MFILE | Errno::NFILE) => DialError::Exhausted(target),
                Some(Errno::AGAIN) => DialError::Ports(target),
                // connect(2) of Linux; a route of type `prohibit` causes the same error.
                Some(Errno::ACCESS) => DialError::Broadcast(target),
                _ => DialError::Connect { target, source },
            });
        };
        self.send_waiting(&socket);
    }

    /// Sends the datagrams that have waited for the socket.
    pub(super) fn send_waiting(&self, socket: &FlowSocket) {
        let waiting =
            if self.may_move() { self.waiting.borrow().clone() } else { self.waiting.take() };
        if !waiting.is_empty() {
            self.doubt.begin_anew(Instant::now());
        }
        for datagram in waiting {
            self.send(socket, datagram);
        }
    }

    fn open_or_make_room(&self, target: SocketAddr) -> io::Result<(FlowSocket, Port)> {
        let is_exhausted = |error: &io::Error| {
            let errno = Errno::from_io_error(error);
            matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::AGAIN))
        };
        match self.open(target) {
            Err(error) if is_exhausted(&error) => {
                // The time that the flow waited for a lookup must not make it the oldest.
                let slot = self.slot.get();
                if let Some(slot) = slot {
                    self.flows.touch(slot, Instant::now());
                }
                if self.flows.make_room_for(slot) { self.open(target) } else { Err(error) }
            }
            outcome => outcome,
        }
    }

    fn open(&self, target: SocketAddr) -> io::Result<(FlowSocket, Port)> {
        let port = Port::take(self.settings.room)?;
        let socket = dialling(target)?;
        if self.settings.room.place(&socket) != Position::Inside {
            return Err(Errno::MFILE.into());
        }
        let FlowSettings { broadcast, socket: options, .. } = &*self.settings;
        options.at_connect(&socket)?;
        let connect = if *broadcast { FlowSocket::broadcast } else { FlowSocket::connect };
        let connected = connect(socket, target).map_err(|error| options.told(error))?;
        Ok((connected.marked(options.dscp), port))
    }

    /// Queues a datagram, which is sent at the end of the turn.
    fn send(&self, socket: &FlowSocket, datagram: Bytes) {
        let Some(route) = socket.route() else { return };
        // Queued datagrams have woken the task already.
        let is_first = !socket.has_unsent();
        socket.send(route, datagram, &FlowTally(self));
        if is_first {
            self.waker.wake();
        }
    }

    /// Stores a copy of a datagram, because the datagram may be a small part of a large buffer.
    fn keep(&self, datagram: &[u8]) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        let bytes: usize = waiting.iter().map(Bytes::len).sum();
        let has_room = waiting.len() < WAITING && bytes + datagram.len() <= WAITING_BYTES;
        if has_room {
            waiting.push(Bytes::copy_from_slice(datagram));
        }
        has_room
    }

    /// Passes on datagrams from the target.
    pub(super) fn arrived(&self, arrival: &Arrival<'_>) {
        let FlowSettings { stats, watcher, .. } = &*self.settings;
        stats.count_in(arrival.count(), arrival.bytes());
        let inlet = self.inlet.borrow().clone();
        let Some(inlet) = inlet else {
            return stats.count_dropped(DropReason::Late, arrival.count());
        };
        if let Some(slot) = self.slot.get() {
            self.flows.answer(slot);
        }
        self.doubt.end();
        if !self.is_answered.replace(true) {
            self.others.take();
            self.waiting.take();
            if let State::Open { port, .. } = &*self.state.borrow() {
                port.answered();
            }
            if let Some(watcher) = watcher {
                watcher.dialled(Ok(()));
            }
        }
        if !self.may_pass(Way::Down, arrival.bytes()) {
            return stats.count_dropped(DropReason::Rate, arrival.count());
        }
        let _ = pass_on(arrival, &*inlet, stats);
    }

    /// Charges this number of bytes to the rates in force. Returns false if they exceed a rate.
    fn may_pass(&self, way: Way, bytes: usize) -> bool {
        self.gate.get().is_none_or(|gate| pace::take_now(gate, way, bytes, true))
    }

    /// Whether sent datagrams may have to be repeated to another address.
    fn may_move(&self) -> bool {
        let has_others = !self.others.borrow().is_empty();
        has_others || (self.stand_ins.is_some() && !self.is_answered.get())
    }

    /// Checks whether the target refused a datagram, as long as it has not answered. Returns true
    /// if the flow moved to another address: a name may have an IPv6 address without a listener,
    /// and there may be a fallback target.
    pub(super) fn moves_on(&self, socket: &FlowSocket) -> bool {
        if self.is_answered.get() {
            return false;
        }
        if self.may_move() && socket.take_error() {
            FlowTally(self).lost(Loss::Unreachable, 1);
        }
        if !self.was_refused.take() {
            return false;
        }
        // A refusal follows the first datagram at once. A target that was silent for longer has
        // received the datagrams, which must not be sent to another address again.
        if self.doubt.is_silent(Instant::now()) {
            self.waiting.take();
        }
        if !self.others.borrow().is_empty() {
            self.connect();
            return true;
        }
        match self.take_next(self.refusal()) {
            Ok(()) => true,
            Err(error) => {
                self.report_failure(&error);
                false
            }
        }
    }

    fn refusal(&self) -> DialError {
        DialError::Connect {
            target: self.address.borrow().clone(),
            source: io::ErrorKind::ConnectionRefused.into(),
        }
    }

    /// Switches to the next fallback target, whose name is not resolved yet. Returns the error if
    /// no target is left; a target may refuse many datagrams, and its error is kept once.
    fn take_next(&self, error: DialError) -> Result<(), DialError> {
        let Some(StandIns { targets, failed }) = &self.stand_ins else { return Err(error) };
        let mut failed = failed.borrow_mut();
        failed.push(error);
        let Some(next) = targets.next(&failed) else {
            let last = failed.len() - 1;
            return Err(failed.swap_remove(last));
        };
        drop(failed);
        self.address.replace(next);
        self.doubt.end();
        self.doubt.is_heard.set(false);
        if let State::Open { socket, .. } = self.state.replace(State::Looking) {
            socket.flush_last(&*self.settings.stats);
        }
        self.waker.wake();
        Ok(())
    }

    /// Ends a flow whose target refuses datagrams, if there are fallback targets.
    pub(super) fn leaves_target(&self) -> bool {
        let leaves = self.stand_ins.is_some() && self.was_refused_lately();
        if leaves {
            self.report_failure(&self.refusal());
            self.end(Some(ResetCode::Refused));
        }
        leaves
    }

    /// Reports to the group of targets that this target has answered since the last check. Returns
    /// whether its silence must be reported.
    pub(super) fn must_report_silence(&self, now: Instant) -> bool {
        let Some(StandIns { targets, .. }) = &self.stand_ins else { return false };
        if self.doubt.is_heard.take() {
            targets.note_answers(true);
            return false;
        }
        let reported = self.doubt.reported.get();
        let is_due = reported.is_none_or(|at| at + SILENT <= now) && self.doubt.is_silent(now);
        is_due && self.doubt.is_used.get()
    }

    /// Reports the silence of this target to the group of targets. Ends the flow if another target
    /// answers: the next datagram of its peer begins a flow there.
    pub(super) fn leaves_silence(&self, now: Instant) {
        self.doubt.reported.set(Some(now));
        self.doubt.is_used.set(false);
        let Some(StandIns { targets, .. }) = &self.stand_ins else { return };
        if targets.note_answers(false) {
            self.end(Some(ResetCode::Shutdown));
        }
    }

    /// Handles a target that cannot be reached.
    fn fail(&self, error: DialError) {
        let code = error.code();
        tracing::debug!(%error, "the target of a flow cannot be reached");
        let Err(error) = self.take_next(error) else { return };
        self.report_failure(&error);
        let reason = DropReason::of_refusal(code);
        self.settings.stats.count_dropped(reason, self.waiting.borrow().len());
        self.end(Some(code));
    }

    fn report_failure(&self, error: &DialError) {
        let FlowSettings { stats, watcher, .. } = &*self.settings;
        let Some(watcher) = watcher else { return };
        watcher.dialled(Err(error));
        // The code that denied the target has logged the denial, with the missing right.
        if !matches!(error, DialError::Denied(_)) && stats.complaints.ready() {
            let reason = DropReason::of_refusal(error.code());
            watcher.complain_of_dial(error, stats.dropped(reason).max(1));
        }
    }

    /// The target address of the socket, and its local IP address.
    pub(super) fn ends(&self) -> Option<(SocketAddr, Option<IpAddr>)> {
        match &*self.state.borrow() {
            State::Open { target, local, .. } => Some((*target, *local)),
            State::Looking | State::Closed => None,
        }
    }

    pub(super) fn has_name(&self) -> bool {
        match &*self.address.borrow() {
            TargetAddr::Udp { host, .. } => host.parse::<IpAddr>().is_err(),
            TargetAddr::Tcp { .. } | TargetAddr::Unix(_) => false,
        }
    }

    /// Whether the flow is due for a check, because its target refused a datagram or is silent.
    pub(super) fn is_in_doubt(&self, now: Instant) -> bool {
        self.doubt.is_there(now)
    }

    /// Whether the target has refused a datagram since its last answer.
    pub(super) fn was_refused_lately(&self) -> bool {
        self.doubt.is_refused.get()
    }

    /// Records a check of the flow.
    pub(super) fn judged(&self, now: Instant) {
        let times = self.doubt.times.get();
        self.doubt.until.set(Some(now + Duration::from_secs(1 << times)));
        self.doubt.times.set((times + 1).min(PAUSES));
    }

    /// Replaces the socket, for one of the target's current addresses. An address that refused is
    /// tried last.
    pub(super) fn renew(&self, mut addresses: Vec<SocketAddr>) {
        let Some((former, _)) = self.ends() else { return };
        if let State::Open { socket, .. } = self.state.replace(State::Looking) {
            socket.flush_last(&*self.settings.stats);
        }
        self.is_answered.set(false);
        self.was_refused.set(false);
        self.waiting.take();
        self.doubt.unanswered_since.take();
        if self.doubt.is_refused.take() {
            addresses.sort_by_key(|address| *address == former);
        }
        self.found(Ok(addresses));
        self.waker.wake();
    }

    /// Evicts the flow, because another flow or a connection needs its slot. Returns whether the
    /// flow had a socket.
    pub(super) fn evict(&self) -> bool {
        let stats = &self.settings.stats;
        let has_socket = self.ends().is_some();
        stats.count_evicted();
        if !self.is_answered.get() {
            stats.count_dropped(DropReason::Evicted, 1);
            self.report_full(DropReason::Evicted);
        }
        self.end(Some(ResetCode::Limit));
        has_socket
    }

    /// Reports that flows are dropped for lack of room.
    pub(super) fn report_full(&self, reason: DropReason) {
        let FlowSettings { stats, watcher, .. } = &*self.settings;
        if let Some(watcher) = watcher
            && stats.complaints.ready()
        {
            let address = self.address.borrow().clone();
            watcher.complain_of_dial(&DialError::Full(address), stats.dropped(reason));
        }
    }

    /// Ends the flow; with a code, on the far side as well. No table may be borrowed.
    pub(super) fn end(&self, code: Option<ResetCode>) {
        let stats = &*self.settings.stats;
        match self.state.replace(State::Closed) {
            State::Closed => return,
            State::Looking => {}
            State::Open { socket, .. } => socket.flush_last(stats),
        }
        self.leave(code);
    }

    /// Gives back what the flow holds, after its state is `Closed`.
    pub(super) fn leave(&self, code: Option<ResetCode>) {
        if let Some(slot) = self.slot.take() {
            self.flows.remove(slot);
        }
        drop(self.entry.take());
        let inlet = self.inlet.take();
        if let (Some(inlet), Some(code)) = (inlet, code) {
            inlet.close(code);
        }
        self.waiting.take();
        self.others.take();
        drop(self.permit.take());
        if self.is_counted.take() {
            self.settings.stats.leave();
        }
        self.waker.wake();
    }
}

impl FlowOutlet for Target {
    fn deliver(&self, datagram: Bytes) {
        let stats = &self.settings.stats;
        if !self.may_pass(Way::Up, datagram.len()) {
            return stats.count_dropped(DropReason::Rate, 1);
        }
        let socket = match &*self.state.borrow() {
            State::Closed => return stats.count_dropped(DropReason::Late, 1),
            State::Looking => None,
            State::Open { socket, .. } => Some(Rc::clone(socket)),
        };
        // The datagrams of a turn count as one use of the flow.
        let is_first = socket.as_ref().is_none_or(|socket| !socket.has_unsent());
        if let Some(slot) = self.slot.get().filter(|_| is_first) {
            let now = Instant::now();
            self.flows.touch(slot, now);
            self.doubt.begin(now);
        }
        match socket {
            None if self.keep(&datagram) => {}
            None => stats.count_dropped(DropReason::Early, 1),
            Some(socket) => {
                if self.may_move() {
                    self.keep(&datagram);
                }
                self.send(&socket, datagram);
            }
        }
    }

    fn close(&self, code: ResetCode) {
        // With other codes the server says that the flow itself is over.
        if code != ResetCode::Shutdown || !self.park() {
            self.end(None);
        }
    }

    fn peer(&self) -> Option<SocketAddr> {
        match &*self.state.borrow() {
            State::Open { target, .. } => Some(canonical(*target)),
            State::Looking | State::Closed => None,
        }
    }

    fn counted_in(&self) -> *const () {
        self.settings.stats.identity()
    }
}

/// Counts the datagrams of a flow, and records refusals by the target.
pub(super) struct FlowTally<'a>(pub(super) &'a Target);

impl Tally for FlowTally<'_> {
    fn sent(&self, datagrams: usize, bytes: usize) {
        self.0.settings.stats.sent(datagrams, bytes);
    }

    fn lost(&self, loss: Loss, datagrams: usize) {
        if loss == Loss::Unreachable {
            self.0.was_refused.set(true);
            self.0.doubt.is_refused.set(true);
        }
        self.0.settings.stats.lost(loss, datagrams);
    }
}

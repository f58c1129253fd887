//! The handle of a link: the state machine, the outlets of its streams, and what wakes whom.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use proto::control::{ControlDecoder, ControlMessage, Strained};
use proto::{
    Budget, CarrierNumber, Event, Open, ResetCode, Side, StreamCounts, StreamId, StreamKey,
    Violation,
};
use proto::{GOAWAY_CLOSED, GOAWAY_DONE, GOAWAY_RETIRE};
use tokio::sync::Notify;
use transport::{Connector, Inlet, OpenError, Outlet};

use crate::carrier::{Running, Wakers};
use crate::client::{Little, Way};
use crate::inlet::StreamInlet;
use crate::owner::{End, Notice, Owner, Settings, State};
use crate::retire::Retirement;
use crate::timer::Timer;

/// A link. Cheap to clone; all clones are the same link.
#[derive(Clone, Debug)]
pub struct Link {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) serial: u64,
    pub(crate) machine: RefCell<proto::Link>,
    pub(crate) budget: Rc<dyn Budget>,
    /// By the index of their keys; the id tells a stream from a later one in its place.
    outlets: RefCell<Vec<Slot>>,
    pub(crate) owner: Rc<dyn Owner>,
    control: RefCell<ControlDecoder>,
    pub(crate) carriers: RefCell<Vec<Running>>,
    /// Highest carrier number ever attached.
    pub(crate) last_carrier: Cell<CarrierNumber>,
    /// Reads that brought something.
    pub(crate) heard: Cell<u64>,
    pub(crate) wakers: Wakers,
    pub(crate) timer: Timer,
    /// A [`crate::drive::Turn`] is under way.
    pub(crate) has_turn: Cell<bool>,
    pub(crate) ended: Cell<Option<End>>,
    pub(crate) retirement: Retirement,
    /// Goodbye was said: the link ends with its carrier.
    pub(crate) closing: Cell<bool>,
    pub(crate) notices: RefCell<Vec<Notice>>,
    /// What [`Notice::Strained`] is about.
    pub(crate) little: Cell<Option<Little>>,
    notify: Notify,
    /// Received and sent payload bytes over all streams.
    pub(crate) received: Cell<u64>,
    pub(crate) sent: Cell<u64>,
    resumes: Cell<u64>,
}

type Slot = Option<(StreamId, Rc<dyn Outlet>)>;

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("serial", &self.serial).finish_non_exhaustive()
    }
}

impl Link {
    /// A link without a carrier; its timer runs as a task of this worker.
    pub fn new(settings: Settings, owner: Rc<dyn Owner>) -> Self {
        let Settings { side, config, budget, serial } = settings;
        let inner = Rc::new(Inner {
            serial,
            machine: RefCell::new(proto::Link::new(side, config, Rc::clone(&budget), crate::now())),
            budget,
            outlets: RefCell::default(),
            owner,
            control: RefCell::new(ControlDecoder::new()),
            carriers: RefCell::default(),
            last_carrier: Cell::new(CarrierNumber(0)),
            heard: Cell::new(0),
            wakers: Wakers::default(),
            timer: Timer::default(),
            has_turn: Cell::new(false),
            ended: Cell::new(None),
            retirement: Retirement::default(),
            closing: Cell::new(false),
            notices: RefCell::default(),
            little: Cell::default(),
            notify: Notify::new(),
            received: Cell::new(0),
            sent: Cell::new(0),
            resumes: Cell::new(0),
        });
        inner.timer.start(&inner);
        Self { inner }
    }

    /// The number in logs.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.inner.serial
    }

    /// Whether frames can flow.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.inner.ended.get().is_none() && self.inner.machine.borrow().is_live()
    }

    /// Whether it is over.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended().is_some()
    }

    /// Why it is over, if it is.
    #[must_use]
    pub fn ended(&self) -> Option<End> {
        self.inner.ended.get()
    }

    /// Streams that are open.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.inner.machine.borrow().stream_count()
    }

    /// Its streams with their outlets, in no order.
    #[must_use]
    pub fn streams(&self) -> Vec<(StreamCounts, Rc<dyn Outlet>)> {
        let outlets = self.inner.outlets.borrow();
        let outlets: HashMap<_, _> = outlets.iter().flatten().map(|(id, o)| (*id, o)).collect();
        let machine = self.inner.machine.borrow();
        let streams = machine.streams();
        streams.filter_map(|s| Some((s, Rc::clone(outlets.get(&s.id)?)))).collect()
    }

    /// Ends a stream as an abort does: a reset on both sides. False: there is no such stream.
    #[must_use]
    pub fn abort(&self, id: StreamId) -> bool {
        let outlets = self.inner.outlets.borrow();
        let found = outlets.iter().flatten().find(|(known, _)| *known == id);
        let outlet = found.map(|(_, outlet)| Rc::clone(outlet));
        drop(outlets);
        // Whoever pumps there closes the socket and lets the stream go, which tells the peer.
        outlet.is_some_and(|outlet| {
            outlet.reset(ResetCode::Aborted);
            true
        })
    }

    /// Least round-trip time of the present carrier.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.inner.machine.borrow().round_trip()
    }

    /// Received and sent payload bytes, and how often it resumed.
    #[must_use]
    pub fn totals(&self) -> (u64, u64, u64) {
        (self.inner.received.get(), self.inner.sent.get(), self.inner.resumes.get())
    }

    /// Payload bytes that are kept until the peer has consumed them.
    #[must_use]
    pub fn retained(&self) -> u64 {
        self.inner.machine.borrow().retained()
    }

    /// The carriers in use: number, and what is known of the far end.
    #[must_use]
    pub fn carriers(&self) -> Vec<(CarrierNumber, transport::Peer)> {
        let carriers = self.inner.carriers.borrow();
        carriers.iter().map(|running| (running.number, running.peer.clone())).collect()
    }

    /// Sends a message on the control stream. False when it does not fit or the link is over.
    #[must_use]
    pub fn send_message(&self, message: &ControlMessage) -> bool {
        let Ok(bytes) = message.encode() else { return false };
        if self.has_ended() {
            return false;
        }
        let taken = self.inner.machine.borrow_mut().send_control(&bytes);
        self.inner.commanded();
        taken
    }

    /// Tells the peer that the link ends now; [`Link::close`] follows when that had time to leave.
    pub fn say_goodbye(&self) {
        self.inner.retirement.going_away.set(true);
        self.inner.closing.set(true);
        self.inner.machine.borrow_mut().close();
        self.inner.retirement.fate.notify_one();
        self.inner.commanded();
    }

    /// Ends the link at once; its streams are reset on both sides.
    pub fn close(&self) {
        self.inner.end(End::Closed);
    }

    pub(crate) async fn notice(&self) -> Notice {
        loop {
            let notice = {
                let mut notices = self.inner.notices.borrow_mut();
                (!notices.is_empty()).then(|| notices.remove(0))
            };
            match notice {
                Some(notice) => return notice,
                None => self.inner.notify.notified().await,
            }
        }
    }
}

impl Connector for Link {
    fn open(&self, open: Open, outlet: Rc<dyn Outlet>) -> Result<Box<dyn Inlet>, OpenError> {
        if self.inner.ended.get().is_some() || self.inner.retirement.going_away.get() {
            return Err(OpenError::Closed);
        }
        let key = self.inner.machine.borrow_mut().open(&open).ok_or(OpenError::Closed)?;
        self.inner.put_outlet(key, outlet);
        let (link, stream) = (self.inner.serial, key.id().raw());
        tracing::debug!(link, stream, to = ?open.target, visitor = ?open.visitor, "stream opened");
        if self.is_going_away() {
            // That was the last id: the owner must know before the next visitor comes.
            self.inner.drive(crate::now());
        } else {
            self.inner.commanded();
        }
        Ok(Box::new(StreamInlet::new(Rc::clone(&self.inner), key)))
    }
}

impl Inner {
    fn put_outlet(&self, key: StreamKey, outlet: Rc<dyn Outlet>) {
        let mut outlets = self.outlets.borrow_mut();
        if outlets.len() <= key.index() {
            outlets.resize_with(key.index() + 1, || None);
        }
        let former = outlets[key.index()].replace((key.id(), outlet));
        // Dropping it calls out.
        drop(outlets);
        drop(former);
    }

    pub(crate) fn outlet(&self, key: StreamKey) -> Option<Rc<dyn Outlet>> {
        let outlets = self.outlets.borrow();
        let (id, outlet) = outlets.get(key.index())?.as_ref()?;
        (*id == key.id()).then(|| Rc::clone(outlet))
    }

    fn take_outlet(&self, key: StreamKey) -> Option<Rc<dyn Outlet>> {
        let mut outlets = self.outlets.borrow_mut();
        let slot = outlets.get_mut(key.index())?;
        slot.take_if(|(id, _)| *id == key.id()).map(|(_, outlet)| outlet)
    }

    pub(crate) fn handle(self: &Rc<Self>) -> Link {
        Link { inner: Rc::clone(self) }
    }

    pub(crate) fn tell(&self, notice: Notice) {
        let mut notices = self.notices.borrow_mut();
        // The same news twice is no news; so the list is as short as the enum.
        if !notices.contains(&notice) {
            notices.push(notice);
        }
        self.notify.notify_one();
    }

    pub(crate) fn dispatch(self: &Rc<Self>, now: Instant, event: Event) {
        if self.ended.get().is_some() {
            // Whoever owned it knows that all its streams are gone.
            return;
        }
        match event {
            Event::Data { key, bytes } => self.deliver(now, key, &mut VecDeque::from([bytes])),
            Event::Opened { key, open } => {
                let (link, stream) = (self.serial, key.id().raw());
                let (to, visitor) = (&open.target, open.visitor);
                tracing::debug!(link, stream, ?to, ?visitor, "stream opened by the other side");
                let inlet = Box::new(StreamInlet::new(Rc::clone(self), key));
                let outlet = self.owner.accept(&self.handle(), open, inlet);
                if self.ended.get().is_some() {
                    return outlet.reset(ResetCode::Shutdown);
                }
                self.put_outlet(key, outlet);
            }
            Event::Finished { key } => {
                if let Some(outlet) = self.outlet(key) {
                    outlet.finish();
                }
            }
            Event::Reset { key, code } => {
                let (link, stream) = (self.serial, key.id().raw());
                tracing::debug!(link, stream, reason = %code, "stream reset by the other side");
                if let Some(outlet) = self.outlet(key) {
                    outlet.reset(code);
                }
            }
            Event::Stopped { key, code } => {
                if let Some(outlet) = self.outlet(key) {
                    outlet.stop(code);
                }
            }
            Event::Closed { key } => {
                tracing::debug!(link = self.serial, stream = key.id().raw(), "stream closed");
                drop(self.take_outlet(key));
                self.end_if_over();
            }
            Event::Control(bytes) => self.control(bytes),
            Event::Resumed => {
                self.resumes.set(self.resumes.get() + 1);
                self.owner.changed(&self.handle(), State::Live);
            }
            Event::ProbeNextPath => self.tell(Notice::Probe),
            Event::CarrierDead(number) => self.carrier_ended(number),
            Event::GoingAway(GOAWAY_RETIRE) => self.retire(false),
            Event::GoingAway(GOAWAY_DONE) => self.retire(true),
            // Both may say goodbye at once.
            Event::GoingAway(GOAWAY_CLOSED) if self.closing.get() => self.end(End::Closed),
            Event::GoingAway(GOAWAY_CLOSED) => self.end(End::ByPeer),
            Event::GoingAway(code) => self.end(End::Accused(code)),
            Event::Expired => self.end(End::Expired),
        }
    }

    /// Hands on what came for a stream; `pieces` is empty afterwards.
    pub(crate) fn deliver(&self, now: Instant, key: StreamKey, pieces: &mut VecDeque<Bytes>) {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        self.received.set(self.received.get() + length as u64);
        // A stream without an outlet is being torn down: its bytes are worth nothing.
        let taken = self.outlet(key).map_or(length, |outlet| outlet.deliver(pieces));
        pieces.clear();
        self.machine.borrow_mut().consume(now, key, taken);
    }

    fn control(self: &Rc<Self>, mut bytes: Bytes) {
        loop {
            let decoded = self.control.borrow_mut().decode(&mut bytes);
            match decoded {
                Ok(Some(ControlMessage::Strained(strained))) => {
                    self.carries_little(Little { way: Way::Down, rate: strained.rate });
                }
                Ok(Some(message)) => self.owner.message(&self.handle(), message),
                Ok(None) => return,
                Err(_) => {
                    let violation = Violation::link(proto::ViolationCode::Malformed);
                    return self.end(End::Violation(violation));
                }
            }
        }
    }

    /// The active carrier takes so few bytes a second of what there is to send here.
    pub(crate) fn strained(self: &Rc<Self>, rate: u64) {
        let side = self.machine.borrow().side();
        match side {
            Side::Client => self.carries_little(Little { way: Way::Up, rate }),
            // Where there is no room for it nothing is lost.
            Side::Server => {
                let _ = self.handle().send_message(&ControlMessage::Strained(Strained { rate }));
            }
        }
    }

    /// Only a client has other paths.
    fn carries_little(&self, little: Little) {
        if self.machine.borrow().side() == Side::Client {
            self.little.set(Some(little));
            self.tell(Notice::Strained);
        }
    }

    /// A carrier is gone: by error, silence, or because another replaced it.
    pub(crate) fn carrier_ended(self: &Rc<Self>, number: CarrierNumber) {
        let before = self.carriers.borrow().len();
        self.drop_carriers(|running| running.number == number);
        if self.carriers.borrow().len() == before {
            return;
        }
        let now = crate::now();
        self.machine.borrow_mut().detach(now, number);
        if self.closing.get() {
            return self.end(End::Closed);
        }
        if self.carriers.borrow().is_empty() && self.ended.get().is_none() {
            self.owner.changed(&self.handle(), State::Stalled);
            self.tell(Notice::CarrierLost);
        }
        self.drive(now);
    }

    pub(crate) fn drop_carriers(&self, matches: impl Fn(&Running) -> bool) {
        let mut gone = Vec::new();
        self.carriers.borrow_mut().retain_mut(|running| {
            let matched = matches(running);
            if matched {
                gone.push(running.number);
            }
            !matched
        });
        for number in gone {
            self.wakers.forget(number);
        }
    }

    /// Ends the link: the peer is told, carriers are closed, sockets reset. Later calls do nothing.
    pub(crate) fn end(self: &Rc<Self>, end: End) {
        if self.ended.get().is_some() {
            return;
        }
        self.ended.set(Some(end));
        self.timer.stop();
        let carriers = std::mem::take(&mut *self.carriers.borrow_mut());
        if self.leave_word(end) {
            carriers.into_iter().for_each(Running::retire);
            self.wakers.wake_all();
        }
        self.tell(Notice::Ended(end));
        self.retirement.fate.notify_one();
        let outlets = std::mem::take(&mut *self.outlets.borrow_mut());
        for (_, outlet) in outlets.into_iter().flatten() {
            outlet.reset(ResetCode::Shutdown);
        }
        self.owner.changed(&self.handle(), State::Ended(end));
    }

    /// Makes the last frame. False: the peer knows, or cannot be told.
    fn leave_word(&self, end: End) -> bool {
        let mut machine = self.machine.borrow_mut();
        match end {
            End::Closed | End::Retired | End::Panicked => machine.close(),
            End::Violation(violation) => machine.abort(violation),
            End::ByPeer | End::Accused(_) | End::Expired | End::Forgotten => return false,
        }
        true
    }
}

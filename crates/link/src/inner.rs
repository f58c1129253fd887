//! A link: its state machine, the outlets of its streams, its carriers, and its owner. The trait of
//! the owner and the link refer to each other, so both are in this file.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use proto::control::{ControlDecoder, ControlMessage};
use proto::greeting::Features;
use proto::{Budget, CarrierNumber, FlowId, Open, ResetCode, StreamId, StreamKey};
use transport::{FlowInlet, FlowOutlet, Inlet, Outlet};

use crate::alarm::Alarm;
use crate::gauge::Doubted;
use crate::notices::Notices;
use crate::orders::Orders;
use crate::pages::{RecentSmall, RetainedPages};
use crate::retirement::Retirement;
use crate::state::{End, Settings, State};
use crate::tasks::CarrierTasks;
use crate::wakers::Wakers;

/// The owner of a link takes its streams and messages. A link calls its owner on the worker of the
/// link, never while the state machine is borrowed. The owner must not block.
pub trait Owner: fmt::Debug {
    /// Accepts a stream that the peer opened.
    fn accept(&self, link: &Link, open: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet>;
    /// Accepts a flow that the peer opened. `None`: the owner has closed the inlet with the reason.
    fn accept_flow(
        &self,
        _link: &Link,
        _open: Open,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>> {
        inlet.close(ResetCode::Unknown);
        None
    }
    /// Handles a message from the control stream.
    fn message(&self, link: &Link, message: ControlMessage);
    /// Called when the peer of a live link does not answer in time (`answers` is false), or answers
    /// again. A link with a new carrier ([`State::Live`]) counts as answering.
    fn answers(&self, _link: &Link, _answers: bool) {}
    /// Called when the link changed its state.
    fn changed(&self, link: &Link, state: State);
}

/// A handle of a link. Cheap to clone; all clones refer to the same link.
#[derive(Clone, Debug)]
pub struct Link {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) serial: u64,
    pub(crate) features: Features,
    pub(crate) machine: RefCell<proto::Link>,
    pub(crate) budget: Rc<dyn Budget>,
    /// Outlets by the index of their keys. The id distinguishes a stream from a later stream at the
    /// same index.
    pub(crate) outlets: RefCell<Vec<Slot>>,
    /// Outlets of flows, indexed likewise.
    pub(crate) flows: RefCell<Vec<FlowSlot>>,
    pub(crate) owner: Rc<dyn Owner>,
    pub(crate) control: RefCell<ControlDecoder>,
    pub(crate) carriers: RefCell<Vec<CarrierTasks>>,
    /// Payload kept as pages.
    pub(crate) retained: RetainedPages,
    /// The streams that last moved small payloads.
    pub(crate) recent_small: RecentSmall,
    /// The highest carrier number that was attached.
    pub(crate) last_carrier: Cell<CarrierNumber>,
    /// The number of reads that returned bytes.
    pub(crate) heard: Cell<u64>,
    pub(crate) wakers: Wakers,
    pub(crate) timer: Alarm,
    /// Whether a [`crate::drive::Turn`] is in progress.
    pub(crate) has_turn: Cell<bool>,
    pub(crate) ended: Cell<Option<End>>,
    pub(crate) retirement: Retirement,
    /// Whether this end has sent GOAWAY: the link then ends when its carrier or its last stream
    /// ends.
    pub(crate) closing: Cell<bool>,
    pub(crate) notices: Notices,
    /// The active carrier, while it is compared with the standby.
    pub(crate) doubted: RefCell<Option<Doubted>>,
    /// The command to move that the supervisor of the link has not taken yet.
    pub(crate) orders: Orders,
    /// Received and sent payload bytes over all streams.
    pub(crate) received: Cell<u64>,
    pub(crate) sent: Cell<u64>,
    pub(crate) resumes: Cell<u64>,
    /// The window of unread bytes of the last carrier with lanes, in bytes.
    pub(crate) unread_window: Rc<Cell<u64>>,
}

pub(crate) type Slot = Option<(StreamId, Rc<dyn Outlet>)>;
pub(crate) type FlowSlot = Option<(FlowId, Rc<dyn FlowOutlet>)>;

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("serial", &self.serial).finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn new(settings: Settings, owner: Rc<dyn Owner>) -> Self {
        let Settings { side, mut config, budget, serial, features } = settings;
        if !features.have(Features::FLOWS) {
            config.flows_max = 0;
        }
        Self {
            serial,
            features,
            machine: RefCell::new(proto::Link::new(side, config, Rc::clone(&budget), crate::now())),
            budget,
            outlets: RefCell::default(),
            flows: RefCell::default(),
            owner,
            control: RefCell::new(ControlDecoder::new()),
            carriers: RefCell::default(),
            retained: RetainedPages::default(),
            recent_small: RecentSmall::default(),
            last_carrier: Cell::new(CarrierNumber(0)),
            heard: Cell::new(0),
            wakers: Wakers::default(),
            timer: Alarm::default(),
            has_turn: Cell::new(false),
            ended: Cell::new(None),
            retirement: Retirement::default(),
            closing: Cell::new(false),
            notices: Notices::default(),
            doubted: RefCell::default(),
            orders: Orders::default(),
            received: Cell::new(0),
            sent: Cell::new(0),
            resumes: Cell::new(0),
            unread_window: Rc::default(),
        }
    }

    pub(crate) fn put_outlet(&self, key: StreamKey, outlet: Rc<dyn Outlet>) {
        let mut outlets = self.outlets.borrow_mut();
        if outlets.len() <= key.index() {
            outlets.resize_with(key.index() + 1, || None);
        }
        let former = outlets[key.index()].replace((key.id(), outlet));
        // The drop of the outlet may call back into the link.
        drop(outlets);
        drop(former);
    }

    pub(crate) fn outlet(&self, key: StreamKey) -> Option<Rc<dyn Outlet>> {
        let outlets = self.outlets.borrow();
        let (id, outlet) = outlets.get(key.index())?.as_ref()?;
        (*id == key.id()).then(|| Rc::clone(outlet))
    }

    pub(crate) fn take_outlet(&self, key: StreamKey) -> Option<Rc<dyn Outlet>> {
        let mut outlets = self.outlets.borrow_mut();
        let slot = outlets.get_mut(key.index())?;
        slot.take_if(|(id, _)| *id == key.id()).map(|(_, outlet)| outlet)
    }

    pub(crate) fn handle(self: &Rc<Self>) -> Link {
        Link { inner: Rc::clone(self) }
    }
}

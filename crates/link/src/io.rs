//! The state that the tasks of a carrier share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use proto::CarrierNumber;
use transport::Lane;

use crate::charge::Charge;
use crate::gathered::Gathered;
use crate::gauge::Gauge;
use crate::inner::Inner;
use crate::lanes::StreamLanes;
use crate::outbox::Outbox;
use crate::packets::Packets;
use crate::strain::Strain;

/// The state that the readers and the writer of a carrier share.
pub(crate) struct CarrierIo {
    pub(crate) number: CarrierNumber,
    pub(crate) lane: RefCell<Box<dyn Lane>>,
    pub(crate) outbox: RefCell<Outbox>,
    /// Whether the lane takes payload as pages.
    pub(crate) takes_pages: bool,
    /// Whether the lane returns payload as pages.
    pub(crate) gives_pages: bool,
    /// The lanes of single streams, if the transport has such lanes.
    pub(crate) stream_lanes: Option<Rc<StreamLanes>>,
    /// The datagrams of the carrier, if the transport and the peer support them.
    pub(crate) packets: Option<Packets>,
    /// A list of the reader. It is empty between two turns and kept to reuse its memory.
    pub(crate) run: Cell<Gathered>,
    /// The total capacity of the readers' buffers.
    pub(crate) reading: Cell<usize>,
    charge: Charge,
    strain: Strain,
}

impl CarrierIo {
    pub(crate) fn new(
        link: &Inner,
        number: CarrierNumber,
        mut lane: Box<dyn Lane>,
        stream_lanes: Option<Rc<StreamLanes>>,
        packets: Option<Packets>,
        gauge: Gauge,
    ) -> Self {
        let takes_pages = stream_lanes.is_none() && lane.page_sink().is_some();
        let gives_pages = stream_lanes.is_none() && lane.page_source().is_some();
        Self {
            number,
            lane: RefCell::new(lane),
            outbox: RefCell::default(),
            takes_pages,
            gives_pages,
            stream_lanes,
            packets,
            run: Cell::default(),
            reading: Cell::new(0),
            charge: Charge::new(Rc::clone(&link.budget)),
            strain: Strain::new(gauge),
        }
    }

    /// Charges the buffers of this carrier to the budget. Called at the end of each turn of its
    /// tasks.
    pub(crate) fn account(&self) {
        self.charge.set(self.reading.get() + self.lane.borrow().held());
    }

    /// Reports a strained carrier to the link, and ends lanes of silent streams. Called at the end
    /// of each turn of its tasks. Returns true if lanes remain to be checked in another turn.
    pub(crate) fn look(&self, link: &Rc<Inner>) -> bool {
        if self.stream_lanes.is_none() && self.strain.is_blind() {
            return false;
        }
        let now = crate::now();
        if let Some(rate) = self.strain.look(now, !self.outbox.borrow().is_empty()) {
            link.strained(rate);
        }
        self.stream_lanes
            .as_ref()
            .is_some_and(|stream_lanes| stream_lanes.rest(&mut link.machine.borrow_mut(), now))
    }
}

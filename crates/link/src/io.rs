//! What the tasks of a carrier share.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use proto::CarrierNumber;
use transport::{Lane, Watch};

use crate::charge::Charge;
use crate::gathered::Gathered;
use crate::inner::Inner;
use crate::lanes::StreamLanes;
use crate::strain::Strain;

/// What reader and writer of a carrier share.
pub(crate) struct CarrierIo {
    pub(crate) number: CarrierNumber,
    pub(crate) lane: RefCell<Box<dyn Lane>>,
    /// Frames handed out by the machine and not yet taken by the lane.
    pub(crate) out: RefCell<VecDeque<Bytes>>,
    /// Lanes of single streams, where the transport has them.
    pub(crate) stream_lanes: Option<Rc<StreamLanes>>,
    /// The reader's, between its turns: only its memory matters.
    pub(crate) run: Cell<Gathered>,
    /// Capacity of the readers' buffers.
    pub(crate) reading: Cell<usize>,
    charge: Charge,
    strain: Strain,
}

impl CarrierIo {
    pub(crate) fn new(
        link: &Inner,
        number: CarrierNumber,
        lane: Box<dyn Lane>,
        stream_lanes: Option<Rc<StreamLanes>>,
        watch: Option<Arc<dyn Watch>>,
    ) -> Self {
        Self {
            number,
            lane: RefCell::new(lane),
            out: RefCell::default(),
            stream_lanes,
            run: Cell::default(),
            reading: Cell::new(0),
            charge: Charge::new(Rc::clone(&link.budget)),
            strain: Strain::new(watch),
        }
    }

    /// Tells the budget what the buffers of this carrier take. At the end of a turn of its tasks.
    pub(crate) fn account(&self) {
        self.charge.set(self.reading.get() + self.lane.borrow().held());
    }

    /// Tells the link if the carrier takes little, and puts lanes to rest. At the end of a turn of its tasks;
    /// true if there is to be another one soon.
    pub(crate) fn look(&self, link: &Rc<Inner>) -> bool {
        if self.stream_lanes.is_none() && self.strain.is_blind() {
            return false;
        }
        let now = crate::now();
        if let Some(rate) = self.strain.look(now) {
            link.strained(rate);
        }
        self.stream_lanes
            .as_ref()
            .is_some_and(|stream_lanes| stream_lanes.rest(&mut link.machine.borrow_mut(), now))
    }
}

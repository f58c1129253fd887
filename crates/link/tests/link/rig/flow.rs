//! One end of a flow, which keeps what it got.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use link::Link;
use proto::{Open, Priority, ResetCode, Target};
use transport::{FlowConnector as _, FlowInlet, FlowOutlet};

#[derive(Debug)]
pub(crate) struct FlowTap {
    pub(crate) inlet: RefCell<Option<Box<dyn FlowInlet>>>,
    pub(crate) open: Option<Open>,
    pub(crate) got: RefCell<Vec<Bytes>>,
    pub(crate) closed: Cell<Option<ResetCode>>,
}

impl FlowTap {
    pub(crate) fn new(open: Option<Open>) -> Rc<Self> {
        let (inlet, got, closed) = Default::default();
        Rc::new(Self { inlet, open, got, closed })
    }

    /// Sends, and returns the number of dropped datagrams.
    pub(crate) fn send(&self, datagram: &[u8]) -> usize {
        self.inlet.borrow().as_ref().map_or(1, |inlet| inlet.send(&mut std::iter::once(datagram)))
    }

    pub(crate) fn close(&self, code: ResetCode) {
        let inlet = self.inlet.take();
        inlet.unwrap().close(code);
    }

    pub(crate) fn count(&self) -> usize {
        self.got.borrow().len()
    }
}

impl FlowOutlet for FlowTap {
    fn deliver(&self, datagram: Bytes) {
        assert_eq!(self.closed.get(), None, "a datagram after the end");
        self.got.borrow_mut().push(datagram);
    }

    fn close(&self, code: ResetCode) {
        assert_eq!(self.closed.replace(Some(code)), None, "closed twice");
        drop(self.inlet.take());
    }
}

/// Opens a flow to a service.
pub(crate) fn open_flow(link: &Link, service: &str) -> Rc<FlowTap> {
    let tap = FlowTap::new(None);
    let target = Target::Service(service.to_owned());
    let open = Open { target, visitor: None, priority: Priority::Normal, fields: None };
    let inlet = link.open_flow(open, Rc::<FlowTap>::clone(&tap)).unwrap();
    *tap.inlet.borrow_mut() = Some(inlet);
    tap
}

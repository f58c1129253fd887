//! The link side of a stream: the commands of a pump.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use bytes::BytesMut;
use net::pages::Pages;
use proto::{HEAD_ROOM, ResetCode, Stall, StreamKey};
use transport::{Inlet, PageInlet};

use crate::inner::Inner;
use crate::pages::{self, SMALL_PAYLOAD};

pub(crate) struct StreamInlet {
    link: Rc<Inner>,
    key: StreamKey,
    /// The directions that the pump has ended. Dropping the inlet aborts the open directions.
    sent_end: Cell<bool>,
    stopped: Cell<bool>,
    /// The remaining number of consecutive small payloads until a bulk stream is no longer bulk.
    patience: Cell<u8>,
}

/// The number of consecutive small payloads after which a stream is no longer bulk.
const PATIENCE: u8 = 64;

impl StreamInlet {
    pub(crate) const fn new(link: Rc<Inner>, key: StreamKey) -> Self {
        let (sent_end, stopped) = (Cell::new(false), Cell::new(false));
        Self { link, key, sent_end, stopped, patience: Cell::new(0) }
    }

    /// Records a payload. A bulk stream sends occasional small payloads when several streams share
    /// a link.
    fn note(&self, payload: usize) {
        match self.patience.get() {
            0 => self.link.recent_small.moved(Some(self.key), payload),
            left if payload < SMALL_PAYLOAD => self.patience.set(left - 1),
            _ => {}
        }
    }
}

impl fmt::Debug for StreamInlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamInlet({} of link {})", self.key.id(), self.link.serial)
    }
}

impl Inlet for StreamInlet {
    fn room(&self) -> usize {
        self.link.machine.borrow_mut().room(self.key)
    }

    fn send(&self, frame: &mut BytesMut) {
        let payload = frame.len().saturating_sub(HEAD_ROOM);
        self.note(payload);
        self.link.sent.set(self.link.sent.get() + payload as u64);
        self.link.machine.borrow_mut().send(self.key, frame);
        self.link.commanded();
    }

    fn pages(&self) -> Option<&dyn PageInlet> {
        // The pump calls this only for a bulk stream.
        self.patience.set(PATIENCE);
        let link = &self.link;
        let limit = || {
            let machine = link.machine.borrow();
            let (active, limit) = (machine.active_carrier()?, machine.frame_limit(self.key));
            let carriers = link.carriers.borrow();
            let carrier = carriers.iter().find(|carrier| carrier.number == active)?;
            carrier.takes_pages.then_some(limit)
        };
        pages::may_send(self.key, &link.recent_small, &link.retained, limit).then_some(self)
    }

    fn finish(&self) {
        self.sent_end.set(true);
        self.link.machine.borrow_mut().finish(self.key);
        self.link.commanded();
    }

    fn reset(&self, code: ResetCode) {
        self.sent_end.set(true);
        self.link.machine.borrow_mut().reset(self.key, code);
        self.link.commanded();
    }

    fn stop(&self, code: ResetCode) {
        self.stopped.set(true);
        self.link.machine.borrow_mut().stop(self.key, code);
        self.link.commanded();
    }

    fn refuse(&self, code: ResetCode) {
        self.sent_end.set(true);
        self.stopped.set(true);
        self.link.machine.borrow_mut().refuse(self.key, code);
        self.link.commanded();
    }

    fn is_untaken(&self) -> bool {
        self.link.machine.borrow_mut().outstanding(self.key) > 0
    }

    fn stall(&self) -> Option<Stall> {
        self.link.machine.borrow_mut().stall(self.key)
    }

    fn consumed(&self, bytes: usize) {
        self.link.machine.borrow_mut().consume(crate::now(), self.key, bytes);
        self.link.commanded();
    }
}

impl PageInlet for StreamInlet {
    fn page_room(&self) -> usize {
        let mut machine = self.link.machine.borrow_mut();
        let room = if self.link.retained.is_full() {
            None
        } else {
            let room = machine.room(self.key);
            pages::payload_size(room, || machine.outstanding(self.key) > 0)
        };
        room.unwrap_or_else(|| {
            // The next CREDIT frees slots and makes a larger payload possible.
            machine.await_room(self.key);
            0
        })
    }

    fn send_pages(&self, pages: Pages) {
        let (link, len) = (&self.link, pages.len());
        link.sent.set(link.sent.get() + len as u64);
        match link.retained.keep(self.key, pages) {
            Some(kept) => link.machine.borrow_mut().send_pages(self.key, kept, len),
            // `page_room` left a slot free.
            None => link.machine.borrow_mut().reset(self.key, ResetCode::Internal),
        }
        link.commanded();
    }
}

impl Drop for StreamInlet {
    fn drop(&mut self) {
        // The machine ignores the command if the direction has ended.
        let mut machine = self.link.machine.borrow_mut();
        if !self.sent_end.get() {
            machine.reset(self.key, ResetCode::Aborted);
        }
        if !self.stopped.get() {
            machine.stop(self.key, ResetCode::Aborted);
        }
        drop(machine);
        self.link.commanded();
    }
}

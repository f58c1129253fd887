//! The public operations of a link.

use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use proto::control::ControlMessage;
use proto::greeting::Features;
use proto::{CarrierNumber, Open, ResetCode, StreamCounts, StreamId};
use transport::{Connector, Inlet, OpenError, Outlet};

use crate::inlet::StreamInlet;
use crate::inner::{Inner, Link, Owner};
use crate::state::{End, Settings};
use crate::timer;

impl Link {
    /// Makes a link without a carrier. Starts the timer of the link as a task of this worker.
    pub fn new(settings: Settings, owner: Rc<dyn Owner>) -> Self {
        let inner = Rc::new(Inner::new(settings, owner));
        timer::start(&inner);
        Self { inner }
    }

    /// The serial number of the link in logs.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.inner.serial
    }

    /// The features that both sides support.
    #[must_use]
    pub fn features(&self) -> Features {
        self.inner.features
    }

    /// Whether frames can flow.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.inner.ended.get().is_none() && self.inner.machine.borrow().is_live()
    }

    /// Whether the link has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended().is_some()
    }

    /// Why the link ended, if it has ended.
    #[must_use]
    pub fn ended(&self) -> Option<End> {
        self.inner.ended.get()
    }

    /// The number of open streams.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.inner.machine.borrow().stream_count()
    }

    /// The number of stream slots, which never decreases.
    #[must_use]
    pub fn stream_slots(&self) -> usize {
        self.inner.machine.borrow().stream_slots()
    }

    /// The streams in these slots. A stream has an outlet until the end of its direction to this
    /// side. A caller that lists all slots in several turns gets each stream that is open during
    /// this time exactly once.
    #[must_use]
    pub fn streams(&self, slots: Range<usize>) -> Vec<(StreamCounts, Option<Rc<dyn Outlet>>)> {
        let (outlets, machine) = (self.inner.outlets.borrow(), self.inner.machine.borrow());
        let outlet = |index: usize, id| {
            let (of, outlet) = outlets.get(index)?.as_ref()?;
            (*of == id).then(|| Rc::clone(outlet))
        };
        let stream = |index| machine.stream(index).map(|stream| (stream, outlet(index, stream.id)));
        slots.filter_map(stream).collect()
    }

    /// Calls `show` with the slot and the counters of each stream in these slots that has an
    /// outlet.
    pub fn each_stream(
        &self,
        slots: Range<usize>,
        mut show: impl FnMut(usize, &StreamCounts, &dyn Outlet),
    ) {
        let (outlets, machine) = (self.inner.outlets.borrow(), self.inner.machine.borrow());
        for index in slots {
            let (Some(stream), Some(Some((of, outlet)))) =
                (machine.stream(index), outlets.get(index))
            else {
                continue;
            };
            if *of == stream.id {
                show(index, &stream, &**outlet);
            }
        }
    }

    /// Resets a stream on both sides. Returns false if there is no such stream.
    #[must_use]
    pub fn abort(&self, id: StreamId) -> bool {
        let outlets = self.inner.outlets.borrow();
        let found = outlets.iter().flatten().find(|(known, _)| *known == id);
        let outlet = found.map(|(_, outlet)| Rc::clone(outlet));
        drop(outlets);
        // The pump of the stream closes its socket and drops the stream, and the drop informs the
        // peer.
        outlet.is_some_and(|outlet| {
            outlet.reset(ResetCode::Aborted);
            true
        })
    }

    /// The minimum round-trip time measured on the active carrier.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.inner.machine.borrow().round_trip()
    }

    /// Payload bytes received, payload bytes sent, and the number of resumes.
    #[must_use]
    pub fn totals(&self) -> (u64, u64, u64) {
        (self.inner.received.get(), self.inner.sent.get(), self.inner.resumes.get())
    }

    /// Payload bytes kept for retransmission until the peer has consumed them.
    #[must_use]
    pub fn retained(&self) -> u64 {
        self.inner.machine.borrow().retained()
    }

    /// The numbers of the carriers in use, and their peers with their present addresses.
    #[must_use]
    pub fn carriers(&self) -> Vec<(CarrierNumber, transport::Peer)> {
        let carriers = self.inner.carriers.borrow();
        carriers.iter().map(|running| (running.number, running.peer.current())).collect()
    }

    /// Calls `show` with the number of each carrier in use and its peer, as known after the
    /// handshake.
    pub fn each_carrier(&self, mut show: impl FnMut(CarrierNumber, &transport::Peer)) {
        let carriers = self.inner.carriers.borrow();
        carriers.iter().for_each(|running| show(running.number, &running.peer));
    }

    /// Whether the link has an active carrier that is not silent.
    pub(crate) fn answers(&self) -> bool {
        self.inner.machine.borrow().answers()
    }

    /// The carrier on which frames are sent.
    #[must_use]
    pub fn active_carrier(&self) -> Option<CarrierNumber> {
        self.inner.machine.borrow().active_carrier()
    }

    /// The peer at the far end of the active carrier, with its present address.
    #[must_use]
    pub fn active_peer(&self) -> Option<transport::Peer> {
        let active = self.active_carrier();
        let carriers = self.inner.carriers.borrow();
        let running = carriers.iter().find(|running| Some(running.number) == active)?;
        Some(running.peer.current())
    }

    /// Whether a standby is ready in addition to the active carrier.
    #[must_use]
    pub fn has_standby(&self) -> bool {
        self.inner.carriers.borrow().len() > 1
    }

    /// Ends all carriers, as if they were lost: the client of the link redials, and the streams
    /// continue. Returns whether there was a carrier.
    pub fn cut(&self) -> bool {
        let carriers = self.carriers();
        // The standby first, so that it does not take over.
        carriers.iter().rev().for_each(|(number, _)| self.inner.carrier_ended(*number));
        !carriers.is_empty()
    }

    /// The present address of the far end of the active carrier.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.active_peer().map(|peer| peer.address)
    }

    /// Sends a message on the control stream. Returns false if the window of the control stream is
    /// full or the link has ended.
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

    /// Notifies the peer that the link ends now. The caller must call [`Link::close`] when the
    /// frame has had time to be sent.
    pub fn say_goodbye(&self) {
        self.inner.retirement.going_away.set(true);
        self.inner.closing.set(true);
        self.inner.machine.borrow_mut().close();
        self.inner.retirement.fate.notify_one();
        self.inner.commanded();
    }

    /// Ends the link at once. Resets its streams on both sides.
    pub fn close(&self) {
        self.inner.end(End::Closed);
    }
}

impl Connector for Link {
    fn open(&self, open: Open, outlet: Rc<dyn Outlet>) -> Result<Box<dyn Inlet>, OpenError> {
        if self.inner.ended.get().is_some() || self.inner.retirement.going_away.get() {
            return Err(OpenError::Closed);
        }
        if !self.inner.machine.borrow().has_room_for(open.visitor) {
            return Err(OpenError::Limit);
        }
        let key = self.inner.machine.borrow_mut().open(&open).ok_or(OpenError::Closed)?;
        self.inner.put_outlet(key, outlet);
        let (link, stream) = (self.inner.serial, key.id().raw());
        tracing::debug!(link, stream, to = ?open.target, visitor = ?open.visitor, "stream opened");
        if self.is_going_away() {
            // That was the last id: the owner must be notified before the next visitor arrives.
            self.inner.drive(crate::now());
        } else {
            self.inner.commanded();
        }
        Ok(Box::new(StreamInlet::new(Rc::clone(&self.inner), key)))
    }
}

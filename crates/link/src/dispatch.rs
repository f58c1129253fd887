//! Passes events of the state machine to the outlets of their streams and to the owner.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use net::pages::Pages;
use proto::control::{ControlMessage, Strained};
use proto::{CarrierNumber, Event, GoAwayReason, ResetCode, Side, StreamKey, Violation};
use transport::Outlet;

use crate::gauge::Gauge;
use crate::inlet::StreamInlet;
use crate::inner::Inner;
use crate::notices::{Direction, LowRate, Notice};
use crate::state::{End, State};

impl Inner {
    pub(crate) fn dispatch(self: &Rc<Self>, now: Instant, event: Event) {
        if self.ended.get().is_some() {
            // The owner was notified already that all streams of the link have ended.
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
            Event::FlowOpened { key, open } => self.accept_flow(key, open),
            Event::Datagram { key, bytes } => self.deliver_datagram(key, bytes),
            Event::FlowClosed { key, code, by_peer } => self.flow_closed(key, code, by_peer),
            Event::Control(bytes) => self.control(bytes),
            Event::Resumed => {
                self.resumes.set(self.resumes.get() + 1);
                self.notices.add(Notice::Resumed);
                self.owner.changed(&self.handle(), State::Live);
            }
            Event::ProbeNextPath => self.notices.add(Notice::Probe),
            Event::Silent => self.owner.answers(&self.handle(), false),
            Event::Heard => self.owner.answers(&self.handle(), true),
            Event::Doubted(number) => self.doubt(now, number),
            Event::Unanswered(number) => self.judge(now, number),
            Event::TookOver(_) => self.notices.add(Notice::TookOver),
            Event::CarrierDead(number) => self.carrier_ended(number),
            Event::GoingAway(GoAwayReason::Retire) => self.retire(false),
            Event::GoingAway(GoAwayReason::Done) => self.retire(true),
            // Both sides may send GOAWAY at the same time.
            Event::GoingAway(GoAwayReason::Closed) if self.closing.get() => self.end(End::Closed),
            Event::GoingAway(GoAwayReason::Closed) => self.end(End::ByPeer),
            Event::GoingAway(GoAwayReason::Violation(code)) => self.end(End::Accused(code)),
            Event::Expired => self.end(End::Expired),
        }
    }

    /// Notes how far the connection of a silent carrier is.
    fn doubt(&self, now: Instant, number: CarrierNumber) {
        let carriers = self.carriers.borrow();
        let carrier = carriers.iter().find(|carrier| carrier.number == number);
        let gauge = carrier.map(|carrier| Gauge::of(&carrier.peer));
        *self.doubted.borrow_mut() = gauge.map(|gauge| gauge.doubted(number, now));
    }

    /// Gives up a carrier whose connection received nothing while the standby answered.
    fn judge(&self, now: Instant, number: CarrierNumber) {
        let doubted = self.doubted.take().filter(|doubted| doubted.carrier == number);
        if doubted.is_some_and(|doubted| doubted.hears_nothing(now)) {
            let (link, carrier) = (self.serial, number.0);
            tracing::debug!(link, carrier, "the carrier is silent, and its standby answers");
            self.machine.borrow_mut().give_up(now, number);
        }
    }

    /// Delivers payloads to the outlet of their stream. `pieces` is empty afterwards.
    pub(crate) fn deliver(&self, now: Instant, key: StreamKey, pieces: &mut VecDeque<Bytes>) {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        self.recent_small.moved(Some(key), length);
        self.received.set(self.received.get() + length as u64);
        // A stream without an outlet is being closed, so its bytes are dropped.
        let taken = self.outlet(key).map_or(length, |outlet| outlet.deliver(pieces));
        pieces.clear();
        self.machine.borrow_mut().consume(now, key, taken);
    }

    /// As [`Self::deliver`], for pages. `outlet` is that of the stream, which accepts pages.
    pub(crate) fn deliver_pages(
        &self,
        now: Instant,
        (key, outlet): (StreamKey, &dyn Outlet),
        pages: Pages,
    ) {
        self.received.set(self.received.get() + pages.len() as u64);
        let taken = outlet.deliver_pages(pages);
        self.machine.borrow_mut().consume(now, key, taken);
    }

    fn control(self: &Rc<Self>, mut bytes: Bytes) {
        loop {
            let decoded = self.control.borrow_mut().decode(&mut bytes);
            match decoded {
                Ok(Some(ControlMessage::Strained(strained))) => {
                    self.carries_little(Direction::Down, strained.rate);
                }
                Ok(Some(ControlMessage::FlowOpen(open))) => {
                    // The current turn reports the resulting events.
                    let outcome = self.machine.borrow_mut().handle_flow_open(open);
                    if let Err(violation) = outcome {
                        return self.end(End::Violation(violation));
                    }
                }
                Ok(Some(ControlMessage::FlowClose(close))) => {
                    self.machine.borrow_mut().handle_flow_close(close);
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

    /// Reports that the active carrier takes only `rate` bytes per second although more bytes wait
    /// to be sent.
    pub(crate) fn strained(self: &Rc<Self>, rate: u64) {
        let side = self.machine.borrow().side();
        match side {
            Side::Client => self.carries_little(Direction::Up, rate),
            // If the control stream has no room, the message is dropped. A later measurement
            // repeats it.
            Side::Server => {
                let _ = self.handle().send_message(&ControlMessage::Strained(Strained { rate }));
            }
        }
    }

    /// Notifies the supervisor of a client. A server has no other paths to try.
    fn carries_little(&self, direction: Direction, rate: u64) {
        if self.machine.borrow().side() == Side::Client {
            self.notices.add(Notice::Strained(LowRate { direction, rate }));
        }
    }
}

//! Attaches a carrier to a link, replacing the other carriers or in addition to them, and starts
//! its tasks.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use proto::{Attach, CarrierNumber, Preview};
use transport::Carrier;

use crate::accept;
use crate::gauge::Gauge;
use crate::guard::guarded;
use crate::inner::{Inner, Link};
use crate::io::CarrierIo;
use crate::lanes::StreamLanes;
use crate::packets::{self, Packets};
use crate::reader::{self, First};
use crate::state::State;
use crate::tasks::CarrierTasks;
use crate::writer;

/// The time-out for sending the last frame. After it, the connection is closed in any case.
const FAREWELL: Duration = Duration::from_secs(1);

/// The progress of a link: its newest carrier, and how often the peer was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    carrier: CarrierNumber,
    heard: u64,
}

impl Link {
    /// The highest carrier number that was attached.
    pub(crate) fn last_carrier(&self) -> CarrierNumber {
        self.inner.last_carrier.get()
    }

    /// A value that changes when a carrier is attached or the peer is heard.
    pub(crate) fn standing(&self) -> Standing {
        Standing { carrier: self.inner.last_carrier.get(), heard: self.inner.heard.get() }
    }

    /// The state of the link that a server sends to a client before the client is authenticated on
    /// this carrier. The link is not changed. `None`: the carrier number is not the highest so far,
    /// or the link has ended.
    #[must_use]
    pub fn preview(&self, number: CarrierNumber) -> Option<Preview> {
        self.inner.may_come(number).then(|| self.inner.machine.borrow().preview())
    }

    /// Attaches a greeted carrier on which `preview` was sent, replacing all other carriers.
    /// Returns false in the cases of [`Link::attach`], and if the preview is invalid.
    pub fn attach_previewed(
        &self,
        number: CarrierNumber,
        preview: &Preview,
        carrier: Carrier,
        leftover: BytesMut,
    ) -> bool {
        let (inner, now) = (&self.inner, crate::now());
        if !inner.may_come(number) {
            return false;
        }
        if !inner.machine.borrow_mut().attach_previewed(now, number, preview) {
            return false;
        }
        inner.expect(number, true);
        start(inner, number, carrier, leftover);
        inner.drive(now);
        true
    }

    /// Attaches a greeted carrier. `leftover` holds the bytes that arrived after the greeting.
    /// Returns false and drops the carrier if its number is not the highest so far or the link has
    /// ended.
    pub fn attach(
        &self,
        number: CarrierNumber,
        how: Attach,
        carrier: Carrier,
        leftover: BytesMut,
    ) -> bool {
        let inner = &self.inner;
        if !inner.may_come(number) {
            return false;
        }
        // The previous carriers are closed before RESUME is built, so their unread bytes do not
        // count.
        let is_standby = how == Attach::Adds && inner.machine.borrow().active_carrier().is_some();
        inner.expect(number, !is_standby);
        inner.machine.borrow_mut().attach(crate::now(), number, how);
        start(inner, number, carrier, leftover);
        if how == Attach::New {
            inner.owner.changed(self, State::Live);
        }
        inner.drive(crate::now());
        true
    }
}

impl Inner {
    /// Whether the number is the highest so far and the link has not ended.
    fn may_come(&self, number: CarrierNumber) -> bool {
        number > self.last_carrier.get() && self.ended.get().is_none()
    }

    /// Prepares for a new carrier: drops the carriers that it replaces, and pending notices about
    /// them.
    fn expect(&self, number: CarrierNumber, replaces: bool) {
        self.last_carrier.set(number);
        if replaces {
            self.notices.forget_carriers();
            self.drop_carriers(|_| true);
        }
    }
}

/// Starts the tasks of a carrier and adds the carrier to the link.
fn start(link: &Rc<Inner>, number: CarrierNumber, mut carrier: Carrier, leftover: BytesMut) {
    carrier.lane.authenticated();
    let lanes = carrier.lanes;
    let streams = link.machine.borrow().stream_count();
    let stream_lanes = lanes
        .map(|lanes| Rc::new(StreamLanes::new(lanes, &link.budget, streams, &link.unread_window)));
    let gauge = Gauge::of(&carrier.peer);
    let has_flows = link.machine.borrow().has_flows();
    let packets = Packets::new(carrier.datagrams.filter(|_| has_flows));
    if packets.is_some() {
        link.machine.borrow_mut().takes_packets(number);
    }
    let has_packets = packets.is_some();
    let lane = carrier.lane;
    let io = Rc::new(CarrierIo::new(link, number, lane, stream_lanes.clone(), packets, gauge));
    let takes_pages = io.takes_pages;
    let reading = {
        let (inner, io) = (Rc::clone(link), Rc::clone(&io));
        async move {
            let outcome = reader::run(&inner, &io, &mut First, leftover).await;
            outcome.report(&inner, io.number);
        }
    };
    let accepting = stream_lanes.map(|stream_lanes| {
        let (inner, io) = (Rc::clone(link), Rc::clone(&io));
        async move {
            let outcome = accept::run(&inner, &io, &stream_lanes).await;
            outcome.report(&inner, io.number);
        }
    });
    let receiving = has_packets.then(|| {
        let (inner, io) = (Rc::clone(link), Rc::clone(&io));
        async move {
            let Some(packets) = &io.packets else { return };
            let outcome = packets::run(&inner, packets, io.number).await;
            outcome.report(&inner, io.number);
        }
    });
    let writing = {
        let inner = Rc::clone(link);
        async move {
            let Some(error) = until_ended(&inner, writer::run(&inner, &io)).await else {
                let farewell = writer::drain(&inner, &io);
                if tokio::time::timeout(FAREWELL, farewell).await.is_err() {
                    tracing::debug!(link = inner.serial, "the farewell did not get through");
                }
                return;
            };
            tracing::debug!(link = inner.serial, carrier = number.0, %error, "carrier lost");
            inner.carrier_ended(number);
        }
    };
    let reading = tokio::task::spawn_local(guarded(Rc::downgrade(link), reading)).abort_handle();
    let writing = tokio::task::spawn_local(guarded(Rc::downgrade(link), writing)).abort_handle();
    let accepting = accepting.map(|accepting| {
        tokio::task::spawn_local(guarded(Rc::downgrade(link), accepting)).abort_handle()
    });
    let receiving = receiving.map(|receiving| {
        tokio::task::spawn_local(guarded(Rc::downgrade(link), receiving)).abort_handle()
    });
    let writing = Some(writing);
    let peer = carrier.peer;
    let running =
        CarrierTasks { number, peer, takes_pages, reading, accepting, receiving, writing };
    link.carriers.borrow_mut().push(running);
}

/// Returns the result of `work`; `None` if the link ends first.
async fn until_ended<T>(link: &Inner, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        if link.ended.get().is_some() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(cx).map(Some)
    })
    .await
}

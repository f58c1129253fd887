//! How a carrier comes to a link: in place of the others, or beside them.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use proto::{Attach, CarrierNumber, Preview};
use transport::Carrier;

use crate::accept;
use crate::guard::guarded;
use crate::inner::{Inner, Link};
use crate::io::CarrierIo;
use crate::lanes::StreamLanes;
use crate::reader::{self, First};
use crate::state::State;
use crate::tasks::CarrierTasks;
use crate::writer;

/// How long the last frame may take on its way out before the connection is closed all the same.
const FAREWELL: Duration = Duration::from_secs(1);

/// How far a link has come; see [`Link::standing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    carrier: CarrierNumber,
    heard: u64,
}

impl Link {
    /// The newest carrier so far.
    pub(crate) fn last_carrier(&self) -> CarrierNumber {
        self.inner.last_carrier.get()
    }

    /// What changes when a carrier is attached or the peer is heard.
    pub(crate) fn standing(&self) -> Standing {
        Standing { carrier: self.inner.last_carrier.get(), heard: self.inner.heard.get() }
    }

    /// What a client that is about to come back over this carrier may be shown of the link; nothing
    /// changes by it. `None`: its number is not the highest so far, or the link is over.
    #[must_use]
    pub fn preview(&self, number: CarrierNumber) -> Option<Preview> {
        self.inner.may_come(number).then(|| self.inner.machine.borrow().preview())
    }

    /// Adds a greeted carrier on which that was shown, in place of all others. False: as for
    /// [`Link::attach`], or the preview is void.
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

    /// Adds a greeted carrier. `leftover` are bytes that arrived behind the greeting. False: its
    /// number is not the highest so far, the carrier is dropped.
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
        // Closed before RESUME is built, their unread bytes with them.
        inner.expect(number, matches!(how, Attach::Replaces(_)));
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
    /// Whether the number is the highest so far, and the link not over.
    fn may_come(&self, number: CarrierNumber) -> bool {
        number > self.last_carrier.get() && self.ended.get().is_none()
    }

    /// A new carrier makes the news of the old ones stale, and may replace them.
    fn expect(&self, number: CarrierNumber, replaces: bool) {
        self.last_carrier.set(number);
        self.notices.forget_carriers();
        if replaces {
            self.drop_carriers(|_| true);
        }
    }
}

/// Starts reader and writer and enters the carrier into the link.
fn start(link: &Rc<Inner>, number: CarrierNumber, carrier: Carrier, leftover: BytesMut) {
    let lanes = carrier.lanes;
    let streams = link.machine.borrow().stream_count();
    let stream_lanes = lanes.map(|lanes| Rc::new(StreamLanes::new(lanes, &link.budget, streams)));
    let watch = carrier.peer.watch.clone();
    let io = Rc::new(CarrierIo::new(link, number, carrier.lane, stream_lanes.clone(), watch));
    let reading = {
        let (inner, io) = (Rc::clone(link), Rc::clone(&io));
        async move {
            let outcome = reader::run(&inner, &io, &mut First, leftover).await;
            reader::report(&inner, &io, outcome);
        }
    };
    let accepting = stream_lanes.map(|stream_lanes| {
        let (inner, io) = (Rc::clone(link), Rc::clone(&io));
        async move {
            let outcome = accept::run(&inner, &io, &stream_lanes).await;
            reader::report(&inner, &io, outcome);
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
    let writing = Some(writing);
    let running = CarrierTasks { number, peer: carrier.peer, reading, accepting, writing };
    link.carriers.borrow_mut().push(running);
}

/// `None` when the link ended before the work did.
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

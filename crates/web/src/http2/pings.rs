//! Pings (RFC 9113 section 6.7) to check the liveness of the visitor and to measure the round trip.

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};

use super::Inflow;

/// A visitor that sends nothing for this time gets a ping.
const SILENCE: Duration = Duration::from_secs(60);
/// A visitor that does not acknowledge a ping within this time counts as gone.
const PONG: Duration = Duration::from_secs(20);
/// The interval at which the round trip is measured during an upload: the first measurement may
/// have been queued behind bytes of the upload.
const MEASURE: Duration = Duration::from_secs(1);

pub(super) struct Pings {
    pings: PingPong,
    inflow: Rc<Inflow>,
    /// The send time of an unacknowledged ping.
    sent: Option<Instant>,
    /// The send time of the last ping.
    last: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl Pings {
    pub(super) fn new(pings: PingPong, inflow: &Rc<Inflow>) -> Self {
        let (inflow, timer) = (Rc::clone(inflow), Box::pin(sleep(SILENCE)));
        Self { pings, inflow, sent: None, last: None, timer }
    }

    /// Ready once the visitor counts as gone.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(sent) = self.sent
            && self.pings.poll_pong(cx).is_ready()
        {
            let trip = sent.elapsed();
            let shortest = self.inflow.round_trip.get().map_or(trip, |known| known.min(trip));
            self.inflow.round_trip.set(Some(shortest));
            self.sent = None;
        }
        let now = Instant::now();
        if self.sent.is_none()
            && self.last.is_none_or(|last| now.saturating_duration_since(last) >= MEASURE)
            && self.inflow.take_opened()
        {
            self.send(cx, now);
        }
        loop {
            let due = match self.sent {
                Some(sent) => sent.max(self.inflow.read_at.get()) + PONG,
                None => self.inflow.read_at.get() + SILENCE,
            };
            // The timer is reset only if it would fire too late, or once it has fired.
            if due < self.timer.deadline() || (self.timer.is_elapsed() && due > now) {
                self.timer.as_mut().reset(due);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if due > Instant::now() {
                continue;
            }
            if self.sent.is_some() {
                return Poll::Ready(());
            }
            self.send(cx, now);
        }
    }

    fn send(&mut self, cx: &mut Context<'_>, now: Instant) {
        self.last = Some(now);
        if self.pings.send_ping(Ping::opaque()).is_ok() {
            self.sent = Some(now);
            // The task of h2 is woken by the acknowledgement.
            let _ = self.pings.poll_pong(cx);
        }
    }
}

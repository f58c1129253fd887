//! The time-outs of a visitor's connection, and its orderly end.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep};

use crate::gate::{Due, Progress};

/// The first request, and each later head from its first byte, has to arrive within this time.
pub(crate) const HEAD: Duration = Duration::from_secs(10);
/// An HTTP/1 connection between two requests; nginx waits as long.
pub(crate) const IDLE_H1: Duration = Duration::from_secs(75);
/// An HTTP/2 connection without a request. Browsers keep one connection per host and reopen it at
/// the price of a handshake.
pub(crate) const IDLE_H2: Duration = Duration::from_secs(300);

/// The events that do not come from the visitor.
pub(crate) struct Watch<'c, S> {
    progress: &'c Progress,
    head: Duration,
    idle: Duration,
    timer: Pin<Box<Sleep>>,
    stop: Pin<&'c mut S>,
    ended: bool,
}

pub(crate) enum Event {
    /// A head is incomplete for too long.
    SlowHead,
    /// The connection has to end in order. The event comes once, and no other event after it.
    End,
}

impl<'c, S: Future<Output = ()>> Watch<'c, S> {
    pub(crate) fn new(
        progress: &'c Progress,
        head: Duration,
        idle: Duration,
        stop: Pin<&'c mut S>,
    ) -> Self {
        Self { progress, head, idle, timer: Box::pin(sleep(head)), stop, ended: false }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if self.ended {
            return Poll::Pending;
        }
        if self.stop.as_mut().poll(cx).is_ready() {
            self.ended = true;
            return Poll::Ready(Event::End);
        }
        loop {
            let due = self.progress.due(self.head, self.idle);
            // The timer is moved only where it would fire too late: a moved timer for each request
            // would cost more than a turn without effect now and then.
            if let Due::At(at) = due
                && at < self.timer.deadline()
            {
                self.timer.as_mut().reset(at);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            match due {
                Due::At(at) if at > now => self.timer.as_mut().reset(at),
                Due::Never => self.timer.as_mut().reset(now + self.idle),
                Due::At(_) if self.progress.time_out() => {
                    self.timer.as_mut().reset(now + self.idle);
                    return Poll::Ready(Event::SlowHead);
                }
                Due::At(_) => {
                    self.ended = true;
                    return Poll::Ready(Event::End);
                }
            }
        }
    }
}

//! The timeouts of a visitor's connection, and its graceful shutdown.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep};

use crate::gate::{Due, Progress};

/// The timeout for the first request, and for each later header from its first byte.
pub(crate) const HEAD: Duration = Duration::from_secs(10);
/// The idle timeout of an HTTP/1 connection, as in nginx.
pub(crate) const IDLE_H1: Duration = Duration::from_secs(75);
/// The idle timeout of an HTTP/2 connection. Browsers keep one connection per host, and reopening
/// it costs a handshake.
pub(crate) const IDLE_H2: Duration = Duration::from_secs(300);

/// The events that are not caused by data of the visitor.
pub(crate) struct Watch<'c, S> {
    progress: &'c Progress,
    head: Duration,
    idle: Duration,
    timer: Pin<Box<Sleep>>,
    stop: Pin<&'c mut S>,
    ended: bool,
}

pub(crate) enum Event {
    /// A header has been incomplete for too long.
    SlowHead,
    /// The connection must shut down gracefully. The event is reported once, and is the last event.
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
            // The timer is reset only if it would fire too late: a reset for each request would
            // cost more than an occasional poll without effect.
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

//! Timers for quinn that fire up to a millisecond early instead of late.
//!
//! Between acknowledgements quinn sends a burst each 1.6 ms, and what a late timer would have let pass
//! meanwhile is lost to it. Tokio's timers fire at the next full millisecond: on a path where
//! acknowledgements come in lumps that was a fifth of the pace, so that the window was never filled.
//! Whoever is woken early sends a smaller burst.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};
use tokio::time::{Sleep, sleep_until};

/// What tokio's timers count in.
const TICK: Duration = Duration::from_millis(1);

/// Tokio, with such timers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlyRuntime;

impl Runtime for EarlyRuntime {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        let at = fires(self.now(), deadline);
        Box::pin(EarlyTimer(Box::pin(sleep_until(at.into()))))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        TokioRuntime.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        TokioRuntime.wrap_udp_socket(socket)
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }
}

#[derive(Debug)]
struct EarlyTimer(Pin<Box<Sleep>>);

impl AsyncTimer for EarlyTimer {
    fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        let at = fires(TokioRuntime.now(), deadline);
        self.0.as_mut().reset(at.into());
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Future::poll(self.0.as_mut(), context)
    }
}

/// The tick that ends before the deadline; what is nearer than a tick gets the one after it, or whoever
/// waits would turn in circles until then.
pub(crate) fn fires(now: Instant, deadline: Instant) -> Instant {
    let early = deadline.checked_sub(TICK).filter(|early| *early > now);
    early.unwrap_or(deadline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_fires_a_tick_before_its_deadline_unless_that_is_now() {
        let now = Instant::now();
        let (far, near) = (now + 10 * TICK, now + TICK / 2);
        assert_eq!(fires(now, far), far - TICK);
        assert_eq!(fires(far - TICK, far), far);
        assert_eq!(fires(now, near), near);
        assert_eq!(fires(far, now), now);
    }
}

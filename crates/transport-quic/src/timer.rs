//! Timers for quinn that fire up to a millisecond early and never late; [`congestion::pacing`]
//! gives the reason.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use congestion::pacing::fires;
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};
use tokio::time::{Sleep, sleep_until};

/// Tokio's runtime for quinn with these timers.
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

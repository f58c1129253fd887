//! Datagrams on a path with a delay: the delay is the same for all datagrams, so that they keep
//! their order.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// One direction of a path, with its own thread.
#[derive(Debug)]
pub(super) struct Late(Sender<(Instant, Vec<u8>)>);

impl Late {
    /// A delay line that passes arriving datagrams to `deliver`.
    pub(super) fn new(deliver: impl Fn(&[u8]) + Send + 'static) -> Self {
        let (sender, receiver) = channel::<(Instant, Vec<u8>)>();
        std::thread::spawn(move || {
            for (at, datagram) in receiver {
                std::thread::sleep(at.saturating_duration_since(Instant::now()));
                deliver(&datagram);
            }
        });
        Self(sender)
    }

    /// Sends a datagram now.
    pub(super) fn send(&self, datagram: &[u8], delay: Duration) {
        // The line's thread runs as long as this sender exists.
        let _ = self.0.send((Instant::now() + delay, datagram.to_vec()));
    }
}

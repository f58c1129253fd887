//! Datagrams on a long path: each arrives after the same time, so that they keep their order.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// One direction of a path, with a thread of its own.
#[derive(Debug)]
pub(super) struct Late(Sender<(Instant, Vec<u8>)>);

impl Late {
    /// What has arrived is given to `deliver`.
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

    /// Leaves now.
    pub(super) fn send(&self, datagram: &[u8], delay: Duration) {
        // Its thread lives as long as this end.
        let _ = self.0.send((Instant::now() + delay, datagram.to_vec()));
    }
}

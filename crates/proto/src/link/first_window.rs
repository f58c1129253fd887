//! The window that a stream is granted before its bytes are known to be read.
//!
//! It is [`super::LinkConfig::window_initial`]. On a path with a long round trip, one stream at a
//! time may begin with half of the window that an earlier stream of the link needed, because each
//! doubling takes a round trip. The next stream may do so once the bytes of this one are known to
//! be read, or it has ended: visitors that read nothing, however many, cost the memory of one such
//! window.

use super::Link;
use crate::StreamId;
use crate::stream::{LONG, Recv};

/// The window that streams of a link have needed.
#[derive(Debug, Default)]
pub(super) struct FirstWindow {
    /// The window of the stream that last got a CREDIT.
    needed: u64,
    /// The stream that began with half of `needed` and whose bytes are not yet known to be read.
    holder: Option<StreamId>,
}

impl FirstWindow {
    /// Records that a CREDIT was made for this stream.
    pub(super) fn credited(&mut self, id: StreamId, recv: &Recv) {
        if self.holder == Some(id) && recv.has_used_window() {
            self.holder = None;
        }
        if self.holder != Some(id) {
            self.needed = recv.window();
        }
    }
}

impl Link {
    /// The first window of the stream `id`, which is about to be created.
    pub(super) fn first_window(&mut self, id: StreamId) -> u64 {
        let initial = self.config.window_initial;
        let wanted = self.first_window.needed / 2;
        let is_long = self.round_trip().is_some_and(|round_trip| round_trip >= LONG);
        let is_held =
            self.first_window.holder.is_some_and(|holder| self.ids.find(holder).is_some());
        if wanted <= initial || !is_long || is_held {
            return initial;
        }
        self.first_window.holder = Some(id);
        wanted.min(self.config.window_max)
    }
}

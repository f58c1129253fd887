//! The window that a stream is granted before it has shown that it is read.
//!
//! It is [`super::LinkConfig::window_initial`]. On a long path one stream at a time may begin with
//! half of the window that an earlier stream of the link needed, because each doubling takes a
//! round trip. The next one may do so once this one has shown that it is read, or has ended: a
//! visitor that reads nothing costs the memory of one such window, however many there are.

use super::Link;
use crate::StreamId;
use crate::stream::{LONG, Recv};

/// What a link knows of the windows that its streams need.
#[derive(Debug, Default)]
pub(super) struct FirstWindow {
    /// The window of the stream that consumed last.
    needed: u64,
    /// The stream that began with half of it and has not shown yet that it is read.
    holder: Option<StreamId>,
}

impl FirstWindow {
    /// A CREDIT was made for this stream.
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
    /// The first window of the stream `id`, which is about to be made.
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

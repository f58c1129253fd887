//! Packs segments into datagrams, in their order, as many into each as fit.

use crate::wire::{HEAD, Head};

/// The datagram that is being filled, and its destination.
pub(super) struct Packer<'a> {
    mtu: usize,
    datagram: Vec<u8>,
    sink: &'a mut dyn FnMut(&[u8]),
}

impl<'a> Packer<'a> {
    pub(super) fn new(mtu: u16, sink: &'a mut dyn FnMut(&[u8])) -> Self {
        Self { mtu: usize::from(mtu), datagram: Vec::new(), sink }
    }

    /// Adds a segment. If the segment does not fit, the packed segments are sent first.
    pub(super) fn push(&mut self, head: &Head, payload: &[u8]) {
        if self.datagram.len() + HEAD + payload.len() > self.mtu {
            self.finish();
        }
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.datagram.extend_from_slice(&head.encode(length));
        self.datagram.extend_from_slice(payload);
    }

    /// Sends the remaining segments.
    pub(super) fn finish(&mut self) {
        if !self.datagram.is_empty() {
            (self.sink)(&self.datagram);
            self.datagram.clear();
        }
    }
}

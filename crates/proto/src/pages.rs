//! Payload outside of the memory of the process, such as in a kernel pipe. The state machine knows
//! its length and its position in the stream, but none of its bytes.

use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::HEAD;

/// The payload of a frame, kept until the peer has consumed it and the last reference is dropped.
pub trait Pages: fmt::Debug {
    /// Copies the last `len` bytes, for a carrier that takes only bytes in memory. The bytes before
    /// them are no longer needed.
    fn copy(&self, len: usize) -> Bytes;

    /// The number by which the driver finds the payload among those that it holds.
    fn number(&self) -> usize;
}

/// A contiguous frame: `head`, and the last `len` bytes of `pages`.
#[must_use]
pub fn frame_of_pages(head: &[u8], pages: &dyn Pages, len: usize) -> Bytes {
    let payload = pages.copy(len);
    if payload.len() != len {
        // The bytes are lost, which no kernel does. A frame of an undefined kind ends the link.
        return Bytes::from_static(&[0; HEAD]);
    }
    let mut frame = BytesMut::with_capacity(head.len() + len);
    frame.extend_from_slice(head);
    frame.extend_from_slice(&payload);
    frame.freeze()
}

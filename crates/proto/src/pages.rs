//! Payload that lies outside of the memory of the process, such as in a pipe of the system. The
//! state machine knows its length and its place in the stream, and no byte of it.

use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::HEAD;

/// The payload of a frame. It is kept until the peer has consumed it: the last reference is dropped
/// then.
pub trait Pages: fmt::Debug {
    /// The last `len` bytes, for a carrier that takes bytes only. The bytes before them are not
    /// wanted any more.
    fn copy(&self, len: usize) -> Bytes;

    /// The number by which the driver finds the payload among those that it keeps.
    fn number(&self) -> usize;
}

/// A frame in one piece: `head`, and the last `len` bytes of `pages`.
#[must_use]
pub fn frame_of_pages(head: &[u8], pages: &dyn Pages, len: usize) -> Bytes {
    let payload = pages.copy(len);
    if payload.len() != len {
        // The bytes are lost, which no system does. A frame of no kind ends the link.
        return Bytes::from_static(&[0; HEAD]);
    }
    let mut frame = BytesMut::with_capacity(head.len() + len);
    frame.extend_from_slice(head);
    frame.extend_from_slice(&payload);
    frame.freeze()
}

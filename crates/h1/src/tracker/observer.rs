//! The events that a tracker reports about the requests and responses that pass.

use std::fmt;

/// A part of the content of a message, without the framing of chunks (RFC 9112 section 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyPart<'a> {
    /// Bytes of the body.
    Data(&'a [u8]),
    /// Bytes of the trailer section, including its line ends and the final empty line.
    Trailers(&'a [u8]),
}

/// Observes the requests and responses that pass a [`Tracker`](crate::Tracker), for a log and for
/// figures. Responses come in the order of their requests. The calls about content come once for
/// each piece of bytes, however the bytes are split; an observer that needs no content leaves them
/// unimplemented.
pub trait Observer: fmt::Debug {
    /// The head of a request passes.
    fn requested(&self, head: &[u8]);

    /// Content of the youngest request passes.
    fn request_body(&self, part: BodyPart<'_>) {
        let _ = part;
    }

    /// The youngest request has ended.
    fn request_ended(&self) {}

    /// The head of a response to the oldest request was read, interim or final. This call precedes
    /// [`Self::responded`].
    fn response_head(&self, head: &[u8]) {
        let _ = head;
    }

    /// A head of the response to the oldest request was read. The last call before
    /// [`Self::ended`] is about the final response.
    fn responded(&self, status: u16);

    /// Content of the response to the oldest request passes.
    fn response_body(&self, part: BodyPart<'_>) {
        let _ = part;
    }

    /// The response to the oldest request has ended, after this number of bytes following its head,
    /// including the framing of chunks. `is_complete`: the response reached its own end.
    fn ended(&self, bytes: u64, is_complete: bool);

    /// Bytes of the visitor pass after a switch of protocols.
    fn switched_request(&self, bytes: &[u8]) {
        let _ = bytes;
    }

    /// Bytes of the service pass after a switch of protocols.
    fn switched_response(&self, bytes: &[u8]) {
        let _ = bytes;
    }
}

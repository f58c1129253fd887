//! What a tracker tells about the requests and responses that pass.

use std::fmt;

/// Hears of the requests and responses that pass a [`Tracker`](crate::Tracker), for a log and for
/// figures. No call comes per byte. Responses come in the order of their requests.
pub trait Observer: fmt::Debug {
    /// The head of a request passes.
    fn requested(&self, head: &[u8]);

    /// A head of the response to the oldest request was read. The last call before
    /// [`Self::ended`] is about the final response.
    fn responded(&self, status: u16);

    /// The response to the oldest request has ended, with so many bytes behind its head, the framing
    /// of chunks included. `is_complete`: at its own end.
    fn ended(&self, bytes: u64, is_complete: bool);
}

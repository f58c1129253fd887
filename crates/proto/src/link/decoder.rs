//! The decoder state of a lane between two reads.

use super::event::StreamKey;

/// The position in the frames of a lane.
#[derive(Debug, Default)]
pub(super) enum Decoder {
    /// At the start of a frame.
    #[default]
    Head,
    /// Inside the payload of a frame.
    Payload(Payload),
}

impl Decoder {
    pub(super) fn expect(&mut self, payload: Payload) {
        if payload.left > 0 {
            *self = Self::Payload(payload);
        }
    }
}

#[derive(Debug)]
pub(super) struct Payload {
    /// The stream of the payload; `None`: the payload is skipped.
    pub(super) key: Option<StreamKey>,
    /// Bytes at the front that are duplicates.
    pub(super) known: usize,
    pub(super) left: usize,
}

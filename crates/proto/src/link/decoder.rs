//! The state of a lane's decoder between two reads.

use super::event::StreamKey;

/// The position in the frames of a lane.
#[derive(Debug, Default)]
pub(super) enum Decoder {
    /// At the start of a frame.
    #[default]
    Head,
    /// Inside the payload of one.
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
    /// Whose; `None`: nobody's, to be skipped.
    pub(super) key: Option<StreamKey>,
    /// Bytes at the front that had arrived before.
    pub(super) known: usize,
    pub(super) left: usize,
}

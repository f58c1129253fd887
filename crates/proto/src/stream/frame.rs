//! A frame that a stream keeps for sending and for replay.

use std::rc::Rc;

use bytes::Bytes;

use crate::offset::{Offset, length};
use crate::{HEAD_ROOM, Pages};

#[derive(Debug)]
pub(super) struct Frame {
    /// Head and payload; the head alone of a payload of pages.
    pub(super) bytes: Bytes,
    pub(super) pages: Option<Rc<dyn Pages>>,
    /// Offset of the first payload byte.
    pub(super) start: Offset,
    /// Capacity behind `bytes` in the buffer they were cut from, as long as no later frame was cut
    /// from it: nobody else can use it. Of pages their bytes.
    pub(super) slack: u32,
}

impl Frame {
    pub(super) fn payload(&self) -> u64 {
        if self.pages.is_some() {
            return u64::from(self.slack);
        }
        length(self.bytes.len() - HEAD_ROOM)
    }

    pub(super) fn end(&self) -> Offset {
        self.start.plus(self.payload())
    }

    pub(super) fn memory(&self) -> u64 {
        length(self.bytes.len() + size_of::<Self>()) + u64::from(self.slack)
    }
}

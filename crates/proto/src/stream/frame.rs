//! A frame that a stream retains for sending and for replay.

use std::rc::Rc;

use bytes::Bytes;

use crate::offset::{Offset, length};
use crate::{HEAD_ROOM, Pages};

#[derive(Debug)]
pub(super) struct Frame {
    /// Header and payload; only the header if the payload is pages.
    pub(super) bytes: Bytes,
    pub(super) pages: Option<Rc<dyn Pages>>,
    /// Offset of the first payload byte.
    pub(super) start: Offset,
    /// Unused capacity after `bytes` in their buffer, as long as no later frame uses it. For pages,
    /// their length in bytes.
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

//! Why a stream cannot send: for measurements, not for the data path.

use super::{Link, StreamKey};
use crate::offset::{length, memory};

/// What keeps a stream from sending now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// The peer allows no more, or as much is on its way as may be kept for replay.
    Credit {
        /// Bytes on their way.
        outstanding: usize,
    },
    /// A frame or more waits for the carrier.
    Carrier,
    /// The memory budget.
    Memory,
}

impl Link {
    /// What keeps a stream from sending, if anything does.
    #[must_use]
    pub fn stall(&mut self, key: StreamKey) -> Option<Stall> {
        if self.room(key) > 0 {
            return None;
        }
        let limit = self.frame_limit(key);
        let stream = super::lookup(&mut self.streams, key)?;
        let outstanding = stream.send.outstanding();
        Some(if stream.send.credit() == 0 || outstanding >= self.config.replay_per_stream {
            Stall::Credit { outstanding: memory(outstanding) }
        } else if stream.send.unsent() >= length(limit) || stream.send.is_full() {
            Stall::Carrier
        } else {
            Stall::Memory
        })
    }
}

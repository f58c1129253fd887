//! RESUME before its carrier: what a server says of a link to a client that is about to come back,
//! while it is not certain yet that it is the client (0-RTT).
//!
//! ```text
//!   preview: a look, nothing changes --> the last carrier may still bring what was under way,
//!   attach_previewed: the carrier is there, its RESUME was said --> the client's RESUME --> Live
//! ```
//! In between nearly everything only grows, as it does under way: bytes that came are sent again
//! and dropped, an end that came is said again and acknowledged, and what was consumed is told by
//! a CREDIT of each stream. One thing is not like that: a stream that was opened in between. The
//! client takes it for one that was never seen, but it may have been refused, and a refusal is said
//! once. Then the preview is void.

use std::time::Instant;

use bytes::Bytes;

use super::{Attach, Link};
use crate::{CarrierNumber, StreamId};

/// A link as it stood. Can be sent to another thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The link's RESUME, to be sent on the first lane of a carrier that is not attached yet.
    pub frames: Vec<Bytes>,
    highest: StreamId,
}

impl Link {
    /// What RESUME would say now. The peer may take it for the RESUME of its next carrier if it has
    /// no other until then.
    #[must_use]
    pub fn preview(&self) -> Preview {
        Preview { frames: self.resume_frames().into(), highest: self.highest }
    }

    /// A carrier was greeted, in place of all others, on which a preview was sent; as
    /// [`Link::attach`] but that RESUME is not said again. False: the preview is void, and the
    /// carrier with it. Then nothing has changed.
    #[must_use]
    pub fn attach_previewed(
        &mut self,
        now: Instant,
        number: CarrierNumber,
        preview: &Preview,
    ) -> bool {
        if preview.highest != self.highest {
            return false;
        }
        self.attach(now, number, Attach::Replaces(number));
        if let Some(carrier) = self.carriers.find(number) {
            carrier.resume.clear();
            carrier.was_previewed = true;
        }
        true
    }
}

//! RESUME before its carrier (0-RTT): a server describes a link to a client that has sent early
//! data and is not authenticated yet.
//!
//! ```text
//!   preview: read only, no state changes --> the last carrier may still deliver bytes in flight,
//!   attach_previewed: the carrier exists, its RESUME was sent --> the client's RESUME --> Live
//! ```
//! The link continues between these two steps. Nearly all its state is monotonic, which is
//! harmless: bytes that arrived meanwhile are sent again and dropped, an end that arrived is sent
//! again and acknowledged, and a CREDIT per stream announces consumption. The exception is a stream
//! that was opened meanwhile. The client assumes that the server never saw it, but the server may
//! have refused it, and a refusal is sent once. Then the preview is invalid.

use crate::Instant;

use bytes::Bytes;

use super::{Attach, Link};
use crate::{CarrierNumber, StreamId};

/// A snapshot of a link's state. Can be sent to another thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The link's RESUME, for the first lane of a carrier that is not attached yet.
    pub frames: Vec<Bytes>,
    highest: StreamId,
}

impl Link {
    /// The RESUME of the current state. The peer may use it as the RESUME of its next carrier if it
    /// attaches no other carrier before.
    #[must_use]
    pub fn preview(&self) -> Preview {
        Preview { frames: self.resume_frames().into(), highest: self.highest }
    }

    /// Attaches a carrier on which `preview` was sent, instead of all others. As [`Link::attach`],
    /// but RESUME is not sent again. Returns `false` and changes nothing if the preview is invalid;
    /// then the carrier cannot be used.
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

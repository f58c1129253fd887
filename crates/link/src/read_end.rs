//! The reasons for the end of a task that reads from a carrier.

use std::io;
use std::rc::Rc;

use proto::{CarrierNumber, Violation};

use crate::inner::Inner;
use crate::state::End;

/// Why a reader ended.
pub(crate) enum ReadEnd {
    /// The carrier is lost.
    Lost(io::Error),
    Violation(Violation),
    /// The lane of a single stream ended. The carrier continues.
    Over,
}

impl ReadEnd {
    /// Reports to the link why reading from its carrier `number` ended.
    pub(crate) fn report(self, link: &Rc<Inner>, number: CarrierNumber) {
        match self {
            Self::Lost(error) => {
                tracing::debug!(link = link.serial, carrier = number.0, %error, "carrier lost");
                link.carrier_ended(number);
            }
            Self::Violation(violation) => {
                let serial = link.serial;
                tracing::warn!(
                    link = serial, %violation,
                    "link {serial} ends, because the peer broke the protocol: {violation}"
                );
                link.end(End::Violation(violation));
            }
            Self::Over => {}
        }
    }
}

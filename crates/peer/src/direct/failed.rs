//! Why a trial yielded no carrier, for any kind of path.

use punch::{Decline, Why};
use transport::CarrierError;
use transport_quic::punched::Failure;

/// Why a trial yielded no carrier.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// There is no path, or QUIC fails on it.
    #[error(transparent)]
    Trial(#[from] Failure),
    /// The ends have exchanged their session descriptions, and no WebRTC connection resulted.
    #[error("no data channel of WebRTC: {0}")]
    Channels(CarrierError),
}

impl Failed {
    /// The failure that there is no path, for this reason.
    pub const fn because(why: Why) -> Self {
        Self::Trial(Failure::NoPath(why))
    }

    /// The name in metrics.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Trial(failure) => failure.name(),
            Self::Channels(_) => "webrtc",
        }
    }
}

impl From<Failed> for CarrierError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Trial(failure) => failure.into(),
            Failed::Channels(error) => error,
        }
    }
}

/// Why a WebRTC offer is not answered.
#[derive(Debug)]
pub(crate) struct Declined {
    pub(super) why: Decline,
    pub(super) failed: Failed,
}

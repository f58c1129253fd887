//! The server's own responses to visitors of a name, by reason.

use proto::ResetCode;

/// The delay after which a visitor of a disconnected client may retry, in seconds. A client that
/// lost its server reconnects at least every 1.5 s.
pub const RETRY_AFTER: u32 = 30;

/// Why the server itself responds to a visitor of a name, instead of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The address of the visitor may not visit.
    Forbidden,
    /// The client has reached its limit of streams.
    Busy,
    /// The client has used up its share of the descriptors.
    Full,
    /// The service or its client cannot be reached.
    Down(ResetCode),
}

impl Answer {
    /// Status and reason.
    pub const fn status(self) -> (u16, &'static str) {
        match self {
            Self::Forbidden => (403, "This address may not visit the service."),
            Self::Busy => (503, "The client of this service has as many streams as it may have."),
            Self::Full => (503, "The server has no room for more visitors of this service."),
            Self::Down(code) => match code {
                ResetCode::Refused => (502, "The target refused the connection."),
                ResetCode::Timeout => (504, "The target did not answer in time."),
                ResetCode::Unreachable => (502, "The target cannot be reached."),
                ResetCode::Denied => (502, "The client does not serve this visitor."),
                ResetCode::Limit => (503, "The client has as many streams as it may have."),
                ResetCode::Shutdown | ResetCode::Moved => {
                    (502, "The client of this service is not connected.")
                }
                ResetCode::Aborted => (502, "The target closed the connection without an answer."),
                ResetCode::Unknown | ResetCode::Internal | ResetCode::Other(_) => {
                    (502, "The client does not serve this service.")
                }
            },
        }
    }

    /// The delay after which the visitor may retry, in seconds, if the client is disconnected.
    pub const fn retry_after(self) -> Option<u32> {
        match self {
            Self::Down(ResetCode::Shutdown | ResetCode::Moved) => Some(RETRY_AFTER),
            Self::Forbidden | Self::Busy | Self::Full | Self::Down(_) => None,
        }
    }
}

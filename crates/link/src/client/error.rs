//! The errors of a client that did not reach its server.

use proto::greeting::Refusal;
use transport::CarrierError;

use crate::backoff::Failure;
use crate::greet::GreetError;

/// Why a connection to the server over a path failed.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No connection could be established.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    /// The connection was established, but the log-in failed.
    #[error(transparent)]
    Greet(#[from] GreetError),
}

impl DialError {
    /// Whether the server refused the log-in or its certificate failed the check, so that the user
    /// must act. False for a network failure.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        self.failure() != Failure::Network
    }

    pub(super) fn failure(&self) -> Failure {
        match self {
            Self::Carrier(error) if error.is_network() => Failure::Network,
            Self::Carrier(_) => Failure::Refused,
            Self::Greet(error) => match error.refusal() {
                Some(Refusal::Superseded) => Failure::Superseded,
                Some(Refusal::UnknownLink | Refusal::Unavailable) => Failure::Network,
                Some(_) => Failure::Refused,
                None => match error {
                    GreetError::Io(_) | GreetError::Handshake(_) | GreetError::Timeout => {
                        Failure::Network
                    }
                    GreetError::Greeting(_) => Failure::Refused,
                },
            },
        }
    }
}

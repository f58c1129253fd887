//! Why a client did not reach its server.

use proto::greeting::Refusal;
use transport::CarrierError;

use crate::backoff::Failure;
use crate::greet::GreetError;

/// Why a path did not lead to the server.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// There is no connection.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    /// There is a connection, but the log-in failed.
    #[error(transparent)]
    Greet(#[from] GreetError),
}

impl DialError {
    /// Whether the server refused the log-in or its certificate failed the check, so that a person
    /// has to act. False for a failure of the network.
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

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

    /// Whether the failure says something about the path. A refusal by the server does not, and
    /// neither do the settings and the state of this machine.
    #[must_use]
    pub fn is_of_path(&self) -> bool {
        match self {
            Self::Carrier(error) => error.is_of_path(),
            Self::Greet(error) => error.refusal().is_none(),
        }
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

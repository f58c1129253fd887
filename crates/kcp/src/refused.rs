//! The outcome of a datagram that cannot be opened.

/// A datagram is not what its sender sealed, or is too short to be. Which of them is nobody's
/// business: the datagram is dropped without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the datagram is refused")]
pub struct Refused;

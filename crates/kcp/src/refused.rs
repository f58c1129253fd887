//! The outcome of a datagram that cannot be opened.

/// The datagram was changed after it was sealed, or is too short. The error does not distinguish
/// the cases, because the datagram is dropped without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the datagram is refused")]
pub struct Refused;

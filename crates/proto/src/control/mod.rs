//! Messages on the control stream (stream 0): the services that a client publishes, and the
//! results.
//!
//! A message is `kind u8 | length u24 | TLVs`. Kinds with [`IGNORABLE`] that we do not know are
//! skipped, others end the link; TLVs that we do not know are skipped, but for mandatory options of
//! HTTP. Texts and counts are bounded on both sides: [`ControlMessage::encode`] refuses what
//! [`ControlDecoder`] would.

mod decode;
mod encode;
mod fuzz;
mod http;
mod invite;
mod message;
mod terms;
#[cfg(test)]
mod tests;

pub use decode::{ControlDecoder, ControlError};
pub use encode::EncodeError;
#[doc(hidden)]
pub use fuzz::fuzz;
pub use invite::{Invite, InviteAction, InviteOutcome, Invited, OneTimeSecret};
pub use message::{
    ControlMessage, FlowClose, FlowOpen, RefusedAddress, Register, Registered, ServiceError,
    ServiceErrorCode, ServiceResult, ServiceSpec, Strained, StunPorts,
};
pub use terms::{FlowTimes, ServiceTerms, Sharing, TCP_KEEPALIVE_MAX, Timeouts};

/// Body of a message in bytes, at most: 4096 services of 256 bytes each.
pub const MESSAGE_MAX: usize = 1 << 20;

/// Services in a message, at most. A whole set travels in one message, so that it is one decision.
pub const SERVICES_MAX: usize = 4096;

/// Public addresses of a service, at most.
pub const ADDRESSES_MAX: usize = 1024;

/// Patterns of visitors of a private service, at most.
pub const VISITORS_MAX: usize = 1024;

/// Ports of a [`ControlMessage::Stun`], at most.
pub const STUN_PORTS_MAX: usize = 8;

/// Bytes of a [`ControlMessage::Signal`], at most.
pub const SIGNAL_MAX: usize = 4 << 10;

/// Bytes of an address or an explanation, at most.
pub const TEXT_MAX: usize = 1024;

/// Bit of a message kind: a receiver that does not know the kind skips the message.
pub const IGNORABLE: u8 = 0x80;

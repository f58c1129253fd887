//! Messages on the control stream (stream 0): the services that a client publishes, and the
//! results.
//!
//! A message is `kind u8 | length u24 | TLVs`. Unknown kinds with [`IGNORABLE`] are skipped, others
//! end the link; unknown TLVs are skipped, except for mandatory HTTP options. Texts and counts are
//! bounded on both sides: [`ControlMessage::encode`] refuses what [`ControlDecoder`] would refuse.

mod decode;
mod encode;
mod fuzz;
mod homes;
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
pub use homes::{HomeNode, Homes};
pub use invite::{Invite, InviteAction, InviteOutcome, Invited, OneTimeSecret};
pub use message::{
    ControlMessage, FlowClose, FlowOpen, RefusedAddress, Register, Registered, ServiceError,
    ServiceErrorCode, ServiceResult, ServiceSpec, Strained, StunPorts,
};
pub use terms::{FlowTimes, ServiceTerms, TCP_KEEPALIVE_MAX, Timeouts};

/// Maximum body of a message, in bytes: 4096 services of 256 bytes each.
pub const MESSAGE_MAX: usize = 1 << 20;

/// Maximum number of services in a message. A whole set is sent in one message, so that it is
/// applied atomically.
pub const SERVICES_MAX: usize = 4096;

/// Maximum number of public addresses of a service.
pub const ADDRESSES_MAX: usize = 1024;

/// Maximum number of visitor patterns of a private service.
pub const VISITORS_MAX: usize = 1024;

/// Maximum number of ports in a [`ControlMessage::Stun`].
pub const STUN_PORTS_MAX: usize = 8;

/// Maximum number of nodes in a [`ControlMessage::Homes`].
pub const HOME_NODES_MAX: usize = 16;

/// Maximum number of addresses of a node in a [`ControlMessage::Homes`].
pub const HOME_ADDRESSES_MAX: usize = 4;

/// Maximum length of a [`ControlMessage::Signal`], in bytes.
pub const SIGNAL_MAX: usize = 4 << 10;

/// Maximum length of a [`ControlMessage::Node`], in bytes: a record of the cluster, which has at
/// most 16 KiB, with the words around it.
pub const NODE_MAX: usize = 32 << 10;

/// Maximum length of an address or an explanation, in bytes.
pub const TEXT_MAX: usize = 1024;

/// Bit of a message kind: a receiver that does not know the kind skips the message.
pub const IGNORABLE: u8 = 0x80;

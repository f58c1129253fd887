//! Congestion control and pacing on plain numbers and time, for transports that send packets
//! themselves.
//!
//! [`Bbr`] decides how many bytes may be in flight. [`Copies`] decides which packets are sent
//! twice. [`pacing`] decides when a timer of a pacer fires. The caller passes the current time to
//! every call; the crate has no clock, no socket and no task. An adapter in each transport
//! translates its events into these calls.

mod bbr;
mod copies;
pub mod pacing;
#[cfg(test)]
mod testing;

pub use bbr::{Bbr, Measured};
pub use copies::Copies;

/// Packets that a sender sends before the first acknowledgement. RFC 9002 section 7.2 says 10.
/// Other QUIC stacks also start with 32 and pace them over a round trip. With 10 packets the first
/// probe of the path's MTU, about six packets, delayed the greeting by a round trip.
pub const FIRST_FLIGHT: u64 = 32;

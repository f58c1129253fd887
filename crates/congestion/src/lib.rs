//! Congestion control and pacing on plain numbers and time, for transports that send packets
//! themselves.
//!
//! [`Bbr`] decides how many bytes may be in flight. [`pacing`] decides when a timer of a pacer
//! fires. The caller passes the current time to every call; the crate has no clock, no socket and
//! no task. An adapter in each transport translates its events into these calls.

mod bbr;
pub mod pacing;
#[cfg(test)]
mod testing;

pub use bbr::Bbr;

/// Packets that leave before the first acknowledgement. RFC 9002 section 7.2 says 10; they leave paced over a
/// round trip, as those of other QUIC stacks that start with 32. With 10 the first probe of the path's
/// MTU, of half a dozen packets, held up the greeting for a round trip.
pub const FIRST_FLIGHT: u64 = 32;

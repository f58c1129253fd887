//! The tunnel protocol as plain values: bytes, events and the current time go in; bytes, events and
//! the next deadline come out. No socket, no clock, no task, no lock, no randomness.

mod code;
mod id;
mod open;

pub use code::ResetCode;
pub use id::{CarrierNumber, InstanceId, LinkId, Side, StreamId};
pub use open::{Open, Priority, Target};

/// Bytes that a DATA frame's head takes in front of its payload. Read buffers leave this room, so
/// that the head is written in place and the payload is never moved.
pub const HEAD_ROOM: usize = 12;

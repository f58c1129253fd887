//! A reliable byte stream over datagrams, with forward error correction (FEC).
//!
//! The crate is pure: it has no socket, no clock and no randomness. The caller passes datagrams,
//! the current time and random bytes, and sends what the crate returns.
//!
//! The packets are of this project, and no other end understands them. Sessions that kcp-go
//! understands are the crate `kcp-go`, in the workspace `crates/kcp-go`, which the daemon does not
//! use. They are made of the same parts ([`stream`]).
//!
//! | module | content |
//! |---|---|
//! | [`own`] | the packets, and sessions over them |
//! | [`stream`] | the parts of a reliable stream, whatever its packets look like |
//! | `refused` | the outcome of a datagram that cannot be opened |
//! | [`timers`] | one timer for all sessions of a driver |

pub mod own;
mod refused;
pub mod stream;
#[cfg(test)]
mod testing;
pub mod timers;

pub use refused::Refused;
pub use stream::control::Control;
pub use stream::number::Sn;

//! A reliable byte stream over datagrams, with forward error correction (FEC).
//!
//! The crate is pure: it has no socket, no clock and no randomness. The caller passes datagrams,
//! the current time and random bytes, and sends what the crate returns.
//!
//! There are two independent kinds of sessions. The daemon runs `own`. `compat` is for kcp-go
//! peers. The feature `compat` adds it, and a check refuses a daemon that is built with this
//! feature.
//!
//! | module | content |
//! |---|---|
//! | [`own`] | the packets of this project, which other programs do not understand |
//! | `compat` | feature `compat`: sessions that kcp-go understands |
//! | [`stream`] | the parts of which both kinds of sessions are made |
//! | `refused` | the outcome of a datagram that cannot be opened |
//! | [`timers`] | one timer for all sessions of a driver |

#[cfg(feature = "compat")]
pub mod compat;
pub mod own;
mod refused;
pub mod stream;
#[cfg(test)]
mod testing;
pub mod timers;

pub use refused::Refused;
pub use stream::control::Control;
pub use stream::number::Sn;

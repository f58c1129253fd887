//! KCP: a reliable byte stream over datagrams, with forward error correction (FEC), compatible with
//! kcp-go on the wire.
//!
//! The crate is pure: it has no socket, no clock and no randomness. The caller passes datagrams, the
//! current time and random bytes, and sends what the crate returns.
//!
//! | module | content |
//! |---|---|
//! | [`classic`] | the state machine of kcp-go, bug for bug |
//! | [`engine`] | the reliable stream: windows, acknowledgements, loss, congestion control, timers |
//! | [`envelope`] | encryption as kcp-go lays it out; the algorithms are outside, behind traits |
//! | [`fec`] | parity shards as kcp-go makes them, and what is rebuilt of them |
//! | [`own`] | the packets of this project, which no other end understands |
//! | [`session`] | engine, FEC and envelope together: datagrams in and out, for stock peers |
//! | [`timers`] | one timer for all sessions of a driver |
//! | [`wire`] | the layouts of segments, shards and out-of-band datagrams; arithmetic of sequence numbers |

pub mod classic;
pub mod engine;
pub mod envelope;
pub mod fec;
mod flight;
#[doc(hidden)]
pub mod fuzz;
pub mod own;
#[cfg(test)]
mod rig;
pub mod session;
pub mod timers;
pub mod wire;

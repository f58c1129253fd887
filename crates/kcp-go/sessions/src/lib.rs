//! Sessions that kcp-go understands: a reliable byte stream over datagrams, with forward error
//! correction (FEC). The daemon has none: its sessions are `kcp::own`.
//!
//! The crate is pure: it has no socket, no clock and no randomness. The caller passes datagrams,
//! the current time and random bytes, and sends what the crate returns. What any reliable stream is
//! made of comes from [`kcp::stream`].
//!
//! | module | content |
//! |---|---|
//! | [`classic`] | the state machine of kcp-go, bug for bug |
//! | [`engine`] | the reliable stream on the wire of kcp-go, with its own loss detection and control |
//! | [`envelope`] | encryption as kcp-go lays it out; the algorithms are outside, behind traits |
//! | [`fec`] | parity shards as kcp-go makes them, and what is rebuilt of them |
//! | [`session`] | engine, FEC and envelope together: datagrams in and out |
//! | [`wire`] | the layouts of segments, shards and out-of-band datagrams |
//! | `fuzz` | the harness of the fuzz targets |

pub mod classic;
pub mod engine;
pub mod envelope;
pub mod fec;
#[doc(hidden)]
pub mod fuzz;
pub mod session;
pub mod wire;

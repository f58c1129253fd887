//! KCP: a reliable byte stream over datagrams, with forward error correction (FEC), compatible with
//! kcp-go on the wire.
//!
//! The crate is pure: it has no socket, no clock and no randomness. The caller passes datagrams, the
//! current time and random bytes, and sends what the crate returns.
//!
//! | module | content |
//! |---|---|
//! | [`envelope`] | encryption as kcp-go lays it out; the algorithms are outside, behind traits |
//! | [`fec`] | parity shards as kcp-go makes them, and what is rebuilt of them |
//! | [`wire`] | the layouts of segments, shards and out-of-band datagrams; arithmetic of sequence numbers |

pub mod envelope;
pub mod fec;
pub mod wire;

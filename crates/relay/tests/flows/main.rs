//! Flows between real sockets of this machine: a listener for peers and a dialler of targets, joined
//! by a link in memory, all on one thread.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    reason = "a test fails by panicking, and lookups wait in threads of their own"
)]

mod follow;
mod limits;
mod names;
mod rig;
mod traffic;
mod workers;

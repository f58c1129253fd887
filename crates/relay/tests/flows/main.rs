//! Flows between real sockets of this machine: a listener for peers and a dialler of targets,
//! joined by a link in memory, all on one thread. Idle connections and the kept inputs of the fuzz
//! targets are in the same program.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    reason = "a test fails by panicking, and lookups wait in threads of their own"
)]

#[path = "../corpus.rs"]
mod corpus;
mod follow;
mod limits;
mod moving;
mod names;
#[path = "../rest.rs"]
mod rest;
mod rig;
mod traffic;
mod workers;

//! Nodes of a cluster in one process, over loopback, with certificates of one authority. The
//! cluster itself is a table that the test fills.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]
#![allow(clippy::print_stdout, reason = "measurements tell their figures")]

mod ground;
mod joints;
mod links;
#[path = "../../cluster-node/tests/memory.rs"]
#[allow(dead_code, reason = "the tests of the crate cluster-node use the rest")]
mod memory_engine;
mod plain;
mod proofs;
mod real_cluster;
mod streams;

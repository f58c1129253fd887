//! The tests of the crate from outside, as a single program.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

#[path = "../../etcd/tests/member.rs"]
#[allow(dead_code, reason = "the tests of the crate etcd use the rest")]
mod member;

mod ground;
mod in_memory;
mod memory;
mod over_etcd;
mod scenes;

//! A server that is killed and started again: what its clients notice, with what tickets they
//! resume, and at which worker their packets arrive. The tests use quinn itself, without the lanes
//! of this crate.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

mod process;
mod reset;
mod resume;
mod steer;

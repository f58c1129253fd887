//! A server that is killed and started again, and its clients: what they notice, what they resume
//! with, and where their datagrams arrive. Over quinn itself, without the lanes of this crate.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

mod process;
mod reset;
mod resume;
mod steer;

//! The tests of the crate from outside, as a single program.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

mod faults;
mod gateway;
mod member;
mod one;
mod over_tls;

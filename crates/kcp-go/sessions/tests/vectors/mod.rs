//! The vectors that were recorded from kcp-go, each section in a file of its own.

#![allow(clippy::unwrap_used, reason = "a vector that cannot be read fails its test")]

mod json;
mod kcp_traces;
mod rtt;
mod segments;

//! The proxy between raw bytes of visitors and raw bytes of targets, in memory and under a paused
//! clock. A test that waits for a byte that never comes ends by the time-outs of the proxy.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

mod bodies;
mod compress;
mod files;
mod flow;
mod frames;
mod h2;
mod half;
mod interim;
mod limits;
mod memory;
mod options;
mod pool;
mod records;
mod redirects;
mod rig;
mod routing;
mod smuggling;
mod sticky;
mod targets;
mod upgrade;

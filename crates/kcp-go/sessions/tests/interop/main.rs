//! Tests against kcp-go itself, as client and as server, over real sockets behind an emulated path.
//! Each side tells the hash of what it got.
//!
//! `cargo xtask test kcp-interop` builds the peer, a program in Go, and names it.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "two programs speak over real sockets"
)]

mod classic;
mod drive;
mod matrix;
mod peer;
mod session;

use std::time::Duration;

use testkit::netem::Weather;

/// A short path that loses, overtakes and repeats.
fn path(loss: f64) -> Weather {
    let delay = Duration::from_millis(5);
    Weather { delay, loss, reorder: 0.02, duplicate: 0.02, ..Weather::default() }
}

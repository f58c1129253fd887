//! Links as their owners see them: the real client and the real greeting over carriers in memory
//! (virtual time) and over TLS on loopback, killed, silenced, replayed and abused.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]
#![allow(clippy::print_stdout, reason = "long runs tell their counts")]

/// These carriers have one lane for everything; see `tests/lanes.rs`.
const LANES: Option<usize> = None;

mod choice;
mod early;
mod ends;
mod flows;
mod hostile;
mod kills;
mod log_in;
mod paged;
mod passed;
mod paths;
mod replay;
mod rig;
mod silence;
mod spread;
mod standby;
mod storm;
mod strained;
mod streams;
mod succession;
mod weather;

//! The stories of `tests/link` once more, over carriers with a lane per stream and direction, of
//! which there are few: further streams share the first lane.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]
#![allow(clippy::print_stdout, reason = "long runs tell their counts")]

const LANES: Option<usize> = Some(5);

#[path = "link/ends.rs"]
mod ends;
#[path = "link/flows.rs"]
mod flows;
#[path = "link/hoard.rs"]
mod hoard;
#[path = "link/hostile.rs"]
mod hostile;
#[path = "link/kills.rs"]
mod kills;
#[path = "link/replay.rs"]
mod replay;
#[path = "link/rig/mod.rs"]
mod rig;
#[path = "link/silence.rs"]
mod silence;
#[path = "link/spread.rs"]
mod spread;
#[path = "link/standby.rs"]
mod standby;
#[path = "link/storm.rs"]
mod storm;
#[path = "link/streams.rs"]
mod streams;
#[path = "link/succession.rs"]
mod succession;

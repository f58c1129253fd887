//! Forward error correction as kcp-go has it: groups of data shards and of parity shards.
//!
//! Any `data` of the `data + parity` shards of a group rebuild the rest ([`Ratio`]). [`Encoder`]
//! makes the parity. [`Decoder`] rebuilds lost shards, and detects the ratio of a sender
//! ([`Tuner`]). All of them agree with kcp-go bit for bit. [`adaptive`] decides how much of the
//! parity is sent, and when.

pub mod adaptive;
mod code;
mod decoder;
mod encoder;
#[doc(hidden)]
pub mod fuzz;
mod group;
mod numbering;
mod tune;

pub use code::Ratio;
pub use decoder::{Counters, Decoder, Rebuilt, Shard};
pub use encoder::{Encoder, FILLER, LONGEST_PAUSE, Settings, TooLong};
pub use tune::Tuner;

//! A seeded emulator of the network between two ends, in virtual time and without I/O.
//!
//! [`Pipe`] is one direction of a carrier: an ordered byte pipe with delay, jitter, a rate with a
//! bounded queue, cuts, silence, and any slicing of the arriving bytes into reads. [`Datagrams`] is
//! the same for packets: loss, bursts of loss, reordering, duplication. The same seed gives the
//! same run.

mod datagrams;
mod pipe;
mod rng;
mod weather;

pub use datagrams::{Counts, Datagrams};
pub use pipe::{Conditions, Pipe, Slices};
pub use rng::Rng;
pub use weather::{Burst, Weather};

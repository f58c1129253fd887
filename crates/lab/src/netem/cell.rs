//! One measurement: a system over a path, and the paths that all runs have.

use super::path::Path;
use super::stream::Way;
use super::systems::System;

/// The case with a floor: round-trip time, rate, and the seconds within which the share of the rate
/// must be reached.
pub(super) const CASE_RTT: f64 = 100.0;
pub(super) const CASE_RATE: f64 = 1000.0;
pub(super) const CASE_SECONDS: u32 = 5;
pub(super) const CASE_FLOOR: f64 = 0.85;

/// Mbit/s of the bottleneck in all other cases, unless an option sets another rate.
pub(super) const MATRIX_RATE: f64 = 100.0;

/// One measurement.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) system: System,
    pub(super) way: Way,
    pub(super) path: Path,
    pub(super) seconds: u32,
}

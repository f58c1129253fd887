//! `benches/floors.toml`: the performance floors of the project, and the check of a run against
//! them.
//!
//! ```toml
//! [[floor]]
//! case = "http-100"          # the case
//! system = "tunnel-tcp"      # the system
//! ratio_to = "direct"        # the rate, relative to this system's in the same round
//! at_least = 0.48            # the median of those ratios
//! ```
//!
//! Instead of `ratio_to`, a floor may have one of these keys:
//!
//! - `p99_ratio_to = SYSTEM`: the 99th percentile, relative to another system's.
//! - `cpu_ratio_to = SYSTEM`: the processor time per request, connection, log-in, gigabyte or
//!   packet, relative to another system's. It depends less on the machine than a rate does.
//! - `case_ratio_to = CASE`: the rate, relative to the same system's rate in another case of the
//!   same round.
//! - `figure = KEY`: a figure itself (`cpu_us_per_request`, `p99_ms`, …).
//!
//! The bound is `at_least` or `at_most`. Several floors may compare the same things. A floor
//! without effect is refused: an unknown key, case, system or figure is an error.

mod parse;
mod verdict;

use super::case::Case;
use super::figure::Figure;

pub(super) use parse::parse;
pub(super) use verdict::{Verdict, judge};

/// One floor of the file.
#[derive(Debug)]
pub(super) struct Floor {
    case: &'static Case,
    system: &'static str,
    what: What,
    bound: Bound,
}

/// The value that is compared with the bound.
#[derive(Debug)]
enum What {
    /// A figure relative to the same figure of another system.
    ToSystem(Figure, &'static str),
    /// The rate relative to the rate in another case.
    ToCase(&'static Case),
    Figure(Figure),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl std::fmt::Display for Floor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: ", self.case.name, self.system)?;
        match &self.what {
            What::ToSystem(figure, other) => write!(f, "{} to {other}", figure.key()),
            What::ToCase(other) => write!(f, "rate to {}", other.name),
            What::Figure(figure) => f.write_str(figure.key()),
        }
    }
}

//! One step of the suite. The files of the steps and the command line both need it.

use anyhow::Result;

use xtask::site::Site;
use xtask::verdict::Verdict;

/// One thing that has to hold.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) long: bool,
    pub(super) run: fn(&Site, Lengths) -> Result<Verdict>,
}

/// How long the long steps take that can take any time, in minutes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lengths {
    /// Of each fuzz target.
    pub(super) fuzz: f64,
    pub(super) chaos: f64,
    pub(super) soak: f64,
    /// Of the nodes of a cluster that are killed in turn.
    pub(super) cluster: f64,
}

impl Default for Lengths {
    fn default() -> Self {
        Self { fuzz: 2.0, chaos: 2.0, soak: 20.0, cluster: 2.0 }
    }
}

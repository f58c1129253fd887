//! The outcome of a step that did not fail.

use crate::child::Tally;

/// The outcome of a step without a failure.
#[derive(Debug)]
pub enum Verdict {
    /// The step found nothing wrong.
    Passed(Tally),
    /// The step could not run on this machine; the text is the reason.
    Skipped(String),
    /// Data of the network are out of reach; the text is the reason. The continuous integration may
    /// have no network, so this never fails.
    OutOfReach(String),
}

impl Verdict {
    /// The outcome of a step that passed and counts no tests.
    pub const PASSED: Self = Self::Passed(Tally { passed: 0, ignored: 0 });
}

/// The exit status of a program that cannot run on this machine. Test harnesses of other projects
/// (Automake, Meson) use the same number. The last line of output has the reason.
pub const SKIPPED: u8 = 77;

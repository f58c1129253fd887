//! All steps of the suite.

use super::step::Step;
use super::{long, steps};

/// All steps, in their order.
pub(super) fn all() -> impl Iterator<Item = &'static Step> {
    steps::STEPS.iter().chain(long::STEPS)
}

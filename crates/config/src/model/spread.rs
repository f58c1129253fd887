//! How the visitors of a service are distributed over its targets.

use proto::Balance;

use crate::Target;
use crate::key_table::KeyTable;

/// The largest number of targets of a service.
pub(crate) const TARGETS_MAX: usize = 64;

/// The largest weight of a target.
pub(crate) const WEIGHT_MAX: u16 = 256;

/// An additional target of a service.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows)]
pub struct Weighted {
    /// The address of this target {of}.
    ///
    /// The client dials it over the protocol of the first target.
    #[key("a target of a list", name = "url", required, holds = Url)]
    pub target: Target,
    /// The weight of this target, to which its share of new visitors is proportional.
    ///
    /// A target of weight 0 gets no new visitors.
    #[key("0 (no new visitors) to 256", default = "1")]
    pub weight: u16,
}

/// The additional targets of a service, and the rule that chooses among all targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The rule.
    pub balance: Balance,
    /// The weight of the first target.
    pub weight: u16,
    /// The other targets. Each differs from all others, and at least one weight is not 0.
    pub others: Vec<Weighted>,
}

impl Default for Spread {
    fn default() -> Self {
        Self { balance: Balance::default(), weight: 1, others: Vec::new() }
    }
}

//! How the visitors of a service are distributed over its targets.

use std::fmt;

use proto::control::Sharing;

use crate::Target;
use crate::key_table::KeyTable;

/// The largest number of targets of a service.
pub(crate) const TARGETS_MAX: usize = 64;

/// The largest weight of a target.
pub(crate) const WEIGHT_MAX: u16 = 256;

/// How the target of a visitor is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The targets take turns.
    #[default]
    RoundRobin,
    /// The target with the fewest connections in proportion to its weight.
    LeastConnections,
    /// All visitors of one IP address get the same target.
    SourceHash,
}

impl Balance {
    pub(crate) const NAMES: [&'static str; 3] = ["round_robin", "least_connections", "source_hash"];

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::RoundRobin, Self::LeastConnections, Self::SourceHash]
            .into_iter()
            .find(|balance| balance.name() == name)
    }

    /// The word of the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        let [round_robin, least_connections, source_hash] = Self::NAMES;
        match self {
            Self::RoundRobin => round_robin,
            Self::LeastConnections => least_connections,
            Self::SourceHash => source_hash,
        }
    }
}

impl Balance {
    /// The rule for clients that share an address.
    pub(crate) const fn sharing(self) -> Sharing {
        match self {
            Self::RoundRobin => Sharing::RoundRobin,
            Self::LeastConnections => Sharing::LeastConnections,
            Self::SourceHash => Sharing::SourceHash,
        }
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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

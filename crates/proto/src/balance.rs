//! How visitors are distributed: over the targets of a service, and over the clients that share an
//! address. One list for the configuration, the protocol and whatever distributes
//! (`relay/src/balance/`).

use std::fmt;

/// A rule that chooses one of several ends for a visitor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The ends take turns in proportion to their weights.
    #[default]
    RoundRobin,
    /// The end with the fewest visitors in proportion to its weight; equal ends take turns.
    LeastConnections,
    /// The same end for all visitors of one IP address.
    SourceHash,
    /// The end with the least product of visitors and time to reach it, in proportion to its
    /// weight. Without the visitors, all of them would go to the nearest end.
    LeastLatency,
}

impl Balance {
    /// All rules.
    pub const ALL: [Self; 4] =
        [Self::RoundRobin, Self::LeastConnections, Self::SourceHash, Self::LeastLatency];

    /// The words of all rules, as the reference of the configuration has them.
    pub const WORDS: &str = "`round_robin`, `least_connections`, `source_hash`, `least_latency`";

    /// The table: the number on the wire (SPEC.md, field `sharing`), and the word of the
    /// configuration.
    const fn row(self) -> (u8, &'static str) {
        match self {
            Self::RoundRobin => (0, "round_robin"),
            Self::LeastConnections => (1, "least_connections"),
            Self::SourceHash => (2, "source_hash"),
            Self::LeastLatency => (3, "least_latency"),
        }
    }

    /// The number on the wire.
    pub(crate) const fn number(self) -> u8 {
        self.row().0
    }

    /// The rule of a number. An unknown rule of a newer peer is treated as round robin.
    pub(crate) fn of_number(number: u8) -> Self {
        Self::ALL.into_iter().find(|rule| rule.number() == number).unwrap_or_default()
    }

    /// The word of the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().1
    }

    /// The rule of a word.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }

    /// The words of all rules in a sentence, with the default.
    #[must_use]
    pub fn choices() -> String {
        let [others @ .., last] = Self::ALL.map(Self::name);
        format!("{} or {last} [default: {}]", others.join(", "), Self::default())
    }
}

/// The word of the configuration.
impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_a_number_and_a_word_of_its_own() {
        for (number, rule) in (0..).zip(Balance::ALL) {
            assert_eq!((rule.number(), Balance::of_number(number)), (number, rule));
            assert_eq!(Balance::of_name(rule.name()), Some(rule));
        }
        let words = Balance::ALL.map(|rule| format!("`{rule}`"));
        assert_eq!(Balance::WORDS, words.join(", "));
        assert_eq!(Balance::of_number(200), Balance::RoundRobin);
        assert_eq!(Balance::of_name("random"), None);
        assert_eq!(
            Balance::choices(),
            "round_robin, least_connections, source_hash or least_latency [default: round_robin]"
        );
    }
}

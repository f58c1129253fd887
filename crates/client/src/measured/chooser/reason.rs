//! Why a path is the chosen path, as a value and as a sentence for people.

use std::time::Duration;

use super::super::figures::{DOWN, EQUAL, Figures, UP, is_more};

/// Why a path is the chosen path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum ChoiceReason {
    /// Nothing was known of the paths: the first one that answered.
    #[default]
    First,
    /// What was remembered of this network put it first.
    Remembered,
    /// Its round trip is less.
    Nearer { own: Duration, other: (usize, Duration) },
    /// It carried the most in trials.
    Faster { own: u64, other: (usize, u64) },
    /// It carried about as much in trials as another path, whose connection begins slowly after a
    /// pause.
    KeepsWindow { own: u64, other: (usize, u64) },
    /// No other path carried more in trials.
    NoFaster { own: u64, other: (usize, u64) },
    /// `tunnel move` named it.
    Commanded,
}

impl ChoiceReason {
    /// The reason as a sentence about the chosen path. `name` gives the names of the others.
    pub(in super::super) fn text(self, name: impl Fn(usize) -> String) -> String {
        let millis = |time: Duration| time.as_secs_f64() * 1_000.0;
        let rate = |bytes: u64| format!("{:.1} Mbit/s", bytes as f64 * 8.0 / 1e6);
        match self {
            Self::First => "it is the first path that answered".to_owned(),
            Self::Remembered => "the figures of this network put it first".to_owned(),
            Self::Commanded => "`tunnel move` named it".to_owned(),
            Self::Nearer { own, other: (other, rtt) } => format!(
                "its round trip takes {:.1} ms, that of {} {:.1} ms",
                millis(own),
                name(other),
                millis(rtt)
            ),
            Self::Faster { own, other: (other, than) } => {
                format!("it carried {}, {} carried {}", rate(own), name(other), rate(than))
            }
            Self::KeepsWindow { own, other: (other, than) } => format!(
                "it keeps its speed over a pause and is about as fast: it carried {}, {} carried {}",
                rate(own),
                name(other),
                rate(than)
            ),
            Self::NoFaster { own, other: (other, than) } => format!(
                "no other path was faster: it carried {}, {} carried {}",
                rate(own),
                name(other),
                rate(than)
            ),
        }
    }
}

/// Why the path `own` is chosen in the place of `other`.
pub(super) fn why(paths: &[Figures], own: usize, other: usize) -> Option<ChoiceReason> {
    let (one, two) = (paths.get(own)?, paths.get(other)?);
    let faster = [UP, DOWN].into_iter().find_map(|direction| {
        let ((own, _), (rate, _)) = (one.goodput[direction]?, two.goodput[direction]?);
        is_more(own, rate, EQUAL).then_some(ChoiceReason::Faster { own, other: (other, rate) })
    });
    faster.or_else(|| {
        let ((own, _), (rtt, _)) = (one.rtt?, two.rtt?);
        Some(ChoiceReason::Nearer { own, other: (other, rtt) })
    })
}

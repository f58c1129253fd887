//! What can happen to a path, and how chance draws it.

use std::time::Duration;

use crate::netem::Rng;

/// Which of the present connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every one.
    All,
    /// One; the number picks it among those that stand.
    One(u32),
}

/// Which direction; `Up` is from whoever connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Towards the target.
    Up,
    /// From the target.
    Down,
    /// Both.
    Both,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// RST to both ends.
    Reset(Reach),
    /// FIN to both ends, in the middle of whatever they said.
    Close(Reach),
    /// Nothing gets through for a while; then everything does.
    Stall(Duration),
    /// One byte at a time for a while.
    Trickle(Duration),
    /// From now on packets vanish, FIN and RST among them: a half-open path. New connections get
    /// through.
    Swallow(Reach, Way),
}

/// Longest stall drawn. A carrier is given up after 5 s of silence with data outstanding, so that
/// about every second one is shorter than the link's patience.
const STALL_MAX: Duration = Duration::from_secs(9);

/// Longest time of single bytes drawn.
const TRICKLE_MAX: Duration = Duration::from_secs(3);

impl Trouble {
    /// One of each kind.
    pub fn each(rng: &mut Rng) -> [Self; 5] {
        let reach = |rng: &mut Rng| {
            let pick = u32::try_from(rng.below(1 << 16)).unwrap_or(0);
            if rng.chance(500) { Reach::All } else { Reach::One(pick) }
        };
        // A path that is dead one way only is rare, and nastier.
        let way = [Way::Both, Way::Both, Way::Up, Way::Down][rng.below(4) as usize];
        [
            Self::Reset(reach(rng)),
            Self::Close(reach(rng)),
            Self::Stall(up_to(rng, STALL_MAX)),
            Self::Trickle(up_to(rng, TRICKLE_MAX)),
            Self::Swallow(reach(rng), way),
        ]
    }

    /// One word for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reset(_) => "reset",
            Self::Close(_) => "close",
            Self::Stall(_) => "stall",
            Self::Trickle(_) => "trickle",
            Self::Swallow(..) => "swallow",
        }
    }

    /// How long it lasts by itself; what is swallowed stays so until both ends give up.
    #[must_use]
    pub const fn lasts(self) -> Duration {
        match self {
            Self::Stall(time) | Self::Trickle(time) => time,
            Self::Reset(_) | Self::Close(_) | Self::Swallow(..) => Duration::ZERO,
        }
    }
}

/// At least a tenth of `most`.
fn up_to(rng: &mut Rng, most: Duration) -> Duration {
    let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(most / 10 + rng.below(most - most / 10))
}

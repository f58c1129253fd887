//! Faults of a path, and their random choice.

use std::time::Duration;

use crate::netem::Rng;

/// Selects among the present connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All connections.
    All,
    /// One connection; the number picks it among the open connections.
    One(u32),
}

/// The direction of a fault; `Up` is the direction away from the connecting end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Towards the target.
    Up,
    /// From the target.
    Down,
    /// Both directions.
    Both,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// RST to both ends.
    Reset(Reach),
    /// FIN to both ends, in the middle of their data.
    Close(Reach),
    /// Nothing gets through for this time; then everything does.
    Stall(Duration),
    /// One byte at a time for this time.
    Trickle(Duration),
    /// From now on, packets are lost, FIN and RST among them: a half-open path. New connections get
    /// through.
    Swallow(Reach, Way),
}

/// The maximum stall that is drawn. A carrier is given up after 5 s of silence with data
/// outstanding, so about every second stall is shorter than the link's timeout.
const STALL_MAX: Duration = Duration::from_secs(9);

/// The maximum time of single bytes that is drawn.
const TRICKLE_MAX: Duration = Duration::from_secs(3);

impl Trouble {
    /// One fault of each kind.
    pub fn each(rng: &mut Rng) -> [Self; 5] {
        let reach = |rng: &mut Rng| {
            let pick = u32::try_from(rng.below(1 << 16)).unwrap_or(0);
            if rng.chance(500) { Reach::All } else { Reach::One(pick) }
        };
        // A path that is dead in one direction only is rare, and harder to handle.
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

    /// The duration of the fault. A swallowing path remains so until both ends give up.
    #[must_use]
    pub const fn lasts(self) -> Duration {
        match self {
            Self::Stall(time) | Self::Trickle(time) => time,
            Self::Reset(_) | Self::Close(_) | Self::Swallow(..) => Duration::ZERO,
        }
    }
}

/// A random time from a tenth of `most` up to `most`.
fn up_to(rng: &mut Rng, most: Duration) -> Duration {
    let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(most / 10 + rng.below(most - most / 10))
}

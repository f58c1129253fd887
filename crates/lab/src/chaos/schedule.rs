//! The faults and their times. Faults are dealt from shuffled decks that hold every kind, so that
//! even a short run sees all of them. The same seed deals the same faults.

use std::time::Duration;

use testkit::netem::Rng;
use testkit::wire::Trouble;

/// The longest pause between two faults, in ms; the shortest is a tenth of it.
const PAUSE_MAX: u64 = 3_500;

/// The longest time that an ended process stays away, in ms.
const AWAY_MAX: u64 = 1_500;

/// The most resets while a process comes back; each reset costs the client a pause before its next
/// attempt.
const STUTTERS_MAX: u64 = 4;

/// One of the two daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Server,
    Client,
}

impl Role {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

/// How a process comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rebirth {
    /// The time that the process stays away.
    pub(super) away: Duration,
    /// The number of resets of the whole path during the handshakes.
    pub(super) stutters: u32,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A fault of the path between the two daemons.
    Path(Trouble),
    /// SIGKILL, and a new process after a pause.
    Kill(Role, Rebirth),
    /// SIGTERM, and a new process some time after the end.
    Terminate(Role, Rebirth),
    /// The wall clock of a daemon gets this offset.
    Clock(Role, &'static str),
    /// The server's name gets another address. Connections to the old address go silent or are
    /// reset, and so are later connections to it.
    Name { silent: bool },
}

impl Fault {
    /// Whether the fault ends a process.
    #[cfg(test)]
    const fn is_deadly(self) -> bool {
        matches!(self, Self::Kill(..) | Self::Terminate(..))
    }

    /// The name in tables: one or two words.
    pub(super) fn name(self) -> String {
        match self {
            Self::Path(trouble) => trouble.name().to_owned(),
            Self::Kill(role, _) => format!("kill -9 {}", role.name()),
            Self::Terminate(role, _) => format!("SIGTERM {}", role.name()),
            Self::Clock(role, _) => format!("clock {}", role.name()),
            Self::Name { .. } => "other address".to_owned(),
        }
    }
}

/// An endless sequence of faults.
#[derive(Debug)]
pub(super) struct Schedule {
    rng: Rng,
    deck: Vec<Fault>,
    /// The number of decks dealt.
    decks: u64,
}

impl Schedule {
    pub(super) const fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), deck: Vec::new(), decks: 0 }
    }

    /// Deals path faults three times, as they are the most frequent in practice, and the other
    /// faults once, or once for each daemon. In every second deck no process dies, so that long
    /// work is judged as well.
    fn shuffle(&mut self) {
        let rng = &mut self.rng;
        let is_deadly = self.decks.is_multiple_of(2);
        self.decks += 1;
        for _ in 0..3 {
            self.deck.extend(Trouble::each(rng).map(Fault::Path));
        }
        for role in [Role::Server, Role::Client] {
            if is_deadly {
                let mut rebirth = || Rebirth {
                    away: Duration::from_millis(rng.below(AWAY_MAX)),
                    stutters: u32::try_from(rng.below(STUTTERS_MAX + 1)).unwrap_or(0),
                };
                self.deck.extend([Fault::Kill(role, rebirth()), Fault::Terminate(role, rebirth())]);
            }
            let offset = ["+1h", "-1h", "+30d", "-30d", "+0"][rng.below(5) as usize];
            self.deck.push(Fault::Clock(role, offset));
        }
        self.deck.push(Fault::Name { silent: rng.chance(500) });
        for end in (1..self.deck.len()).rev() {
            self.deck.swap(end, rng.below(end as u64 + 1) as usize);
        }
    }
}

impl Iterator for Schedule {
    /// The pause before a fault, and the fault.
    type Item = (Duration, Fault);

    fn next(&mut self) -> Option<Self::Item> {
        if self.deck.is_empty() {
            self.shuffle();
        }
        let pause = PAUSE_MAX / 10 + self.rng.below(PAUSE_MAX * 9 / 10);
        self.deck.pop().map(|fault| (Duration::from_millis(pause), fault))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn deal(seed: u64, count: usize) -> Vec<(Duration, Fault)> {
        Schedule::new(seed).take(count).collect()
    }

    #[test]
    fn a_seed_deals_the_same_faults_at_the_same_moments() {
        assert_eq!(deal(1, 100), deal(1, 100));
        assert_ne!(deal(1, 100), deal(2, 100));
    }

    #[test]
    fn a_minute_has_every_kind_whatever_the_seed() {
        for seed in 0..100 {
            let dealt = deal(seed, 22);
            let kinds: BTreeSet<_> = dealt.iter().map(|(_, fault)| fault.name()).collect();
            assert_eq!(kinds.len(), 12, "{kinds:?}");
            assert!(deal(seed, 40)[22..].iter().all(|(_, fault)| !fault.is_deadly()));
            let pauses: Duration = dealt.iter().map(|(pause, _)| pause).sum();
            assert!(pauses < Duration::from_secs(60), "{pauses:?}");
        }
    }
}

//! The engine: cores, members, and what happens to requests while there is no leader.

use super::prices::{CORES, MEMBERS};
use super::store::SimStore;

/// The engine. Times are microseconds.
#[derive(Debug)]
pub(super) struct SimEngine {
    pub(super) store: SimStore,
    /// When each core is free.
    cores: [u64; CORES],
    /// Each election and each stop begins a new term. Requests of former terms get no answer.
    pub(super) term: u32,
    /// Until then nobody answers.
    away_until: u64,
    /// The member that is stopped.
    pub(super) silent: Option<u8>,
    pub(super) leader: u8,
    /// The changes that watches were told of.
    pub(super) told: usize,
}

impl SimEngine {
    pub(super) const fn new(store: SimStore) -> Self {
        let cores = [0; CORES];
        Self { store, cores, term: 0, away_until: 0, silent: None, leader: 0, told: 0 }
    }

    /// Nobody answers for this time, and what is under way is lost or gets no answer. Then there is
    /// a new leader, which gives each lease its full time again.
    pub(super) fn stop(&mut self, now: u64, time: u64) {
        self.term += 1;
        self.away_until = now + time;
        self.cores = [now + time; CORES];
        self.store.promote(now + time);
    }

    /// The leader dies; another member is the leader after this time. Returns the dead member.
    pub(super) fn elect(&mut self, now: u64, time: u64) -> u8 {
        let dead = self.leader;
        self.leader = (dead + 1) % MEMBERS;
        self.stop(now, time);
        dead
    }

    pub(super) const fn is_away(&self, now: u64) -> bool {
        now < self.away_until
    }

    /// Gives a core this work. Returns when the work is done.
    pub(super) fn work(&mut self, now: u64, cost: u64) -> u64 {
        let [first, others @ ..] = &mut self.cores;
        let mut core = first;
        for other in others {
            if *other < *core {
                core = other;
            }
        }
        *core = now.max(*core) + cost;
        *core
    }

    /// Work for which everything else waits.
    pub(super) fn work_alone(&mut self, now: u64, cost: u64) {
        let last = self.cores.iter().copied().fold(now, u64::max);
        self.cores = [last + cost; CORES];
    }
}

#[cfg(test)]
mod tests {
    use cluster::keys::Keyspace;

    use super::*;

    #[test]
    fn two_requests_are_processed_at_once_and_a_third_waits() {
        let mut engine = SimEngine::new(SimStore::new(Keyspace::new("sim").followed()));
        assert_eq!([10, 20, 30].map(|cost| engine.work(0, cost)), [10, 20, 40]);
        engine.work_alone(0, 5);
        assert_eq!(engine.work(0, 1), 46);
    }

    #[test]
    fn nobody_answers_until_there_is_a_leader() {
        let mut engine = SimEngine::new(SimStore::new(Keyspace::new("sim").followed()));
        let lease = engine.store.grant(0);
        assert_eq!((engine.elect(1, 10), engine.leader, engine.term), (0, 1, 1));
        assert!(engine.is_away(10) && !engine.is_away(11));
        assert_eq!(engine.work(2, 1), 12);
        assert_eq!(engine.store.over(10_000_010), [], "the full time from the election on");
        assert_eq!(engine.store.over(10_000_011), [lease]);
    }
}

//! What happens to the cluster, one scenario after the other in one run.

use cluster::node::{NodeInput, ServerWish, Watched};

use super::events::SimEvent;
use super::people::bound;
use super::prices::{ELECTIONS, MEMBERS, RETURN};
use super::tally::{SimSecond, SimTally};
use super::world::{SimSizes, SimWorld};

const SECOND: u64 = 1_000_000;

/// The outage of the engine.
const OUTAGE: u64 = 60 * SECOND;

/// The time in which a node sheds its clients before a restart.
const DRAIN: u64 = 3 * SECOND;

/// The time from the end of a process of a node to the start of the next process.
const DOWN: u64 = SECOND / 10;

/// A scenario that is over.
#[derive(Debug)]
pub(super) struct SimOutcome {
    pub(super) name: &'static str,
    /// The seconds from the start of the run to the begin and to the end of the scenario.
    pub(super) from: u64,
    pub(super) until: u64,
    /// The most seconds until the clients are reached.
    pub(super) limit: Option<u64>,
    pub(super) tally: SimTally,
}

impl SimOutcome {
    /// The seconds from the fault until 99.9 % of the clients were reached for good.
    pub(super) fn reached_after(&self) -> Option<f64> {
        let well = self.tally.well_since?;
        Some(well.saturating_sub(self.tally.since) as f64 / SECOND as f64)
    }
}

/// A run with its results.
#[derive(Debug)]
pub(super) struct SimRun {
    pub(super) sizes: SimSizes,
    pub(super) outcomes: Vec<SimOutcome>,
    pub(super) seconds: Vec<SimSecond>,
    pub(super) events: u64,
    /// Bytes of the state of a node after the cold start, if they were measured.
    pub(super) node_bytes: Option<u64>,
}

impl SimRun {
    /// All scenarios. `measure` measures the memory of a node after the cold start; `tell` hears of
    /// each scenario that is over.
    pub(super) fn of(
        sizes: SimSizes,
        measure: impl FnOnce(&SimWorld) -> Option<u64>,
        mut tell: impl FnMut(&SimOutcome),
    ) -> Self {
        let mut world = SimWorld::new(sizes);
        let mut outcomes = Vec::new();
        let mut end = |world: &mut SimWorld, name, limit, from: u64| {
            let tally = std::mem::take(&mut world.tally);
            let (from, until) = (from / SECOND, world.now / SECOND);
            let outcome = SimOutcome { name, from, until, limit, tally };
            tell(&outcome);
            outcomes.push(outcome);
        };
        let from = world.begin(0);
        world.cold_start();
        end(&mut world, "cold start", Some(60), from);
        let node_bytes = measure(&world);
        let from = world.begin(0);
        world.die(&[0]);
        end(&mut world, "a node dies", Some(3), from);
        let ten: Vec<_> = (1..sizes.nodes).take(usize::from(sizes.nodes / 10).max(2)).collect();
        let from = world.begin(0);
        world.die(&ten);
        end(&mut world, "a tenth dies", None, from);
        let from = world.begin(0);
        world.lose_leader();
        end(&mut world, "leader dies", None, from);
        let from = world.begin(0);
        world.silence_member();
        end(&mut world, "silent member", None, from);
        let from = world.begin(OUTAGE);
        world.lose_engine();
        end(&mut world, "no engine", None, from);
        let from = world.begin(0);
        world.roll();
        end(&mut world, "rolling", None, from);
        let from = world.begin(0);
        world.restart_all();
        end(&mut world, "restart of all", Some(60), from);
        let events = world.happened();
        Self { sizes, outcomes, seconds: world.seconds, events, node_bytes }
    }
}

impl SimWorld {
    /// A scenario begins. Times count from a moment that is later by `later`.
    fn begin(&mut self, later: u64) -> u64 {
        let is_well = self.reached >= bound(self.sizes.clients);
        self.tally = SimTally {
            since: self.now + later,
            well_since: is_well.then_some(self.now),
            unwell_since: self.now,
            least: self.reached,
            ..SimTally::default()
        };
        self.now
    }

    /// Time passes until the clients have been reached for 10 s, or until the limit.
    fn settle(&mut self, limit: u64) {
        let until = self.now + limit;
        while self.now < until {
            self.run(SECOND);
            let is_settled = |since: u64| self.now.saturating_sub(since) >= 10 * SECOND;
            if self.tally.well_since.is_some_and(is_settled) {
                break;
            }
        }
    }

    fn cold_start(&mut self) {
        self.all_come();
        for node in 0..self.sizes.nodes {
            self.start(node);
        }
        for event in [SimEvent::Visitor, SimEvent::Churn] {
            self.after(0, event);
        }
        self.settle(300 * SECOND);
    }

    /// Nodes die, and come back after their leases have ended.
    fn die(&mut self, nodes: &[u16]) {
        for node in nodes {
            self.crash(*node);
        }
        self.run(40 * SECOND);
        for node in nodes {
            self.start(*node);
        }
        self.run(5 * SECOND);
    }

    fn lose_leader(&mut self) {
        let election = self.rng.below(ELECTIONS.len() as u64) as usize;
        let time = ELECTIONS.get(election).copied().unwrap_or(SECOND);
        let dead = self.engine.elect(self.now, time);
        for node in 0..self.sizes.nodes {
            let machine = &mut self.machines[usize::from(node)];
            if machine.member == dead {
                machine.member = (dead + 1) % MEMBERS;
            }
            if machine.watch_member == dead {
                machine.watch_member = (dead + 1) % MEMBERS;
                if let Some((watch, _)) = machine.watch.take() {
                    self.give(node, NodeInput::Watched(watch, Watched::Broken));
                }
            }
        }
        self.run(20 * SECOND);
    }

    /// A member that is not the leader is stopped. Its connections stay open, and say nothing.
    fn silence_member(&mut self) {
        self.engine.silent = Some((self.engine.leader + 1) % MEMBERS);
        self.run(30 * SECOND);
        self.engine.silent = None;
        self.run(5 * SECOND);
    }

    fn lose_engine(&mut self) {
        self.engine.stop(self.now, OUTAGE + RETURN);
        self.run(OUTAGE + RETURN);
        self.settle(120 * SECOND);
    }

    /// Each node in turn sheds its clients, ends and starts again.
    fn roll(&mut self) {
        for node in 0..self.sizes.nodes {
            let clients = self.clients_of(node);
            self.machines[usize::from(node)].drains = true;
            let links = clients.len() as u32;
            let wish = ServerWish::Describe { draining: true, links };
            self.give(node, NodeInput::Wish(wish));
            for client in clients {
                let time = self.rng.below(DRAIN);
                self.after(time, SimEvent::Move(client));
            }
            self.run(DRAIN + 2 * SECOND);
            self.give(node, NodeInput::Wish(ServerWish::Leave));
            self.crash(node);
            self.run(DOWN);
            self.start(node);
            self.run(SECOND);
        }
    }

    /// All nodes end at once, and start again before the records of their former epochs.
    fn restart_all(&mut self) {
        for node in 0..self.sizes.nodes {
            self.crash(node);
        }
        self.run(DOWN);
        for node in 0..self.sizes.nodes {
            self.start(node);
        }
        self.settle(300 * SECOND);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(seed: u64) -> SimRun {
        let sizes = SimSizes { clients: 10_000, nodes: 10, visitors: 200, seed };
        SimRun::of(sizes, |_| None, |_| ())
    }

    #[test]
    fn ten_thousand_clients_on_ten_nodes_are_reached_after_each_fault() {
        let run = small(1);
        for SimOutcome { name, limit, tally, .. } in &run.outcomes {
            assert_eq!(tally.wrong, 0, "{name}: served by a wrong owner");
            assert_eq!((tally.bad_records, tally.restored), (0, 0), "{name}");
            assert!(tally.visitors > 0 && tally.served > 0, "{name}");
            let well = tally.well_since.unwrap_or_else(|| panic!("{name}: not reached"));
            if let Some(limit) = limit {
                assert!(well.saturating_sub(tally.since) <= limit * SECOND, "{name}: {well}");
            }
        }
        let cold = &run.outcomes[0].tally;
        assert_eq!(cold.log_ins.min(10_000), 10_000);
        assert!(run.outcomes[1].tally.absences.len() >= 900, "the clients of a node");
        let moved: u64 = run.outcomes.iter().map(|outcome| outcome.tally.moved).sum();
        assert!(moved > 0, "nobody was told where a client is by now");
    }

    #[test]
    fn a_seed_repeats_a_run() {
        let figures = |run: &SimRun| {
            let tallies = run.outcomes.iter().map(|outcome| &outcome.tally);
            let figures = tallies.map(|tally| (tally.well_since, tally.opens, tally.moved));
            (run.events, figures.collect::<Vec<_>>())
        };
        let sizes = SimSizes { clients: 500, nodes: 3, visitors: 50, seed: 7 };
        let run = || SimRun::of(sizes, |_| None, |_| ());
        assert_eq!(figures(&run()), figures(&run()));
    }
}

//! Random schedules: servers, processes, visitors and faults, then quiet, then the invariants of
//! quiet. `CLUSTER_STEPS` is the number of steps of a run, `CLUSTER_RUNS` the number of runs,
//! `CLUSTER_SEED` the first seed; with `CLUSTER_TRACE=1` all inputs and outputs are printed.

use std::time::Duration;

use super::check::BOUND;
use super::world::{Cut, ModelWorld, millis};
use crate::names::{Class, ClientName, Key, PortProtocol, Space};

const CLIENTS: [&str; 4] = ["a", "b", "c", "d"];

fn keys() -> [Key; 4] {
    let port = |port| Key::Port(PortProtocol::Tcp, Class::Public, port);
    let host = |host: &str| Key::Host(Space::Http, host.into());
    [port(1), port(2), host("a.example"), host("b.example")]
}

impl ModelWorld {
    fn any<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.random.below(all.len() as u64) as usize].clone()
    }

    /// Something that a person or a server does.
    fn act_of_life(&mut self) {
        let at = self.random.below(self.hosts.len() as u64) as usize;
        match self.random.below(20) {
            0 => {
                let client = self.any(&CLIENTS);
                let wants = 1 + self.random.below(2) as usize;
                self.add_person(client, wants);
            }
            1 => {
                let person = self.random.below(self.people.len() as u64) as usize;
                self.quit(person);
            }
            // A process that was kicked tries again.
            2 => {
                let person = self.random.below(self.people.len() as u64) as usize;
                if self.people[person].is_alive && self.people[person].was_kicked {
                    self.people[person].was_kicked = false;
                    self.act(person);
                }
            }
            3..=6 if !self.is_paused(at) => {
                let key = self.any(&keys());
                self.want(at, key, None);
            }
            7..=8 if !self.is_paused(at) => self.let_go(at),
            _ if self.hosts[at].is_ready && !self.is_paused(at) => {
                let client = ClientName::new(self.any(&CLIENTS)).unwrap();
                self.visit(at, &client, false);
            }
            _ => {}
        }
    }

    fn fault(&mut self, restores: bool) {
        let nodes = self.hosts.len() as u64;
        let (at, other) = (self.random.below(nodes) as usize, self.random.below(nodes) as usize);
        let time = millis(500 + self.random.below(24_000));
        match self.random.below(13) {
            0 => self.crash(at),
            1 | 2 => {
                if self.hosts[at].node.is_none() {
                    self.start(at);
                }
            }
            3 => self.pause(at, time),
            4 => self.cut(Cut::ToEngine(at), time),
            5 => self.cut(Cut::FromEngine(at), time),
            6 => self.cut(Cut::Watch(at), time),
            7 if at != other => self.cut(Cut::Peers(at.min(other), at.max(other)), time),
            8 => self.cut(Cut::Engine, time),
            9 => {
                // An election: 2 s, then all leases have their full time again.
                self.cut(Cut::Engine, Duration::from_secs(2));
                self.store.promote(self.now);
            }
            10 => self.store.compact(),
            11 if restores => self.snapshot = Some(self.store.clone()),
            12 if restores && self.random.below(3) == 0 => self.restore(),
            _ => self.is_lossy ^= true,
        }
    }

    /// Lets the world be at rest, and checks what has to hold then.
    fn settle(&mut self) {
        self.heal();
        self.is_quiet = true;
        let alive = self.people.iter().filter(|person| person.is_alive && !person.was_kicked);
        self.truth.quiet(alive.map(|person| &person.client));
        self.run(BOUND);
        self.check_reach();
        self.check_charge();
        // Two leases and an election after the last fault no dead epoch is left.
        self.run(Duration::from_secs(10));
        self.check_holders();
        self.truth.was_restored = false;
        self.is_quiet = false;
    }
}

/// A run of about this many steps.
fn run(seed: u64, steps: u64, nodes: usize, restores: bool) -> ModelWorld {
    let mut world = ModelWorld::new(seed, nodes);
    world.is_traced = number("CLUSTER_TRACE").is_some();
    world.run(Duration::from_secs(2));
    for client in CLIENTS {
        world.add_person(client, 1);
    }
    while world.steps < steps {
        let acts = 50 + world.random.below(200);
        for _ in 0..acts {
            let pause = millis(world.random.below(300));
            world.run(pause);
            if world.random.below(12) == 0 {
                world.fault(restores);
            }
            world.act_of_life();
        }
        world.settle();
    }
    world
}

fn number(variable: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "a test, whose length a person chooses")]
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap())
}

/// Runs with seeds one after the other, until the sum of the steps is reached.
fn runs(first: u64, nodes: usize, restores: bool) {
    let each = number("CLUSTER_STEPS").unwrap_or(10_000);
    let first = number("CLUSTER_SEED").unwrap_or(first);
    let count = number("CLUSTER_RUNS").unwrap_or(40);
    for seed in first..first + count {
        let failed = std::panic::catch_unwind(|| {
            let world = run(seed, each, nodes, restores);
            let it = &world.truth;
            println!(
                "seed {seed}: {} steps, {:?}, served {}, not {}, held {}, taken {}, away {}, lost {}, kicked {}, {:?}",
                world.steps,
                world.now,
                it.served,
                it.not_served,
                it.held,
                it.taken,
                it.away,
                it.losses,
                it.kicked,
                it.events,
            );
            assert!(it.served > 0 && it.held > 0 && it.kicked > 0, "nothing has happened");
        });
        assert!(failed.is_ok(), "seed {seed}, {nodes} nodes");
    }
}

#[test]
fn no_rule_is_broken_by_faults() {
    runs(1, 3, false);
}

#[test]
fn no_rule_is_broken_by_faults_of_many_nodes() {
    runs(1_000, 6, false);
}

#[test]
fn no_rule_is_broken_when_the_store_goes_back() {
    runs(2_000, 3, true);
}

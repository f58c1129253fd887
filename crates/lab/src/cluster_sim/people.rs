//! What clients do: log in, lose their node, move, restart.

use cluster::engine::Revision;
use cluster::keys::RecordPlace;
use cluster::names::{ClientName, Instance};
use cluster::node::{NodeInput, ServerWish};
use cluster::record::{At, Record as _};

use super::clients::{self, NOWHERE, SimClient, instance};
use super::events::{Process, SimEvent};
use super::machine;
use super::prices::LOG_IN;
use super::world::SimWorld;

/// The bounds of the pause before the next attempt to log in, as in `link/src/backoff.rs`: half of
/// the pause is fixed, the other half is random.
const RETRY: [u64; 2] = [200_000, 1_500_000];

/// The time for which the former session of a client that has moved goes on.
const MOVED: u64 = 1_000_000;

/// The time until a node ends the session of a process that has vanished without a word.
const VANISHED: u64 = 30_000_000;

/// The time from the end of a process of a client to the start of the next.
const RESTART: u64 = 1_000_000;

/// The pause of a process that was told that a newer process is in charge, as in
/// `link/src/backoff.rs`.
const SUPERSEDED: u64 = 60_000_000;

/// The mean time of a session in seconds.
const SESSION: u64 = 3_600;

/// The share of clients that has to be reached: 99.9 %.
pub(super) const fn bound(clients: u32) -> u32 {
    clients - clients / 1_000
}

impl SimWorld {
    fn client(&mut self, client: u32) -> &mut SimClient {
        &mut self.clients[client as usize]
    }

    fn retry(&mut self, client: u32) {
        let it = self.client(client);
        let [least, most] = RETRY;
        let pause = (least << it.tries.min(8)).min(most) / 2;
        it.tries = it.tries.saturating_add(1);
        let time = pause + self.rng.below(pause);
        self.after(time, SimEvent::LogIn(client));
    }

    /// All clients try to log in. Their pauses are the longest by now, so the first attempts are
    /// evenly distributed over such a pause.
    pub(super) fn all_come(&mut self) {
        for client in 0..self.sizes.clients {
            let time = self.rng.below(RETRY[1]);
            self.after(time, SimEvent::LogIn(client));
        }
    }

    /// A client tries to log in at a node that the balancer chooses.
    pub(super) fn log_in(&mut self, client: u32) {
        let SimClient { home, moves, .. } = self.clients[client as usize];
        if home != NOWHERE && !moves {
            return;
        }
        let mut open = self.open();
        open.retain(|node| *node != home);
        let chosen = self.rng.below(open.len() as u64) as usize;
        let Some(node) = open.get(chosen).copied() else { return self.retry(client) };
        let now = self.now;
        let verified = &mut self.machines[usize::from(node)].verified;
        *verified = now.max(*verified) + LOG_IN;
        let (at, process) = (*verified, self.process(node));
        self.events.add(at, SimEvent::LoggedIn(client, process));
    }

    /// A node has verified the log-in of a client, and serves it from now on.
    pub(super) fn logged_in(&mut self, client: u32, process: Process) {
        if !self.is_same(process) {
            return self.retry(client);
        }
        let node = process.node;
        let it = *self.client(client);
        if it.home == node {
            return;
        }
        if it.home != NOWHERE {
            // The client moves: its former session goes on for a while.
            self.end_former(client);
            let it = self.client(client);
            (it.former, it.former_process) = (it.home, it.process);
            let former = it.former;
            self.after(MOVED, SimEvent::FormerEnds(client, former));
        }
        let it = self.client(client);
        if it.former == node {
            // The server replaces the session of the former process of the client.
            it.former = NOWHERE;
        }
        (it.home, it.moves, it.tries) = (node, false, 0);
        let instance = instance(client, it.process);
        self.tally.log_ins += 1;
        let client_name = clients::name(client);
        let wish = ServerWish::LoggedIn { client: client_name, instance, links: 1 };
        self.give(node, NodeInput::Wish(wish));
        self.refresh(client);
    }

    fn log_out(&mut self, client: u32, node: u16, process: u32) {
        let instance = instance(client, process);
        let wish = ServerWish::LoggedOut { client: clients::name(client), instance };
        self.give(node, NodeInput::Wish(wish));
        self.refresh(client);
    }

    fn end_former(&mut self, client: u32) {
        let SimClient { former, former_process, .. } = self.clients[client as usize];
        if former != NOWHERE {
            self.client(client).former = NOWHERE;
            self.log_out(client, former, former_process);
        }
    }

    pub(super) fn former_ends(&mut self, client: u32, node: u16) {
        if self.clients[client as usize].former == node {
            self.end_former(client);
        }
    }

    /// A node tells its server to end the session of a process.
    pub(super) fn kicked(&mut self, node: u16, client: &ClientName, instance: Instance) {
        let Some(client) = clients::number(client) else { return };
        let process = clients::process(instance);
        let it = *self.client(client);
        self.tally.kicks += 1;
        if it.former == node && it.former_process == process {
            return self.end_former(client);
        }
        if it.home == node && it.process == process {
            self.tally.wrong_kicks += 1;
            self.client(client).home = NOWHERE;
            self.after(SUPERSEDED, SimEvent::LogIn(client));
        }
        self.log_out(client, node, process);
    }

    /// The node asks a client to go.
    pub(super) fn move_away(&mut self, client: u32) {
        let it = self.client(client);
        if it.home != NOWHERE && !it.moves {
            it.moves = true;
            self.log_in(client);
        }
    }

    /// The clients that have their session at a node.
    pub(super) fn clients_of(&self, node: u16) -> Vec<u32> {
        let clients = (0..).zip(&self.clients);
        clients.filter(|(_, it)| it.home == node).map(|(client, _)| client).collect()
    }

    /// The process of a node ends at once. The system closes its connections, so clients and nodes
    /// know after a hop.
    pub(super) fn crash(&mut self, node: u16) {
        self.machines[usize::from(node)].clear();
        self.end_visits(node);
        for client in 0..self.sizes.clients {
            let it = self.client(client);
            let has_lost = it.home == node;
            if it.former == node {
                it.former = NOWHERE;
            }
            if has_lost {
                (it.home, it.moves) = (NOWHERE, false);
                self.retry(client);
                self.refresh(client);
            }
        }
        for other in 0..self.sizes.nodes {
            if self.is_alive(other) {
                self.link(other, node);
            }
        }
    }

    /// A client changes its network, or its process ends and another begins.
    pub(super) fn churn(&mut self) {
        let between = SESSION * 1_000_000 / u64::from(self.sizes.clients);
        let time = self.rng.below(2 * between + 1);
        self.after(time, SimEvent::Churn);
        let client = self.rng.below(self.clients.len() as u64) as u32;
        let SimClient { home, process, moves, .. } = self.clients[client as usize];
        if home == NOWHERE || moves {
            return;
        }
        let dice = self.rng.below(4);
        if dice < 2 {
            // The same process over another network.
            self.client(client).home = NOWHERE;
            self.log_out(client, home, process);
            return self.retry(client);
        }
        self.end_former(client);
        let it = self.client(client);
        it.home = NOWHERE;
        it.process += 1;
        (it.recorded_at, it.recorded_by) = (0, Revision(0));
        if dice == 2 {
            self.log_out(client, home, process);
        } else {
            // The machine of the client has vanished without a word.
            (it.former, it.former_process) = (home, process);
            self.after(VANISHED, SimEvent::FormerEnds(client, home));
            self.refresh(client);
        }
        self.after(RESTART, SimEvent::LogIn(client));
    }

    /// Looks whether a client is reached: its record names the present process, and a home at which
    /// this process has a session, in the present epoch of the node. Each node that asks the engine
    /// finds this home.
    pub(super) fn refresh(&mut self, client: u32) {
        let key = self.keys.of(&RecordPlace::At(clients::name(client)));
        let record = self.engine.store.value(&key).and_then(|value| At::decode(value).ok());
        let it = self.clients[client as usize];
        let is_present = |at: &At| at.instance == instance(client, it.process);
        let record = record.filter(is_present);
        if record.is_some() && it.recorded_by == Revision(0) {
            let (now, by) = (self.now, self.engine.store.revision());
            let it = self.client(client);
            (it.recorded_at, it.recorded_by) = (now, by);
        }
        let is_reached = record.is_some_and(|at| {
            at.homes.iter().any(|home| {
                machine::number(&home.node).is_some_and(|node| {
                    let epoch = self.machines[usize::from(node)].epoch;
                    it.has_session(node, it.process) && epoch == Some(Revision(home.epoch.0))
                })
            })
        });
        if is_reached != it.is_reached {
            self.set_reached(client, is_reached);
        }
    }

    fn set_reached(&mut self, client: u32, is_reached: bool) {
        let millis = (self.now / 1_000) as u32;
        let it = self.client(client);
        it.is_reached = is_reached;
        if is_reached {
            let absence = millis - it.lost_at;
            self.reached += 1;
            self.tally.absences.add(absence);
        } else {
            it.lost_at = millis;
            self.reached -= 1;
        }
        self.tally.least = self.tally.least.min(self.reached);
        let is_well = self.reached >= bound(self.sizes.clients);
        if is_well && self.tally.well_since.is_none() {
            self.tally.well_since = Some(self.now);
            self.tally.unwell += self.now - self.tally.unwell_since;
        } else if !is_well && self.tally.well_since.is_some() {
            self.tally.well_since = None;
            self.tally.unwell_since = self.now;
        }
    }
}

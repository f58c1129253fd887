//! The board holds the rows of services and clients, each with the revision of its last change. A
//! sample of the daemon updates the board, and a line for a viewer contains the rows that have
//! changed since its previous line, however long that line took to send.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ops::StatusDelta;
use ops::clients::Client;
use ops::status::{Link, Service, Session, SessionState, Status, Told};
use serde::Serialize;
use tokio::time::Instant;

use super::history::{Bytes, Rate, Sum, rate};
use super::row_log::RowLog;

/// The largest number of services and clients in a line.
pub(super) const LISTED: usize = 1_000;

/// The owner of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// The session of this number.
    Session(u64),
    Proxy,
    Default,
}

/// The place of a service: its owner, and its index among the owner's services.
pub(super) type Place = (Owner, usize);

/// A service, a forward, or a listener of a proxy.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) kind: &'static str,
    pub(super) service: Service,
    pub(super) rate: Rate,
    /// When the figures were read: ages of events count on from there.
    pub(super) at: Instant,
    /// The revision of the last change.
    pub(super) changed: u64,
}

impl Row {
    pub(super) const fn bytes(&self) -> Bytes {
        (self.service.bytes_in, self.service.bytes_out)
    }

    fn is_of(&self, other: &Self) -> bool {
        let Service { name, address, target, .. } = &self.service;
        let same = &other.service;
        self.kind == other.kind
            && (name, address, target) == (&same.name, &same.address, &same.target)
    }
}

/// A session without its services, and its rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) peer: String,
    pub(super) private: bool,
    /// Of a client's servers of which one is in charge: whether this server is.
    pub(super) charge: Option<ServerDuty>,
    pub(super) state: Told<SessionState>,
    pub(super) links: Vec<Link>,
    pub(super) rows: Vec<Row>,
}

/// The part of a server in the services of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ServerDuty {
    /// The server has the services.
    InCharge,
    /// Another server has the services.
    Standby,
}

impl ServerDuty {
    /// `None`: every server has the services.
    const fn of(session: &Session) -> Option<Self> {
        match (session.standby, session.why.is_empty()) {
            (true, _) => Some(Self::Standby),
            (false, false) => Some(Self::InCharge),
            (false, true) => None,
        }
    }
}

/// A client of a server.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) client: Client,
    pub(super) at: Instant,
    /// The revision of its last change.
    pub(super) changed: u64,
}

/// One peer: its sessions, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    pub(super) sessions: BTreeSet<u64>,
    changed: u64,
}

/// The figures of a daemon at the last sample.
#[derive(Debug, Default)]
pub(super) struct Board {
    /// The number of samples.
    pub(super) revision: u64,
    pub(super) unix_millis: u64,
    /// The status without sessions.
    pub(super) status: Status,
    pub(super) carried: Bytes,
    pub(super) rate: Rate,
    pub(super) groups: BTreeMap<Owner, Group>,
    pub(super) peers: HashMap<String, Peer>,
    /// The clients of a server, by name.
    pub(super) clients: Option<BTreeMap<String, Known>>,
    /// The owners of rows with a rate.
    pub(super) moving: BTreeSet<Owner>,
    /// The byte totals of each past series.
    pub(super) sums: BTreeMap<String, Sum>,
    /// The listed services and clients.
    pub(super) listed_services: RowLog<Place>,
    pub(super) listed_clients: RowLog<String>,
    /// The time of the last sample.
    at: Option<Instant>,
    /// Whether rows were added or removed since the lists were made.
    services_moved: bool,
    clients_moved: bool,
}

impl Board {
    /// Applies the changes.
    pub(super) fn update(&mut self, delta: StatusDelta, now: Instant) {
        self.revision += 1;
        let StatusDelta { whole, mut status, sessions, mut gone, clients } = delta;
        if whole {
            let present: BTreeSet<u64> = sessions.iter().map(|(id, _)| *id).collect();
            let owners = self.groups.keys().filter_map(|owner| match owner {
                Owner::Session(id) => Some(*id),
                Owner::Proxy | Owner::Default => None,
            });
            gone = owners.filter(|id| !present.contains(id)).collect();
        }
        for id in gone {
            self.remove(Owner::Session(id));
        }
        let mut still = std::mem::take(&mut self.moving);
        let sessions = sessions.into_iter().map(|(id, session)| (Owner::Session(id), session));
        let pseudo = |services| Session { services, ..Session::default() };
        let proxies = (Owner::Proxy, pseudo(std::mem::take(&mut status.proxies)));
        let defaults = (Owner::Default, pseudo(std::mem::take(&mut status.default_targets)));
        for (owner, session) in sessions.chain([proxies, defaults]) {
            still.remove(&owner);
            self.put(owner, session, now);
        }
        // Owners that were not reported did not move.
        for owner in still {
            self.rest(owner);
        }
        match clients {
            Some(changes) => self.change_clients(changes, whole, now),
            None => self.clients = None,
        }
        self.status = status;
        self.at = Some(now);
        self.list();
    }

    fn put(&mut self, owner: Owner, session: Session, now: Instant) {
        let charge = ServerDuty::of(&session);
        let Session { peer, private, state, links, services, forwards, .. } = session;
        let kinds = match owner {
            Owner::Session(_) => ["service", "forward"],
            Owner::Proxy => ["proxy"; 2],
            Owner::Default => ["default"; 2],
        };
        let services = services.into_iter().map(|service| (kinds[0], service));
        let forwards = forwards.into_iter().map(|service| (kinds[1], service));
        let changed = self.revision;
        let row = |(kind, service)| Row { kind, service, rate: (0.0, 0.0), at: now, changed };
        let rows = services.chain(forwards).map(row).collect();
        let mut group = Group { peer, private, charge, state, links, rows };
        let old = self.groups.remove(&owner).unwrap_or_default();
        let mut are_same = group.rows.len() == old.rows.len();
        self.services_moved |= !are_same;
        for (nth, row) in group.rows.iter_mut().enumerate() {
            let before = old.rows.get(nth).filter(|before| before.is_of(row));
            if let (Some(before), Some(at)) = (before, self.at) {
                row.rate = rate((at, before.bytes()), (now, row.bytes()));
                if row.service == before.service && row.rate == before.rate {
                    *row = before.clone();
                }
            }
            are_same &= row.changed != changed;
            if row.rate.0 + row.rate.1 > 0.0 {
                self.moving.insert(owner);
            }
        }
        if !are_same {
            old.rows.iter().for_each(|row| self.take_out(&old.peer, row));
            group.rows.iter().for_each(|row| self.put_in(&group.peer, row));
        }
        keep_figures(&mut group.links, &old.links);
        if let Owner::Session(id) = owner {
            if old.peer != group.peer {
                self.leave(id, &old.peer);
            }
            let peer = self.peers.entry(group.peer.clone()).or_default();
            self.clients_moved |= peer.sessions.insert(id);
            let is_same = old.state == group.state && old.charge == group.charge;
            if !are_same || !is_same || old.links != group.links {
                self.touch(&group.peer);
            }
        }
        if !group.rows.is_empty() || matches!(owner, Owner::Session(_)) {
            self.groups.insert(owner, group);
        }
    }

    /// Removes a session.
    fn remove(&mut self, owner: Owner) {
        let Some(group) = self.groups.remove(&owner) else { return };
        self.moving.remove(&owner);
        self.services_moved |= !group.rows.is_empty();
        group.rows.iter().for_each(|row| self.take_out(&group.peer, row));
        if let Owner::Session(id) = owner {
            self.touch(&group.peer);
            self.leave(id, &group.peer);
        }
    }

    /// A session no longer belongs to this peer.
    fn leave(&mut self, id: u64, peer: &str) {
        let Some(of) = self.peers.get_mut(peer) else { return };
        of.sessions.remove(&id);
        if of.sessions.is_empty() {
            self.peers.remove(peer);
            self.clients_moved = true;
        }
    }

    /// No byte has moved since the previous sample.
    fn rest(&mut self, owner: Owner) {
        let changed = self.revision;
        let Some(group) = self.groups.get_mut(&owner) else { return };
        for row in &mut group.rows {
            if row.rate != (0.0, 0.0) {
                (row.rate, row.changed) = ((0.0, 0.0), changed);
            }
        }
        let peer = group.peer.clone();
        self.touch(&peer);
    }

    /// Marks the row of a peer as changed.
    fn touch(&mut self, peer: &str) {
        if let Some(of) = self.peers.get_mut(peer) {
            of.changed = self.revision;
        }
        if let Some(known) = self.clients.as_mut().and_then(|clients| clients.get_mut(peer)) {
            known.changed = self.revision;
        }
    }

    fn change_clients(&mut self, changes: ops::ClientChanges, whole: bool, at: Instant) {
        let changed = self.revision;
        let before = self.clients.take();
        let mut clients = before.unwrap_or_default();
        if whole {
            let present: BTreeSet<&str> =
                changes.list.iter().map(|client| client.name.as_str()).collect();
            let count = clients.len();
            clients.retain(|name, _| present.contains(name.as_str()));
            self.clients_moved |= clients.len() != count;
        }
        for name in changes.gone {
            self.clients_moved |= clients.remove(&name).is_some();
        }
        for client in changes.list {
            let same = clients.get(&client.name).is_some_and(|known| known.client == client);
            if !same {
                let known = Known { at, changed, client };
                self.clients_moved |= clients.insert(known.client.name.clone(), known).is_none();
            }
        }
        self.clients = Some(clients);
    }

    /// Adds the bytes of a row to the sums of its service and of its peer.
    fn put_in(&mut self, peer: &str, row: &Row) {
        for series in series(peer, row) {
            let sum = self.sums.entry(series).or_default();
            let (incoming, outgoing) = row.bytes();
            sum.bytes = (sum.bytes.0 + incoming, sum.bytes.1 + outgoing);
            sum.parts += 1;
        }
    }

    /// Reverts [`Self::put_in`].
    fn take_out(&mut self, peer: &str, row: &Row) {
        for series in series(peer, row) {
            let Some(sum) = self.sums.get_mut(&series) else { continue };
            let (incoming, outgoing) = row.bytes();
            let less = |sum: u64, part| sum.saturating_sub(part);
            sum.bytes = (less(sum.bytes.0, incoming), less(sum.bytes.1, outgoing));
            sum.parts = sum.parts.saturating_sub(1);
            if sum.parts == 0 {
                self.sums.remove(&series);
            }
        }
    }

    /// Remakes the lists, if other rows may be listed.
    fn list(&mut self) {
        let count = self.services();
        if self.services_moved || count > LISTED {
            let all = self.rows().map(|(place, _, row)| (place, row));
            let listed: BTreeSet<Place> = if count > LISTED {
                // The services with the highest rates are listed.
                let mut all: Vec<_> =
                    all.map(|(place, row)| (row.rate.0 + row.rate.1, place)).collect();
                all.select_nth_unstable_by(LISTED, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
                all.into_iter().take(LISTED).map(|(_, place)| place).collect()
            } else {
                all.map(|(place, _)| place).collect()
            };
            self.listed_services.set(listed, self.revision);
            self.services_moved = false;
        }
        if std::mem::take(&mut self.clients_moved) {
            let listed: BTreeSet<String> = match &self.clients {
                Some(clients) => clients.keys().take(LISTED).cloned().collect(),
                None => {
                    let all: BTreeSet<&String> = self.peers.keys().collect();
                    all.into_iter().take(LISTED).cloned().collect()
                }
            };
            self.listed_clients.set(listed, self.revision);
        }
    }

    /// All rows with their places and peers.
    pub(super) fn rows(&self) -> impl Iterator<Item = (Place, &str, &Row)> {
        self.groups.iter().flat_map(|(owner, group)| {
            let rows = group.rows.iter().enumerate();
            rows.map(move |(nth, row)| ((*owner, nth), group.peer.as_str(), row))
        })
    }

    /// The number of services.
    pub(super) fn services(&self) -> usize {
        self.groups.values().map(|group| group.rows.len()).sum()
    }

    /// The number of clients, or of servers.
    pub(super) fn sides(&self) -> usize {
        self.clients.as_ref().map_or(self.peers.len(), BTreeMap::len)
    }

    /// The row at a place, with its peer.
    pub(super) fn row(&self, (owner, nth): Place) -> Option<(&str, &Row)> {
        let group = self.groups.get(&owner)?;
        Some((&group.peer, group.rows.get(nth)?))
    }

    /// The revision at which the row of a client, or of a server, last changed.
    pub(super) fn side_changed(&self, name: &str) -> Option<u64> {
        match &self.clients {
            Some(clients) => clients.get(name).map(|known| known.changed),
            None => self.peers.get(name).map(|peer| peer.changed),
        }
    }

    /// The sessions of a peer, the oldest first.
    pub(super) fn sessions_of(&self, name: &str) -> impl Iterator<Item = &Group> {
        let ids = self.peers.get(name).into_iter().flat_map(|peer| &peer.sessions);
        ids.filter_map(|id| self.groups.get(&Owner::Session(*id)))
    }
}

/// The names of the series to which a row belongs.
fn series(peer: &str, row: &Row) -> impl Iterator<Item = String> + use<> {
    let name = &row.service.name;
    let service = (row.kind != "forward").then(|| format!("service:{name}"));
    let client = (!peer.is_empty()).then(|| format!("client:{peer}"));
    service.into_iter().chain(client)
}

/// The kernel is queried about only some connections at a time: the figures of the others are kept.
fn keep_figures(links: &mut [Link], old: &[Link]) {
    for link in links {
        let Some(old) = old.iter().find(|old| old.serial == link.serial) else { continue };
        for carrier in link.carriers.iter_mut().filter(|carrier| carrier.tcp.is_none()) {
            let same = old.carriers.iter().find(|old| old.number == carrier.number);
            carrier.tcp = same.and_then(|same| same.tcp);
        }
    }
}

#[cfg(test)]
mod tests;

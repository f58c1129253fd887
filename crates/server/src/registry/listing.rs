//! The clients of a server as `tunnel clients` shows them, and the records of their log-ins.

use std::collections::HashMap;
use std::hash::{Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ops::ClientChanges;
use ops::clients::{self, Details, Limits, Refused, Rights};
use ops::term;

use proto::Bounds;
use rustc_hash::FxHasher;

use super::super::clients::{Client, KnownClient};
use super::super::sightings::Sighting;
use super::Registry;

/// The snapshot that one poll of the clients keeps for the next. It holds the client entries, so
/// that no new entry reuses the memory address of a known one.
#[derive(Debug, Default)]
pub(crate) struct ClientNotes {
    clients: Arc<HashMap<String, Arc<Client>>>,
    /// In the order of `clients`.
    prints: Vec<u64>,
    guests: HashMap<String, (Arc<Client>, u64)>,
}

impl Registry {
    /// Records the address of a client that has logged in.
    pub(crate) fn note_login(&self, name: &str, address: SocketAddr) {
        self.note(name, |seen| seen.address = Some(address));
    }

    /// Records a refused log-in. Anybody may claim the name.
    pub(crate) fn note_refusal(&self, name: &str, address: SocketAddr, reason: &str) {
        self.note(name, |seen| seen.refuse(Instant::now(), address, reason));
    }

    /// Records the end of a link, if it was the last link of the client.
    pub(super) fn note_end(&self, name: &str) {
        if !self.is_connected(name) {
            self.note(name, |seen| seen.left = Some(Instant::now()));
        }
    }

    /// Drops the record of a client that the server does not know any more.
    pub(super) fn note_removal(&self, name: &str) {
        self.note(name, |_| {});
    }

    fn note(&self, name: &str, change: impl FnOnce(&mut Sighting)) {
        self.sightings.note(name, |name| self.shared.clients.find(name).is_some(), change);
    }

    /// All clients in the order of their names.
    pub(crate) fn clients(&self) -> Vec<clients::Client> {
        let mut known = self.shared.clients.known();
        known.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        known.iter().map(|known| self.listed(known)).collect()
    }

    /// The clients that have changed since the snapshot `before`, in no particular order, and the
    /// new snapshot. The seconds since an event do not count as a change.
    pub(crate) fn changed_clients(
        &self,
        before: Option<ClientNotes>,
    ) -> (ClientChanges, ClientNotes) {
        let mut before = before.unwrap_or_default();
        let mut changes = ClientChanges::default();
        let mut now =
            ClientNotes { clients: self.shared.clients.snapshot(), ..ClientNotes::default() };
        now.prints.reserve_exact(now.clients.len());
        let is_same_map = Arc::ptr_eq(&before.clients, &now.clients);
        // The order of the same map is stable. In another map, each client is looked up by its
        // name.
        let others: HashMap<&str, (&Arc<Client>, u64)> = if is_same_map {
            HashMap::new()
        } else {
            let prints = before.clients.iter().zip(&before.prints);
            prints.map(|((name, client), print)| (name.as_str(), (client, *print))).collect()
        };
        for (nth, (name, client)) in now.clients.iter().enumerate() {
            let print = self.print(name);
            now.prints.push(print);
            let is_same = if is_same_map {
                before.prints.get(nth) == Some(&print)
            } else {
                let other = others.get(name.as_str());
                other.is_some_and(|(other, noted)| *noted == print && Arc::ptr_eq(other, client))
            };
            if !is_same {
                changes.list.push(self.listed(&KnownClient::of(name, client)));
            }
        }
        let is_gone = |name: &&str| !now.clients.contains_key(*name);
        changes.gone = others.keys().copied().filter(is_gone).map(str::to_owned).collect();
        for guest in self.shared.clients.known_guests() {
            let print = self.print(&guest.name);
            let noted = before.guests.remove(&guest.name);
            let is_same = noted.is_some_and(|(client, noted)| {
                noted == print && Arc::ptr_eq(&client, &guest.client)
            });
            if !is_same {
                changes.list.push(self.listed(&guest));
            }
            now.guests.insert(guest.name, (guest.client, print));
        }
        // A remaining guest is a guest no longer, but may be configured now.
        let left = before.guests.into_keys().filter(|name| !now.clients.contains_key(name));
        changes.gone.extend(left);
        // A formerly configured client that is a guest now is not gone.
        changes.gone.retain(|name| !now.guests.contains_key(name));
        (changes, now)
    }

    /// A fingerprint of what the list shows of a client, without its entry.
    fn print(&self, name: &str) -> u64 {
        let mut hash = FxHasher::default();
        self.sessions().glance(name).hash(&mut hash);
        self.sightings.print(name, &mut hash);
        let hold = self.shared.hosts.holds.of(name);
        hold.map(|hold| (hold.since, hold.retry_after, hold.page.is_some())).hash(&mut hash);
        hash.finish()
    }

    /// One client, without its sessions.
    pub(crate) fn client(&self, name: &str) -> Option<Details> {
        let known = self.shared.clients.known_of(name)?;
        let limits = limits(&known.client);
        Some(Details { client: self.listed(&known), limits, sessions: Vec::new() })
    }

    fn listed(&self, known: &KnownClient) -> clients::Client {
        let KnownClient { name, from, client } = known;
        let (links, stalled, standby) = {
            let sessions = self.sessions();
            (sessions.count(name), sessions.stalled(name), sessions.stands_by(name))
        };
        let seen = self.sightings.of(name);
        let (links, now) = (u64::try_from(links).unwrap_or(u64::MAX), Instant::now());
        let ago = |then: Instant| now.saturating_duration_since(then).as_secs();
        let refused = seen.refused.map(|(at, address, reason)| Refused {
            seconds_ago: ago(at),
            address: term::address(address),
            reason: reason.into(),
        });
        let listed = clients::Client {
            name: name.clone(),
            from: *from,
            links,
            standby,
            stalled_seconds: stalled.map(|time| time.as_secs()),
            away_seconds: seen.left.filter(|_| links == 0).map(ago),
            address: seen.address.map(term::address),
            refused,
            hold: self.shared.hosts.holds.of(name).map(|hold| hold.shown()),
            rights: rights(client),
            renewal: client.renewal.is_some(),
            ..clients::Client::default()
        };
        listed.settled()
    }
}

fn rights(client: &Client) -> Rights {
    fn list<T: ToString>(rights: &[T]) -> Vec<String> {
        rights.iter().map(ToString::to_string).collect()
    }
    Rights {
        tcp: list(&client.tcp.rights),
        udp: list(&client.udp.rights),
        http: list(&client.http.0),
        tls: list(&client.tls.0),
        pass_through: client.pass_through,
        shared: client.shared,
        dscp: client.dscp,
        forward: list(&client.forward.0),
        via: list(&client.via.0),
        visit: list(&client.visit.0),
        invite: client.invite,
        speedtest: client.speedtest,
    }
}

/// The limits that apply to a client.
pub(super) fn limits(client: &Client) -> Limits {
    let Bounds { streams, new_per_second, up, down } = client.limits.all;
    Limits {
        streams: streams.map(Into::into),
        new_per_second: new_per_second.map(Into::into),
        up: up.map(Into::into),
        down: down.map(Into::into),
        ports: (client.ports != u32::MAX).then_some(client.ports),
        hosts: client.hosts.map(Into::into),
    }
}

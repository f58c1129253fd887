//! The record of each client since the server's start: the last address, when the last link ended,
//! and the last refused log-in. A client has at most one record, and a name that the server does
//! not know has none. Records are written at log-ins, refusals and the end of links only.

use std::collections::HashMap;
use std::hash::{Hash as _, Hasher};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ops::clients::REASON_MAX;

/// The records by name.
#[derive(Debug, Default)]
pub(super) struct Sightings(Mutex<HashMap<String, Sighting>>);

/// The record of one client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Sighting {
    /// The address of the last log-in.
    pub(super) address: Option<SocketAddr>,
    /// The end of the last link.
    pub(super) left: Option<Instant>,
    /// The last refused log-in: its time, its address, and its reason.
    pub(super) refused: Option<(Instant, SocketAddr, Box<str>)>,
}

impl Sightings {
    fn records(&self) -> MutexGuard<'_, HashMap<String, Sighting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the record of a client. A client that the server does not know loses its record.
    pub(super) fn note(
        &self,
        name: &str,
        is_known: impl Fn(&str) -> bool,
        change: impl FnOnce(&mut Sighting),
    ) {
        let mut records = self.records();
        if !is_known(name) {
            records.remove(name);
            return;
        }
        if let Some(record) = records.get_mut(name) {
            change(record);
            return;
        }
        // Cleaned before it grows, so its memory follows the number of known clients.
        if records.len() == records.capacity() {
            records.retain(|name, _| is_known(name));
        }
        change(records.entry(name.to_owned()).or_default());
    }

    /// Adds the record of a client to a hash.
    pub(super) fn print(&self, name: &str, hash: &mut impl Hasher) {
        self.records().get(name).hash(hash);
    }

    /// The record of a client.
    pub(super) fn of(&self, name: &str) -> Sighting {
        self.records().get(name).cloned().unwrap_or_default()
    }
}

impl Sighting {
    /// Records a refused log-in.
    pub(super) fn refuse(&mut self, now: Instant, address: SocketAddr, reason: &str) {
        let end = reason.floor_char_boundary(REASON_MAX);
        self.refused = Some((now, address, reason[..end].into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

    #[test]
    fn only_known_names_have_a_record_and_others_lose_it() {
        let (seen, now) = (Sightings::default(), Instant::now());
        let refuse = |one: &mut Sighting| one.refuse(now, HERE, &"ä".repeat(REASON_MAX));
        for n in 0..10_000 {
            seen.note(&n.to_string(), |_| false, refuse);
        }
        assert_eq!(seen.records().len(), 0);
        seen.note("home", |_| true, refuse);
        seen.note("home", |_| true, |one| one.address = Some(HERE));
        let record = seen.of("home");
        assert_eq!(record.address, Some(HERE));
        assert_eq!(record.refused.unwrap().2.len(), REASON_MAX);
        seen.note("home", |_| false, |_| {});
        assert_eq!(seen.of("home"), Sighting::default());
    }

    #[test]
    fn records_of_clients_that_are_gone_leave_room_for_others() {
        let seen = Sightings::default();
        // Each name is known only while it is noted, as the names of `auth.http` may be.
        for n in 0..10_000 {
            let name = n.to_string();
            seen.note(&name, |known| known == name, |_| {});
        }
        assert!(seen.records().len() <= 8, "{}", seen.records().len());
    }
}

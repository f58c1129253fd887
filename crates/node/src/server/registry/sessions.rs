//! The sessions of all clients and their links.

use std::collections::HashMap;
use std::sync::Arc;

use proto::greeting::{Grant, LinkSecret};
use proto::{InstanceId, LinkId};

use crate::session::Session;

#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// The current session of a client name, with the instance of its process.
    pub(super) current: HashMap<String, (InstanceId, Arc<Session>)>,
    pub(super) links: HashMap<LinkId, LinkEntry>,
    pub(super) ids: HashMap<u64, LinkId>,
    /// The number of links by client name.
    pub(super) names: HashMap<String, usize>,
}

#[derive(Debug)]
pub(super) struct LinkEntry {
    pub(super) serial: u64,
    pub(super) worker: usize,
    pub(super) secret: LinkSecret,
    pub(super) instance: InstanceId,
    pub(super) session: Arc<Session>,
}

/// The worker and the serial of a link.
pub(super) type LinkPlace = (usize, u64);

impl Sessions {
    /// The session that a new link joins, and the links of an older process that it replaces.
    /// `None`: a newer process has logged in meanwhile.
    pub(super) fn in_charge(
        &mut self,
        grant: &Grant,
        workers: usize,
    ) -> Option<(Arc<Session>, Vec<LinkPlace>)> {
        let name = grant.name.as_str();
        let old = match self.current.get(name) {
            Some((instance, session)) if *instance == grant.instance => {
                return Some((Arc::clone(session), Vec::new()));
            }
            Some((_, session)) => self.links_of(session).collect(),
            None => Vec::new(),
        };
        if !old.is_empty() && !grant.takeover {
            return None;
        }
        let session = Session::new(name, workers);
        self.current.insert(name.to_owned(), (grant.instance, Arc::clone(&session)));
        Some((session, old))
    }

    pub(super) fn has_one_less(&mut self, name: &str) {
        if let Some(count) = self.names.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                self.names.remove(name);
            }
        }
    }

    /// Worker and serial of each link of a client, over all its processes.
    pub(super) fn links_of_name(&self, name: &str) -> Vec<LinkPlace> {
        let entries = self.links.values().filter(|entry| entry.session.name == name);
        entries.map(|entry| (entry.worker, entry.serial)).collect()
    }

    /// Worker and serial of each link of a client, except the links of one process.
    pub(super) fn links_of_others(&self, name: &str, instance: InstanceId) -> Vec<LinkPlace> {
        let entries = self.links.values();
        let others =
            entries.filter(|entry| entry.session.name == name && entry.instance != instance);
        others.map(|entry| (entry.worker, entry.serial)).collect()
    }

    /// Worker and serial of each link of a session.
    pub(super) fn links_of(&self, session: &Session) -> impl Iterator<Item = LinkPlace> {
        let id = session.id;
        self.links
            .values()
            .filter(move |entry| entry.session.id == id)
            .map(|entry| (entry.worker, entry.serial))
    }
}

//! `allow_any_client`: clients that nobody knows, and names that belong to a token as long as
//! somebody is connected by it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Rights;
use proto::greeting::{Refusal, StoredCredential};

use super::Client;

/// Clients at a time that have introduced themselves.
pub(super) const STRANGERS_MAX: usize = 4096;

/// From an introduction to the first link: a greeting, and the way to its worker.
pub(super) const ARRIVES: Duration = Duration::from_secs(30);

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// `None`: nobody comes in.
    pub(super) rights: Option<Rights>,
    /// And when each of them came.
    all: HashMap<String, (Arc<Client>, Instant)>,
}

impl Strangers {
    pub(super) fn find(&self, name: &str) -> Option<&Arc<Client>> {
        self.all.get(name).map(|(client, _)| client)
    }

    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.all.remove(name).is_some()
    }

    /// Gives a name to whoever comes with this credential, as a client that `make` dates.
    pub(super) fn introduce(
        &mut self,
        name: &str,
        credential: StoredCredential,
        is_connected: impl Fn(&str) -> bool,
        now: Instant,
        make: impl FnOnce(Client) -> Arc<Client>,
    ) -> Result<(), Refusal> {
        let Self { rights: Some(rights), all } = self else { return Err(Refusal::BadCredential) };
        let is_there = |name: &str, since: Instant| {
            now.saturating_duration_since(since) < ARRIVES || is_connected(name)
        };
        if all.len() >= STRANGERS_MAX {
            all.retain(|name, (_, since)| is_there(name, *since));
            if all.len() >= STRANGERS_MAX && !all.contains_key(name) {
                return Err(Refusal::Limit);
            }
        }
        match all.get(name) {
            // Of several greetings at a time, another one was first.
            Some((client, _)) if client.credentials.contains(&credential) => return Ok(()),
            Some((_, since)) if is_there(name, *since) => return Err(Refusal::BadCredential),
            Some(_) | None => {}
        }
        let client = Client { is_stranger: true, ..Client::new(rights, vec![credential]) };
        all.insert(name.to_owned(), (make(client), now));
        Ok(())
    }

    /// Keeps those who may stay, each as what `keep` makes of it.
    pub(super) fn review(
        &mut self,
        mut keep: impl FnMut(&str, &Arc<Client>) -> Option<Arc<Client>>,
    ) {
        self.all.retain(|name, (client, _)| match keep(name, client) {
            Some(now) => {
                *client = now;
                true
            }
            None => false,
        });
    }
}

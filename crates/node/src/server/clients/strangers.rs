//! `allow_any_client`: clients that the configuration does not name. A name belongs to the token of
//! its first client as long as that client is connected.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Rights;
use proto::greeting::{Refusal, StoredCredential};

use super::Client;

/// The number of clients that may have introduced themselves at a time.
pub(super) const STRANGERS_MAX: usize = 4096;

/// The time from an introduction to the first link: a greeting, and the way to the worker.
pub(super) const ARRIVES: Duration = Duration::from_secs(30);

/// The clients that have introduced themselves; see the module.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// The rights of such clients; `None` admits no such client.
    pub(super) rights: Option<Rights>,
    /// The clients by name, with the times of their introductions.
    all: HashMap<String, (Arc<Client>, Instant)>,
}

impl Strangers {
    pub(super) fn find(&self, name: &str) -> Option<&Arc<Client>> {
        self.all.get(name).map(|(client, _)| client)
    }

    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.all.remove(name).is_some()
    }

    /// Reserves a name for a credential. `make` gives the new client its epoch.
    ///
    /// # Errors
    /// Refuses with [`Refusal::BadCredential`] when no such client is admitted or another
    /// credential has the name. Refuses with [`Refusal::Limit`] when [`STRANGERS_MAX`] clients hold
    /// names.
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
            // Another greeting of the same client was first.
            Some((client, _)) if client.credentials.contains(&credential) => return Ok(()),
            Some((_, since)) if is_there(name, *since) => return Err(Refusal::BadCredential),
            Some(_) | None => {}
        }
        let client = Client { is_stranger: true, ..Client::new(rights, vec![credential]) };
        all.insert(name.to_owned(), (make(client), now));
        Ok(())
    }

    /// Replaces each client with the result of `keep`, and removes the clients for which `keep`
    /// returns `None`.
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

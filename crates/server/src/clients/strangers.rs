//! `allow_any_client`: clients that the configuration does not name. A name belongs to the token of
//! its first client as long as that client is connected.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Rights;
use net::source::prefix;
use proto::greeting::{Refusal, StoredCredential};

use super::Client;

/// The maximum number of clients that have introduced themselves at a time.
pub(super) const STRANGERS_MAX: usize = 4096;

/// The maximum number of such clients of one source (see [`prefix`]): enough for the machines
/// behind one address of a company, while at least 64 sources can hold names.
pub(super) const OF_ONE_SOURCE: usize = 64;

/// The time from an introduction to the first link: the greeting and the handover to the worker.
pub(super) const ARRIVES: Duration = Duration::from_secs(30);

/// Why a client cannot introduce itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// No such client is admitted, or another client has the name.
    Name,
    /// [`OF_ONE_SOURCE`] clients of the same source hold names.
    SourceIsFull,
    /// [`STRANGERS_MAX`] clients hold names.
    AllAreTaken,
    /// The server is a node of a cluster: a name that one node reserves is free at the others, so a
    /// stranger there would count as another process of the client.
    Cluster,
}

impl Denied {
    /// The refusal that the client gets.
    pub(crate) const fn refusal(self) -> Refusal {
        match self {
            Self::Name | Self::Cluster => Refusal::BadCredential,
            Self::SourceIsFull | Self::AllAreTaken => Refusal::Limit,
        }
    }

    /// The reason for the log, unless the refusal already states it.
    pub(crate) const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Name => None,
            Self::SourceIsFull => Some(
                "64 clients of its address hold a name by allow_any_client, which is the limit of \
                 an address; an entry under `clients` does not count",
            ),
            Self::AllAreTaken => {
                Some("4,096 clients hold a name by allow_any_client, which is the limit")
            }
            Self::Cluster => Some(
                "a node of a cluster admits nobody by allow_any_client: a name that one node \
                 reserves is free at the others; add an entry under `clients`, or use auth.http",
            ),
        }
    }
}

/// A client that has introduced itself.
#[derive(Debug)]
struct Stranger {
    client: Arc<Client>,
    /// The time of its introduction.
    since: Instant,
    /// The source of its introduction; see [`prefix`].
    source: IpAddr,
}

/// The clients that have introduced themselves; see the module.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// The rights of such clients; `None` admits no such client.
    pub(super) rights: Option<Rights>,
    /// The clients by name.
    all: HashMap<String, Stranger>,
}

impl Strangers {
    pub(super) fn find(&self, name: &str) -> Option<&Arc<Client>> {
        self.all.get(name).map(|stranger| &stranger.client)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&String, &Arc<Client>)> {
        self.all.iter().map(|(name, stranger)| (name, &stranger.client))
    }

    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.all.remove(name).is_some()
    }

    /// Reserves a name for a credential. `source` is the address of the client, `make` gives the
    /// new client its epoch.
    ///
    /// # Errors
    /// Another credential has the name, or too many clients hold names; see [`Denied`].
    pub(super) fn introduce(
        &mut self,
        name: &str,
        credential: StoredCredential,
        source: IpAddr,
        is_connected: impl Fn(&str) -> bool,
        now: Instant,
        make: impl FnOnce(Client) -> Arc<Client>,
    ) -> Result<(), Denied> {
        let Self { rights: Some(rights), all } = self else { return Err(Denied::Name) };
        let is_there = |name: &str, stranger: &Stranger| {
            now.saturating_duration_since(stranger.since) < ARRIVES || is_connected(name)
        };
        match all.get(name) {
            // Another greeting of the same client came first.
            Some(own) if own.client.credentials.contains(&credential) => return Ok(()),
            Some(other) if is_there(name, other) => return Err(Denied::Name),
            Some(_) | None => {}
        }
        let source = prefix(source);
        let of_source = all.iter().filter(|(_, stranger)| stranger.source == source);
        let held = of_source.filter(|(name, stranger)| is_there(name, stranger));
        if held.take(OF_ONE_SOURCE).count() >= OF_ONE_SOURCE {
            return Err(Denied::SourceIsFull);
        }
        if all.len() >= STRANGERS_MAX && !all.contains_key(name) {
            all.retain(|name, stranger| is_there(name, stranger));
            if all.len() >= STRANGERS_MAX {
                return Err(Denied::AllAreTaken);
            }
        }
        let new = Client::new(rights, vec![credential]);
        let client = Client { is_stranger: true, source: Some(source), ..new };
        all.insert(name.to_owned(), Stranger { client: make(client), since: now, source });
        Ok(())
    }

    /// Replaces each client with the result of `keep`, and removes the clients for which `keep`
    /// returns `None`.
    pub(super) fn review(
        &mut self,
        mut keep: impl FnMut(&str, &Arc<Client>) -> Option<Arc<Client>>,
    ) {
        self.all.retain(|name, stranger| match keep(name, &stranger.client) {
            Some(now) => {
                stranger.client = now;
                true
            }
            None => false,
        });
    }
}

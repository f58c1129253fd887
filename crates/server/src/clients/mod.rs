//! All clients that may log in, and the changes by a reload.

mod asked;
mod changes;
mod client;
mod strangers;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::ensure;
use arc_swap::ArcSwap;
use config::{ClientGrant, Net, Over, PortRights, ServerConfig};
use ops::clients::Origin;
use proto::greeting::StoredCredential;

use asked::HookAnswers;
pub(super) use changes::Changes;
pub(crate) use client::Client;
use node::accept;
use node::entrance::Balancers;
use node::limits;
pub(super) use strangers::Denied;
use strangers::Strangers;

/// All clients that may log in. Log-ins, registrations and forwards look clients up here; a reload
/// replaces the set.
#[derive(Debug)]
pub(crate) struct Clients {
    all: ArcSwap<HashMap<String, Arc<Client>>>,
    guests: Mutex<Guests>,
    epochs: AtomicU64,
    /// The reverse proxies in front of the server (`trusted_proxies`).
    trusted: Arc<ArcSwap<Vec<Net>>>,
    /// The load balancers in front of published ports (`accept_proxy`).
    balancers: Arc<ArcSwap<Balancers>>,
}

/// The clients that the configuration does not name.
#[derive(Debug, Default)]
struct Guests {
    asked: HookAnswers,
    strangers: Strangers,
    /// Grows with each reload.
    generation: u64,
}

/// A client that the server knows.
#[derive(Debug)]
pub(super) struct KnownClient {
    pub(super) name: String,
    pub(super) from: Origin,
    pub(super) client: Arc<Client>,
}

impl KnownClient {
    fn new(name: &str, from: Origin, client: &Arc<Client>) -> Self {
        Self { name: name.to_owned(), from, client: Arc::clone(client) }
    }

    /// A client that is configured or was enrolled.
    pub(super) fn of(name: &str, client: &Arc<Client>) -> Self {
        Self::new(name, if client.enrolled { Origin::Enrolled } else { Origin::File }, client)
    }
}

impl Clients {
    pub(crate) fn new(config: &ServerConfig) -> anyhow::Result<Self> {
        let (all, guests, trusted, balancers) = Default::default();
        let clients = Self { all, guests, epochs: AtomicU64::new(0), trusted, balancers };
        clients.replace(config)?;
        Ok(clients)
    }

    /// Adds a client, or replaces the client of the same name. `certificates`: the server requests
    /// a certificate from the client. Of two concurrent changes one would be lost, so the caller
    /// must serialize the changes.
    pub(super) fn put(&self, grant: &ClientGrant, certificates: bool) -> anyhow::Result<Changes> {
        let (mut all, mut changes) = (HashMap::clone(&self.all.load()), Changes::default());
        self.read_into(grant, certificates, &mut all, &mut changes)?;
        self.all.store(Arc::new(all));
        let mut guests = self.guests();
        // Both removals must happen, hence `|`: a client that used this name before had another
        // credential.
        if guests.strangers.remove(&grant.name) | guests.asked.remove(&grant.name) {
            changes.credential_gone.push(grant.name.clone());
        }
        Ok(changes)
    }

    /// Removes a client; concurrent changes as for [`Self::put`].
    pub(super) fn remove(&self, name: &str) -> Changes {
        let mut all = HashMap::clone(&self.all.load());
        let removed = all.remove(name).map(|_| name.to_owned()).into_iter().collect();
        self.all.store(Arc::new(all));
        Changes { removed, ..Changes::default() }
    }

    /// Reads the client of `grant` into `all`. `certificates`: the server requests client
    /// certificates.
    fn read_into(
        &self,
        grant: &ClientGrant,
        certificates: bool,
        all: &mut HashMap<String, Arc<Client>>,
        changes: &mut Changes,
    ) -> anyhow::Result<()> {
        let client = self.dated(Client::read(grant, certificates)?);
        let client = match self.all.load().get(&grant.name) {
            None => {
                changes.added.push(grant.name.clone());
                Arc::new(client)
            }
            Some(before) => client.instead_of(before, &grant.name, changes),
        };
        all.insert(grant.name.clone(), client);
        Ok(())
    }

    fn dated(&self, mut client: Client) -> Client {
        client.epoch = self.epochs.fetch_add(1, Ordering::Relaxed);
        client
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client that may log in by this name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Client>> {
        if let Some(known) = self.all.load().get(name) {
            return Some(Arc::clone(known));
        }
        let guests = self.guests();
        guests.asked.find(name).or_else(|| guests.strangers.find(name)).cloned()
    }

    /// All clients that may log in, in no particular order.
    pub(super) fn known(&self) -> Vec<KnownClient> {
        let all = self.all.load();
        let mut known: Vec<_> =
            all.iter().map(|(name, client)| KnownClient::of(name, client)).collect();
        known.extend(self.known_guests());
        known
    }

    /// The clients that are configured or were enrolled, by name. Each change creates a new map.
    pub(super) fn snapshot(&self) -> Arc<HashMap<String, Arc<Client>>> {
        self.all.load_full()
    }

    /// The clients that the configuration does not name, in no particular order.
    pub(super) fn known_guests(&self) -> Vec<KnownClient> {
        let all = self.all.load();
        let guests = self.guests();
        let asked =
            guests.asked.all().map(|(name, client)| KnownClient::new(name, Origin::Hook, client));
        let any = guests
            .strangers
            .all()
            .map(|(name, client)| KnownClient::new(name, Origin::Any, client));
        asked.chain(any).filter(|guest| !all.contains_key(&guest.name)).collect()
    }

    /// The client of this name, and its origin.
    pub(super) fn known_of(&self, name: &str) -> Option<KnownClient> {
        if let Some(client) = self.all.load().get(name) {
            return Some(KnownClient::of(name, client));
        }
        let guests = self.guests();
        let asked =
            guests.asked.find(name).map(|client| KnownClient::new(name, Origin::Hook, client));
        asked.or_else(|| Some(KnownClient::new(name, Origin::Any, guests.strangers.find(name)?)))
    }

    /// Whether the client of this name is configured or was enrolled.
    pub(super) fn are_told_of(&self, name: &str) -> bool {
        self.all.load().contains_key(name)
    }

    /// The configured or enrolled client whose own name in a domain has this label.
    pub(super) fn labelled(&self, label: &str) -> Option<String> {
        let all = self.all.load();
        if all.contains_key(label) {
            return Some(label.to_owned());
        }
        all.keys().find(|name| config::own_label(name).as_deref() == Some(label)).cloned()
    }

    /// Whether any client may publish at this address: a configured or enrolled client, a client
    /// with a positive answer, or a client that introduces itself.
    pub(super) fn may_publish(&self, over: Over, at: SocketAddr) -> bool {
        let permits = |tcp: &PortRights, udp: &PortRights| {
            let rights = if over == Over::Tcp { tcp } else { udp };
            let is_any = at.ip().is_unspecified();
            let any = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
            let ips = if is_any { any.to_vec() } else { vec![at.ip()] };
            ips.into_iter().any(|ip| rights.permits(ip, at.port()))
        };
        let guests = self.guests();
        guests.strangers.rights.as_ref().is_some_and(|rights| permits(&rights.tcp, &rights.udp))
            || guests.asked.all().any(|(_, client)| permits(&client.tcp, &client.udp))
            || self.all.load().values().any(|client| permits(&client.tcp, &client.udp))
    }

    /// Whether clients with unknown names may log in.
    pub(super) fn may_be_any(&self) -> bool {
        self.guests().strangers.rights.is_some()
    }

    /// Reserves a name for a credential as long as its client is connected. `source` is the address
    /// of the client.
    ///
    /// # Errors
    /// The name is not free, or too many clients hold names; see [`Denied`].
    pub(super) fn introduce(
        &self,
        name: &str,
        credential: StoredCredential,
        source: IpAddr,
        is_connected: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Result<(), Denied> {
        let mut guests = self.guests();
        if self.are_told_of(name) || guests.asked.find(name).is_some() {
            return Err(Denied::Name);
        }
        let make = |client| Arc::new(self.dated(client));
        guests.strangers.introduce(name, credential, source, is_connected, now, make)
    }

    /// Frees the name of a client that introduced itself and has no links left.
    pub(super) fn forget_stranger(&self, name: &str, is_connected: impl Fn(&str) -> bool) {
        let mut guests = self.guests();
        // The client may have connected again meanwhile.
        if !is_connected(name) {
            guests.strangers.remove(name);
        }
    }

    /// Whether a client of this name has introduced itself.
    pub(super) fn is_stranger(&self, name: &str) -> bool {
        self.guests().strangers.find(name).is_some()
    }

    /// The generation of the configuration. The answer to a query from before a reload is rejected.
    pub(super) fn generation(&self) -> u64 {
        self.guests().generation
    }

    /// Whether an answer about this name is still valid.
    pub(super) fn is_answered(&self, name: &str, now: Instant) -> bool {
        self.guests().asked.is_answered(name, now)
    }

    /// Whether a positive answer about this name is stored, even an expired one.
    pub(super) fn is_asked(&self, name: &str) -> bool {
        self.guests().asked.find(name).is_some()
    }

    /// The names of all clients with a positive answer.
    pub(super) fn asked_names(&self) -> Vec<String> {
        self.guests().asked.names().cloned().collect()
    }

    /// Removes the answer about a client that is not connected, if the answer has expired.
    pub(super) fn forget_answer(&self, name: &str, now: Instant) {
        self.guests().asked.forget(name, now);
    }

    /// Stores an answer about a name; `None`: there is no such client. A negative answer about a
    /// connected client must arrive twice, because the first one may come from a proxy while the
    /// service behind it restarts.
    ///
    /// # Errors
    /// The answer has an invalid token, or the configuration has changed since the query.
    pub(super) fn learn(
        &self,
        name: &str,
        answer: Option<&ClientGrant>,
        (until, generation): (Instant, u64),
        is_connected: impl Fn(&str) -> bool,
    ) -> anyhow::Result<Changes> {
        let mut changes = Changes::default();
        let new = answer.map(|grant| Client::read(grant, false)).transpose()?;
        let mut guests = self.guests();
        ensure!(guests.generation == generation, "the configuration was changed meanwhile");
        if self.are_told_of(name) {
            return Ok(changes);
        }
        match new {
            None if is_connected(name) && guests.asked.doubt(name) => {}
            Some(new) => {
                let new = self.dated(new);
                let client = match guests.asked.find(name) {
                    Some(before) => new.instead_of(before, name, &mut changes),
                    None => Arc::new(new),
                };
                guests.asked.yes(name, client, until);
                if guests.strangers.remove(name) {
                    changes.credential_gone.push(name.to_owned());
                }
            }
            None => {
                if guests.asked.no(name, Instant::now(), until) {
                    changes.removed.push(name.to_owned());
                }
            }
        }
        Ok(changes)
    }

    /// Replaces the clients with the clients of `config`. An error leaves everything unchanged.
    pub(super) fn replace(&self, config: &ServerConfig) -> anyhow::Result<Changes> {
        let old = self.all.load_full();
        let (mut new, mut changes) = (HashMap::new(), Changes::default());
        for grant in &config.clients {
            self.read_into(grant, config.tls.client_ca.is_some(), &mut new, &mut changes)?;
        }
        changes.removed = old.keys().filter(|name| !new.contains_key(*name)).cloned().collect();
        // Held until the new clients are stored, so a client that logs in meanwhile is looked up
        // afterwards.
        let mut guests = self.guests();
        self.review_guests(&mut guests, config, &new, &mut changes);
        changes.removed.sort_unstable();
        self.all.store(Arc::new(new));
        self.trusted.store(Arc::new(config.trusted_proxies.clone()));
        limits::set_server(&config.limits);
        accept::lists::set_server(config.visitors());
        self.balancers.store(Arc::new(Balancers::of(config)));
        Ok(changes)
    }

    /// The load balancers in front of published ports.
    pub(crate) const fn balancers(&self) -> &Arc<ArcSwap<Balancers>> {
        &self.balancers
    }

    /// The reverse proxies in front of the server.
    pub(crate) const fn trusted(&self) -> &Arc<ArcSwap<Vec<Net>>> {
        &self.trusted
    }

    /// Removes the guests that may not stay, and gives the others their current rights.
    fn review_guests(
        &self,
        guests: &mut Guests,
        config: &ServerConfig,
        known: &HashMap<String, Arc<Client>>,
        changes: &mut Changes,
    ) {
        let Guests { asked, strangers, generation } = guests;
        *generation += 1;
        if config.auth.is_none() {
            changes.removed.extend(asked.clear());
        }
        changes.credential_gone.extend(known.keys().filter(|name| asked.remove(name)).cloned());
        // The service is queried about connected clients again at once, and a new log-in waits for
        // its answer.
        asked.expire(Instant::now());
        strangers.rights.clone_from(&config.any_client);
        strangers.review(|name, client| {
            let Some(rights) = config.any_client.as_ref().filter(|_| !known.contains_key(name))
            else {
                changes.removed.push(name.to_owned());
                return None;
            };
            let now = Client::new(rights, client.credentials.clone());
            let now = self.dated(Client { is_stranger: true, source: client.source, ..now });
            Some(now.instead_of(client, name, changes))
        });
    }
}

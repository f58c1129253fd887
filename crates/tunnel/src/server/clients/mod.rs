//! Everybody who may log in, and what a reload changes of it.

mod asked;
mod strangers;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, ensure};
use arc_swap::ArcSwap;
use config::{ClientGrant, ForwardRights, HostRights, PortRights, Rights, ServerConfig};
use proto::greeting::{Refusal, StoredCredential};
use relay::Gate;

use asked::Asked;
use strangers::Strangers;

/// Everybody who may log in. Asked at log-ins, registrations and forwards; a reload puts another set
/// in its place.
#[derive(Debug)]
pub(crate) struct Clients {
    all: ArcSwap<HashMap<String, Arc<Client>>>,
    guests: Mutex<Guests>,
    epochs: AtomicU64,
}

/// Who does not stand here.
#[derive(Debug, Default)]
struct Guests {
    asked: Asked,
    strangers: Strangers,
    /// Grows with each reload.
    generation: u64,
}

/// One who may.
#[derive(Debug)]
pub(crate) struct Client {
    pub(super) credentials: Vec<StoredCredential>,
    pub(super) by_certificate: bool,
    /// It introduced itself.
    pub(super) is_stranger: bool,
    /// What it may publish.
    pub(crate) tcp: PortRights,
    /// Hosts whose HTTP, and whose TLS, it may have.
    pub(crate) http: HostRights,
    pub(crate) tls: HostRights,
    /// What it may reach on this side.
    pub(crate) forward: ForwardRights,
    /// Whether it may test the speed.
    pub(crate) speedtest: bool,
    /// How many streams it may have, over all links.
    pub(crate) gate: Arc<Gate>,
    /// The limits of the gate: live streams, and new ones per second.
    limits: (Option<u32>, Option<NonZeroU32>),
    /// How many ports it may publish.
    pub(crate) ports: Option<NonZeroU32>,
    /// How many hosts it may publish.
    pub(crate) hosts: Option<NonZeroU32>,
    /// Another one than before: who logged in by what was valid then has to do so again.
    pub(super) epoch: u64,
}

/// What is different after a reload, by the clients' names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) added: Vec<String>,
    pub(super) removed: Vec<String>,
    /// One of its credentials is gone.
    pub(super) credential_gone: Vec<String>,
    /// Another set of ports, or another limit.
    pub(super) entrances: Vec<String>,
    /// Something else.
    pub(super) others: Vec<String>,
}

impl Clients {
    pub(crate) fn new(config: &ServerConfig) -> anyhow::Result<Self> {
        let (all, guests) = Default::default();
        let clients = Self { all, guests, epochs: AtomicU64::new(0) };
        clients.replace(config)?;
        Ok(clients)
    }

    /// Adds one, in the place of the one before it. Of two changes at a time one would be lost: the
    /// caller sees to it that there is one.
    pub(super) fn put(&self, grant: &ClientGrant) -> anyhow::Result<Changes> {
        let (mut all, mut changes) = (HashMap::clone(&self.all.load()), Changes::default());
        self.read_into(grant, false, &mut all, &mut changes)?;
        self.all.store(Arc::new(all));
        let mut guests = self.guests();
        // Not one or the other: whoever came by this name did so by another credential.
        if guests.strangers.remove(&grant.name) | guests.asked.remove(&grant.name) {
            changes.credential_gone.push(grant.name.clone());
        }
        Ok(changes)
    }

    /// As [`Self::put`].
    pub(super) fn remove(&self, name: &str) -> Changes {
        let mut all = HashMap::clone(&self.all.load());
        let removed = all.remove(name).map(|_| name.to_owned()).into_iter().collect();
        self.all.store(Arc::new(all));
        Changes { removed, ..Changes::default() }
    }

    /// `certificates`: clients are asked for them.
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

    /// Whoever may log in by this name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Client>> {
        if let Some(known) = self.all.load().get(name) {
            return Some(Arc::clone(known));
        }
        let guests = self.guests();
        guests.asked.find(name).or_else(|| guests.strangers.find(name)).cloned()
    }

    /// Whether the name stands in the configuration, or was enrolled.
    pub(super) fn are_told_of(&self, name: &str) -> bool {
        self.all.load().contains_key(name)
    }

    /// Whether somebody may come in whose name is unknown.
    pub(super) fn may_be_any(&self) -> bool {
        self.guests().strangers.rights.is_some()
    }

    /// Gives a name to whoever comes with this credential, as long as he is connected.
    pub(super) fn introduce(
        &self,
        name: &str,
        credential: StoredCredential,
        is_connected: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Result<(), Refusal> {
        let mut guests = self.guests();
        if self.are_told_of(name) || guests.asked.find(name).is_some() {
            return Err(Refusal::BadCredential);
        }
        let make = |client| Arc::new(self.dated(client));
        guests.strangers.introduce(name, credential, is_connected, now, make)
    }

    /// A client has no links any more: if it introduced itself, its name is free.
    pub(super) fn forget_stranger(&self, name: &str, is_connected: impl Fn(&str) -> bool) {
        let mut guests = self.guests();
        // It may have come again meanwhile.
        if !is_connected(name) {
            guests.strangers.remove(name);
        }
    }

    /// Whether it has introduced itself.
    pub(super) fn is_stranger(&self, name: &str) -> bool {
        self.guests().strangers.find(name).is_some()
    }

    /// Of what is asked now: an answer to a question of before a reload does not count.
    pub(super) fn generation(&self) -> u64 {
        self.guests().generation
    }

    /// Whether what was heard of a name counts still.
    pub(super) fn is_answered(&self, name: &str, now: Instant) -> bool {
        self.guests().asked.is_answered(name, now)
    }

    /// Whether it was heard that there is such a client, however long ago.
    pub(super) fn is_asked(&self, name: &str) -> bool {
        self.guests().asked.find(name).is_some()
    }

    /// All of whom that was heard.
    pub(super) fn asked_names(&self) -> Vec<String> {
        self.guests().asked.names().cloned().collect()
    }

    /// What was heard of one that is not here, if it is too old to count.
    pub(super) fn forget_answer(&self, name: &str, now: Instant) {
        self.guests().asked.forget(name, now);
    }

    /// It was heard what there is of a name; `None` where it is no client. Of one that is connected that
    /// has to be heard twice: it may be a proxy's answer while who is asked starts again.
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

    /// Puts the clients of `config` in the place of those before. After an error nothing has changed.
    pub(super) fn replace(&self, config: &ServerConfig) -> anyhow::Result<Changes> {
        let old = self.all.load_full();
        let (mut new, mut changes) = (HashMap::new(), Changes::default());
        for grant in &config.clients {
            self.read_into(grant, config.tls.client_ca.is_some(), &mut new, &mut changes)?;
        }
        changes.removed = old.keys().filter(|name| !new.contains_key(*name)).cloned().collect();
        // Until the others are known: who comes meanwhile is looked at after that.
        let mut guests = self.guests();
        self.review_guests(&mut guests, config, &new, &mut changes);
        changes.removed.sort_unstable();
        self.all.store(Arc::new(new));
        Ok(changes)
    }

    /// Those who are in and may not be any more go, the others get the rights of today.
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
        // They are asked about again at once, and whoever comes meanwhile waits for that.
        asked.expire(Instant::now());
        strangers.rights.clone_from(&config.any_client);
        strangers.review(|name, client| {
            let Some(rights) = config.any_client.as_ref().filter(|_| !known.contains_key(name))
            else {
                changes.removed.push(name.to_owned());
                return None;
            };
            let now = Client::new(rights, client.credentials.clone());
            let now = self.dated(Client { is_stranger: true, ..now });
            Some(now.instead_of(client, name, changes))
        });
    }
}

impl Client {
    fn read(grant: &ClientGrant, certificates: bool) -> anyhow::Result<Self> {
        let credentials: anyhow::Result<Vec<_>> = grant
            .tokens
            .iter()
            .map(|token| {
                StoredCredential::of(token.secret.reveal())
                    .with_context(|| format!("token of client `{}`", grant.name))
            })
            .collect();
        let credentials = credentials?;
        // Beside a token the certificate is asked for as well, not instead.
        let by_certificate = certificates && credentials.is_empty();
        Ok(Self { by_certificate, ..Self::new(&grant.rights, credentials) })
    }

    fn new(rights: &Rights, credentials: Vec<StoredCredential>) -> Self {
        let limits = (rights.streams.map(NonZeroU32::get), rights.new_per_second);
        Self {
            credentials,
            by_certificate: false,
            is_stranger: false,
            tcp: rights.tcp.clone(),
            http: rights.http.clone(),
            tls: rights.tls.clone(),
            forward: rights.forward.clone(),
            speedtest: rights.speedtest,
            gate: Gate::limited(limits.0, limits.1),
            limits,
            ports: rights.ports,
            hosts: rights.hosts,
            epoch: 0,
        }
    }

    /// What stays of the one before stays: the very same when nothing is different, else its gate,
    /// which counts streams, and its epoch.
    fn instead_of(mut self, before: &Arc<Self>, name: &str, changes: &mut Changes) -> Arc<Self> {
        let is_gone = before.credentials.iter().any(|old| !self.credentials.contains(old))
            || (before.by_certificate && !self.by_certificate);
        let has_more = self.credentials.iter().any(|new| !before.credentials.contains(new));
        let limit = self.limits != before.limits;
        let entrances = limit
            || (&self.tcp, &self.http, &self.tls) != (&before.tcp, &before.http, &before.tls)
            || (self.ports, self.hosts) != (before.ports, before.hosts);
        let others =
            has_more || self.forward != before.forward || self.speedtest != before.speedtest;
        for (list, is_so) in [
            (&mut changes.credential_gone, is_gone),
            (&mut changes.entrances, entrances),
            (&mut changes.others, others),
        ] {
            if is_so {
                list.push(name.to_owned());
            }
        }
        if !(is_gone || entrances || others) {
            return Arc::clone(before);
        }
        if !limit {
            self.gate = Arc::clone(&before.gate);
        }
        if !is_gone {
            self.epoch = before.epoch;
        }
        Arc::new(self)
    }
}

impl Changes {
    /// Those whose links end.
    pub(super) fn out(&self) -> impl Iterator<Item = &String> {
        self.removed.iter().chain(&self.credential_gone)
    }

    /// For people.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut changed: Vec<_> = self.entrances.iter().chain(&self.others).collect();
        changed.sort_unstable();
        changed.dedup();
        changed.retain(|name| !self.credential_gone.contains(name));
        let said = |names: &[&String], what: &str| -> Vec<String> {
            names.iter().map(|name| format!("client {name} {what}")).collect()
        };
        let [added, removed, gone] = [&self.added, &self.removed, &self.credential_gone]
            .map(|names| names.iter().collect::<Vec<_>>());
        [
            said(&added, "added"),
            said(&changed, "changed"),
            said(&gone, "changed: a credential is gone, it has to log in again"),
            said(&removed, "removed: its connections end"),
        ]
        .concat()
    }
}

#[cfg(test)]
mod tests {
    use config::{ServerFlags, Sources, Text, load_server};

    use super::strangers::{ARRIVES, STRANGERS_MAX};
    use super::*;

    const A: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";
    const B: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u";

    fn config(clients: &str) -> ServerConfig {
        let text = format!(
            "listen: tls://127.0.0.1:7000\ntls: {{ cert: a, key: b, client_ca: c }}\n\
             {}{clients}",
            if clients.starts_with(' ') { "clients:\n" } else { "" }
        );
        let sources = Sources { env: &|_| None, read: &|_| Ok(String::new()) };
        let text = Some(Text { name: "server.yaml", text: &text });
        load_server(text, &ServerFlags::default(), &sources).unwrap().config
    }

    fn entry(rest: &str) -> String {
        format!("  - {{ name: home, {rest} }}\n")
    }

    #[test]
    fn a_certificate_does_not_stand_in_for_the_token_of_a_client_that_has_one() {
        let clients = Clients::new(&config(&entry(&format!("token: {A}")))).unwrap();
        assert!(!clients.find("home").unwrap().by_certificate);
    }

    #[test]
    fn only_what_is_different_is_another_client() {
        let clients = Clients::new(&config(&entry(&format!("token: {A}")))).unwrap();
        let first = clients.find("home").unwrap();
        let changes = clients.replace(&config(&entry(&format!("token: {A}")))).unwrap();
        assert_eq!(changes, Changes::default());
        assert!(Arc::ptr_eq(&first, &clients.find("home").unwrap()));

        // Rotation: two are valid, then the new one alone.
        let home = || vec!["home".to_owned()];
        let changes = clients.replace(&config(&entry(&format!("token: [{A}, {B}]")))).unwrap();
        assert_eq!(changes, Changes { others: home(), ..Changes::default() });
        let both = clients.find("home").unwrap();
        assert_eq!((both.epoch, both.credentials.len()), (first.epoch, 2));
        assert!(Arc::ptr_eq(&first.gate, &both.gate));
        let changes = clients.replace(&config(&entry(&format!("token: {B}")))).unwrap();
        assert_eq!(changes, Changes { credential_gone: home(), ..Changes::default() });
        assert_ne!(clients.find("home").unwrap().epoch, first.epoch);

        let with = |rest: &str| config(&entry(&format!("token: {B}, {rest}")));
        let entrances = Changes { entrances: home(), ..Changes::default() };
        assert_eq!(clients.replace(&with("allow: { tcp: 1000 }")).unwrap(), entrances);
        let before = clients.find("home").unwrap();
        let limited = clients.replace(&with("allow: { tcp: 1000 }, limits: { streams: 5 }"));
        assert_eq!(limited.unwrap(), entrances);
        assert!(!Arc::ptr_eq(&before.gate, &clients.find("home").unwrap().gate));

        let changes =
            clients.replace(&config(&format!("  - {{ name: b, token: {A} }}\n"))).unwrap();
        assert_eq!((&changes.added[..], &changes.removed), (&["b".to_owned()][..], &home()));
        assert!(clients.find("home").is_none());
        assert_eq!(changes.lines(), ["client b added", "client home removed: its connections end"]);
    }

    #[test]
    fn a_stranger_keeps_its_name_while_it_is_connected_and_goes_with_the_permission() {
        let open = |rest: &str| {
            config(&format!("{}allow_any_client: {rest}\n", entry(&format!("token: {A}"))))
        };
        let clients = Clients::new(&open("true")).unwrap();
        let (mine, other) = (stored(A), stored(B));
        let now = Instant::now();
        let introduce = |name: &str, credential: &StoredCredential, connected: bool, now| {
            clients.introduce(name, credential.clone(), |_| connected, now)
        };
        assert_eq!(introduce("home", &other, false, now), Err(Refusal::BadCredential));
        assert_eq!(introduce("guest", &mine, false, now), Ok(()));
        assert_eq!(introduce("guest", &mine, false, now), Ok(()));
        assert_eq!(introduce("guest", &other, false, now), Err(Refusal::BadCredential));
        let later = now + ARRIVES;
        assert_eq!(introduce("guest", &other, true, later), Err(Refusal::BadCredential));
        let epoch = clients.find("guest").unwrap().epoch;
        assert_eq!(introduce("guest", &other, false, later), Ok(()));
        assert_ne!(
            clients.find("guest").unwrap().epoch,
            epoch,
            "another one, who has to be let in"
        );

        let guest = || vec!["guest".to_owned()];
        let changes = clients.replace(&open("{ allow: { tcp: 1000 } }")).unwrap();
        assert_eq!(changes, Changes { entrances: guest(), ..Changes::default() });
        let changes = clients.replace(&open("false")).unwrap();
        assert_eq!(changes, Changes { removed: guest(), ..Changes::default() });
        assert!(clients.find("guest").is_none() && !clients.may_be_any());
        assert_eq!(introduce("guest", &mine, false, later), Err(Refusal::BadCredential));
    }

    #[test]
    fn who_only_introduces_himself_leaves_room_for_others() {
        let clients = Clients::new(&config("allow_any_client: true\n")).unwrap();
        let (mine, now) = (stored(A), Instant::now());
        let introduce = |name: &str, now| clients.introduce(name, mine.clone(), |_| false, now);
        for n in 0..STRANGERS_MAX {
            assert_eq!(introduce(&n.to_string(), now), Ok(()));
        }
        assert_eq!(introduce("more", now), Err(Refusal::Limit));
        assert_eq!(introduce("more", now + ARRIVES), Ok(()));
    }

    fn stored(token: &str) -> StoredCredential {
        StoredCredential::of(token).unwrap()
    }
}

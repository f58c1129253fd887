//! Everybody who may log in, and what a reload changes of it.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use arc_swap::ArcSwap;
use config::{ClientGrant, ForwardRights, PortRights, ServerConfig};
use proto::greeting::StoredCredential;
use relay::Gate;

/// Everybody who may log in. Asked at log-ins, registrations and forwards; a reload puts another set
/// in its place.
#[derive(Debug)]
pub(crate) struct Clients {
    all: ArcSwap<HashMap<String, Arc<Client>>>,
    epochs: AtomicU64,
}

/// One who may.
#[derive(Debug)]
pub(crate) struct Client {
    pub(super) credentials: Vec<StoredCredential>,
    pub(super) by_certificate: bool,
    /// What it may publish.
    pub(crate) tcp: PortRights,
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
        let clients = Self { all: ArcSwap::default(), epochs: AtomicU64::new(0) };
        clients.replace(config)?;
        Ok(clients)
    }

    /// Adds one, in the place of the one before it. Of two changes at a time one would be lost: the
    /// caller sees to it that there is one.
    pub(super) fn put(&self, grant: &ClientGrant) -> anyhow::Result<Changes> {
        let (mut all, mut changes) = (HashMap::clone(&self.all.load()), Changes::default());
        self.read_into(grant, false, &mut all, &mut changes)?;
        self.all.store(Arc::new(all));
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
        let mut client = Client::read(grant, certificates)?;
        client.epoch = self.epochs.fetch_add(1, Ordering::Relaxed);
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

    pub(crate) fn find(&self, name: &str) -> Option<Arc<Client>> {
        self.all.load().get(name).cloned()
    }

    /// Puts the clients of `config` in the place of those before. After an error nothing has changed.
    pub(super) fn replace(&self, config: &ServerConfig) -> anyhow::Result<Changes> {
        let old = self.all.load_full();
        let (mut new, mut changes) = (HashMap::new(), Changes::default());
        for grant in &config.clients {
            self.read_into(grant, config.tls.client_ca.is_some(), &mut new, &mut changes)?;
        }
        changes.removed = old.keys().filter(|name| !new.contains_key(*name)).cloned().collect();
        changes.removed.sort_unstable();
        self.all.store(Arc::new(new));
        Ok(changes)
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
        let limits = (grant.streams.map(NonZeroU32::get), grant.new_per_second);
        Ok(Self {
            // Beside a token the certificate is asked for as well, not instead.
            by_certificate: certificates && credentials.is_empty(),
            credentials,
            tcp: grant.tcp.clone(),
            forward: grant.forward.clone(),
            speedtest: grant.speedtest,
            gate: Gate::limited(limits.0, limits.1),
            limits,
            ports: grant.ports,
            epoch: 0,
        })
    }

    /// What stays of the one before stays: the very same when nothing is different, else its gate,
    /// which counts streams, and its epoch.
    fn instead_of(mut self, before: &Arc<Self>, name: &str, changes: &mut Changes) -> Arc<Self> {
        let is_gone = before.credentials.iter().any(|old| !self.credentials.contains(old))
            || (before.by_certificate && !self.by_certificate);
        let has_more = self.credentials.iter().any(|new| !before.credentials.contains(new));
        let limit = self.limits != before.limits;
        let entrances = limit || self.tcp != before.tcp || self.ports != before.ports;
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

    use super::*;

    const A: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";
    const B: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u";

    fn config(clients: &str) -> ServerConfig {
        let text = format!(
            "listen: tls://127.0.0.1:7000\ntls: {{ cert: a, key: b, client_ca: c }}\n\
             clients:\n{clients}"
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
}

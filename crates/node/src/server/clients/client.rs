//! One who may log in: what proves it, and what it may do.

use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::Context;
use config::{ClientGrant, ForwardRights, HostRights, PortRights, Rights};
use proto::greeting::StoredCredential;
use relay::Gate;

use super::Changes;

/// One who may log in.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) credentials: Vec<StoredCredential>,
    pub(crate) by_certificate: bool,
    /// It introduced itself.
    pub(crate) is_stranger: bool,
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
    pub(super) limits: (Option<u32>, Option<NonZeroU32>),
    /// How many ports it may publish.
    pub(crate) ports: Option<NonZeroU32>,
    /// How many hosts it may publish.
    pub(crate) hosts: Option<NonZeroU32>,
    /// Another one than before: who logged in by what was valid then has to do so again.
    pub(crate) epoch: u64,
}

impl Client {
    /// `certificates`: clients are asked for them.
    pub(super) fn read(grant: &ClientGrant, certificates: bool) -> anyhow::Result<Self> {
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

    pub(super) fn new(rights: &Rights, credentials: Vec<StoredCredential>) -> Self {
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
    pub(super) fn instead_of(
        mut self,
        before: &Arc<Self>,
        name: &str,
        changes: &mut Changes,
    ) -> Arc<Self> {
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

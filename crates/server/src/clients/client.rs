//! A client that may log in: its credentials and its rights.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::Context;
use arc_swap::ArcSwap;
use config::{
    ClientGrant, FlowLimits, ForwardRights, HostRights, Net, Over, PortRights, Rights, VisitRights,
};
use proto::Limits;
use proto::greeting::StoredCredential;
use relay::shares::Kind;
use relay::{FlowBounds, Gate, Holder};

use super::Changes;
use node::{descriptors, limits};

/// A client that may log in.
#[derive(Debug)]
pub(crate) struct Client {
    pub credentials: Vec<StoredCredential>,
    pub(crate) by_certificate: bool,
    /// The client was enrolled by a code.
    pub enrolled: bool,
    /// The token of a renewal, which is one of `credentials`. No log-in has used the token yet; the
    /// first one makes the other token void.
    pub renewal: Option<StoredCredential>,
    /// The client introduced itself (`allow_any_client`).
    pub(crate) is_stranger: bool,
    /// The source from which the client introduced itself. The log lines about the client count for
    /// this source, because such a client can use any number of names.
    pub source: Option<IpAddr>,
    /// The ports that the client may publish.
    pub tcp: PortRights,
    pub udp: PortRights,
    /// The hosts that the client may publish for HTTP (`http`) and for TLS (`tls`).
    pub http: HostRights,
    pub tls: HostRights,
    /// Whether services of the client may have `pass_through`.
    pub(crate) pass_through: bool,
    /// Whether services of the client may share their addresses.
    pub shared: bool,
    /// Whether services of the client may have `dscp`.
    pub(crate) dscp: bool,
    /// The targets on the server's side that the client may reach.
    pub forward: ForwardRights,
    /// The servers to which this server may lead the client.
    pub via: ForwardRights,
    /// The private services of other clients that the client may visit.
    pub visit: VisitRights,
    /// Whether the client may invite visitors to its private services by codes.
    pub invite: bool,
    /// Whether the client may run a speed test.
    pub speedtest: bool,
    /// Limits the streams of the client over all links.
    pub gate: Arc<Gate>,
    /// The limits of the gate.
    pub limits: Limits,
    /// The number of ports that the client may publish; [`u32::MAX`] is unlimited.
    pub ports: u32,
    /// The number of hosts that the client may publish; `None` is unlimited.
    pub hosts: Option<NonZeroU32>,
    /// The maximum number of UDP flows at each port, and of one source address.
    pub(crate) flows: (u32, u32),
    /// The bounds of the flows that the server dials for the client, over all links.
    pub dialled: Arc<FlowBounds>,
    /// Changes when a credential becomes invalid. A client that logged in under an older epoch has
    /// to log in again.
    pub(crate) epoch: u64,
}

impl Client {
    /// Whether the client may publish nothing, reach nothing on this side or through it, and invite
    /// nobody.
    pub(crate) fn has_no_right_but_visits(&self) -> bool {
        let ports = self.tcp.rights.is_empty() && self.udp.rights.is_empty();
        let hosts = self.http.0.is_empty() && self.tls.0.is_empty();
        let targets = self.forward.0.is_empty() && self.via.0.is_empty();
        ports && hosts && targets && !self.invite && !self.shared
    }

    /// Makes a client from its configuration. `certificates`: the server requests client
    /// certificates.
    ///
    /// # Errors
    /// A token that is invalid.
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
        // A client with a token has to prove both the token and the certificate.
        let by_certificate = certificates && credentials.is_empty();
        let enrolled = grant.enrolled;
        let renewal = credentials.get(1).filter(|_| enrolled).cloned();
        let client = Self::new(&grant.rights, credentials);
        Ok(Self { by_certificate, enrolled, renewal, ..client })
    }

    pub(super) fn new(rights: &Rights, credentials: Vec<StoredCredential>) -> Self {
        let limits = rights.limits;
        let FlowLimits { most, per_source } = rights.flows;
        let most = most.map_or(FlowBounds::FLOWS, NonZeroU32::get);
        let per_source = per_source.map_or(FlowBounds::OF_SOURCE, NonZeroU32::get);
        Self {
            flows: (most, per_source),
            // The sources here are the programs that use the client's forwards, which the client
            // limits.
            dialled: Arc::new(FlowBounds::new(most, u32::MAX)),
            credentials,
            by_certificate: false,
            enrolled: false,
            renewal: None,
            is_stranger: false,
            source: None,
            tcp: rights.tcp.clone(),
            udp: rights.udp.clone(),
            http: rights.http.clone(),
            tls: rights.tls.clone(),
            pass_through: rights.pass_through,
            shared: rights.shared,
            dscp: rights.dscp,
            forward: rights.forward.clone(),
            via: rights.via.clone(),
            visit: rights.visit.clone(),
            invite: rights.invite,
            speedtest: rights.speedtest,
            gate: Gate::limited(
                &limits,
                Some(Holder::new(descriptors::table(), Kind::Rival)),
                Some(Arc::clone(limits::of_server())),
            ),
            limits,
            ports: rights.ports,
            hosts: rights.hosts,
            epoch: 0,
        }
    }

    /// The bounds of a port that the client publishes. An address of a reverse proxy in `trusted`
    /// does not count as a source.
    pub(crate) fn flow_bounds(&self, trusted: &Arc<ArcSwap<Vec<Net>>>) -> Arc<FlowBounds> {
        let trusted = Arc::clone(trusted);
        let (most, per_source) = self.flows;
        let bounds = FlowBounds::new(most, per_source);
        Arc::new(bounds.without(move |ip| trusted.load().iter().any(|net| net.contains(ip))))
    }

    /// Changes the bounds of a port that is open.
    pub(crate) fn bound_flows(&self, port: &FlowBounds) {
        port.set(self.flows.0, self.flows.1);
    }

    /// The ports of this protocol that the client may publish.
    pub(crate) const fn ports_of(&self, over: Over) -> &PortRights {
        match over {
            Over::Tcp => &self.tcp,
            Over::Udp => &self.udp,
        }
    }

    /// Replaces the client `before` and records the changes. Returns `before` itself when nothing
    /// is different. Otherwise the gate, which counts streams, has the new limits, and unchanged
    /// credentials keep the epoch.
    pub(super) fn instead_of(
        mut self,
        before: &Arc<Self>,
        name: &str,
        changes: &mut Changes,
    ) -> Arc<Self> {
        // No client has logged in with the token of a pending renewal, so its removal ends no link.
        let mut used =
            before.credentials.iter().filter(|old| before.renewal.as_ref() != Some(*old));
        let is_gone = used.any(|old| !self.credentials.contains(old))
            || (before.by_certificate && !self.by_certificate);
        let has_more = self.credentials.iter().any(|new| !before.credentials.contains(new));
        let limit = self.limits != before.limits;
        let entrances = limit
            || (&self.tcp, &self.udp) != (&before.tcp, &before.udp)
            || (&self.http, &self.tls) != (&before.http, &before.tls)
            || (self.ports, self.hosts) != (before.ports, before.hosts)
            || self.flows != before.flows
            || self.pass_through != before.pass_through
            || (self.shared, self.dscp) != (before.shared, before.dscp);
        let waits = self.renewal != before.renewal || self.enrolled != before.enrolled;
        let others = has_more
            || waits
            || (&self.forward, &self.via) != (&before.forward, &before.via)
            || self.visit != before.visit
            || self.invite != before.invite
            || self.speedtest != before.speedtest;
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
        // The streams and descriptors that the client holds stay counted.
        before.gate.set(&self.limits);
        self.gate = Arc::clone(&before.gate);
        before.dialled.set(self.flows.0, u32::MAX);
        self.dialled = Arc::clone(&before.dialled);
        if !is_gone {
            self.epoch = before.epoch;
        }
        Arc::new(self)
    }
}

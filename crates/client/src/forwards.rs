//! The forwards of a client: entrances of this process whose targets the server's side dials.

use std::io;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::Arc;

use config::{Forward, Local, Net, PrivateService};
use proto::Target;
use relay::shares::Kind;
use relay::{FlowBounds, Gate, Holder, ProxyKind};

use node::aim::{Aim, ProxyTerms};
use node::entrance::{Absent, Bound, Entrance, Opening, Openings};
use node::session::{Handle, Session};
use node::{descriptors, limits};
use peer::links::PeerLinks;

use super::uplink::Uplinks;

/// The forwards of a client.
#[derive(Debug)]
pub(super) struct Forwards {
    /// The open forwards.
    open: Openings<ForwardEntry>,
    /// The private services to which forwards lead.
    visits: Arc<PeerLinks>,
}

impl Forwards {
    pub(super) fn new(visits: &Arc<PeerLinks>) -> Self {
        Self { open: Openings::default(), visits: Arc::clone(visits) }
    }

    /// The sessions whose links serve the visitors of a forward, in the order of preference: those
    /// of servers, or of the client that has the private service.
    fn sessions_of(&self, forward: &Forward, servers: &Uplinks) -> Vec<Arc<Session>> {
        match forward.private() {
            Some(service) => vec![Arc::clone(&self.visits.peer(service).session)],
            None => servers.sessions_of(forward),
        }
    }

    /// Binds forwards as [`Openings::bind`] does.
    pub(super) async fn bind(
        &self,
        wanted: &[Forward],
        workers: NonZeroUsize,
        servers: &Uplinks,
    ) -> anyhow::Result<Bound<ForwardEntry>> {
        let sessions_of = |forward: &ForwardEntry| self.sessions_of(forward, servers);
        let wanted: Vec<_> = wanted.iter().cloned().map(ForwardEntry).collect();
        self.open.bind(&wanted, workers, sessions_of).await
    }

    /// Opens, closes and updates forwards as [`Openings::follow`] does.
    pub(super) async fn follow(
        &self,
        bound: Bound<ForwardEntry>,
        handles: &[Handle],
        workers: NonZeroUsize,
        servers: &Uplinks,
    ) -> Vec<(Forward, io::Error)> {
        let sessions_of = |forward: &ForwardEntry| self.sessions_of(forward, servers);
        let failed = self.open.follow(bound, handles, workers, sessions_of).await;
        failed.into_iter().map(|(entry, why)| (entry.0, why)).collect()
    }

    /// Opens the forwards whose address has become available, as [`Openings::try_again`] does.
    pub(super) async fn try_again(&self, handles: &[Handle], servers: &Uplinks) {
        let sessions_of = |forward: &ForwardEntry| self.sessions_of(forward, servers);
        self.open.try_again(handles, sessions_of).await;
    }

    /// The forwards that wait for their address, with the reason.
    pub(super) fn waiting(&self) -> Vec<Absent<Forward>> {
        self.open.waiting().into_iter().map(|(entry, why)| (entry.0, why)).collect()
    }

    /// Leads the visitors of all forwards to the servers in their present order.
    pub(super) async fn lead(&self, servers: &Uplinks) {
        for open in self.open.all().await {
            open.entrance.lead_to(&self.sessions_of(&open.entry, servers));
        }
    }

    pub(super) async fn close_all(&self, handles: &[Handle]) {
        self.open.close_all(handles).await;
    }
}

/// A forward of the configuration, as an entrance.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ForwardEntry(Forward);

impl Deref for ForwardEntry {
    type Target = Forward;

    fn deref(&self) -> &Forward {
        &self.0
    }
}

impl Opening for ForwardEntry {
    const WHAT: &'static str = "forward";

    fn listen(&self) -> &Local {
        &self.listen
    }

    fn aim(&self, address: &str) -> Aim {
        let target = self.target.as_ref().map(ToString::to_string);
        let kind = match &self.listen {
            Local::Socks5(_) => Some(ProxyKind::Socks5),
            Local::HttpProxy(_) => Some(ProxyKind::Http),
            Local::Tcp(_) | Local::Udp(_) | Local::Unix { .. } => None,
        };
        let terms = |kind| Arc::new(ProxyTerms { kind, users: self.basic_auth.clone() });
        Aim {
            name: match &target {
                Some(target) => format!("{address} -> {target}"),
                None => address.to_owned(),
            },
            target: match self.private().cloned() {
                Some(PrivateService { client, service }) => Target::Private { client, service },
                None => Target::Forward(target.unwrap_or_default()),
            },
            terms: self.terms.clone(),
            rules: None,
            proxy: kind.map(terms),
        }
    }

    fn gate(&self) -> Arc<Gate> {
        let holder = Holder::new(descriptors::table(), Kind::Own);
        Gate::limited(&self.limits, Some(holder), Some(Arc::clone(limits::of_client())))
    }

    // The programs behind a forward are those of the client itself.
    fn bounds(&self) -> Arc<FlowBounds> {
        Arc::default()
    }

    fn announcers(&self) -> &[Net] {
        &self.announced_by
    }

    fn limit(&self, entrance: &Entrance) {
        entrance.in_force().gate().set(&self.limits);
    }

    fn turns_flows(&self, before: &Self) -> bool {
        self.target != before.target
    }

    fn tell(&self, before: Option<&Self>, address: &str) {
        let does = match before {
            None => "listens",
            Some(before) if before.target != self.target => "leads elsewhere now",
            Some(_) => "has changed",
        };
        if let Some(service) = self.private() {
            let client = &service.client;
            return tracing::info!(
                forward = address, target = %service,
                "forward {address} {does}; its visitors go to the service {} of client {client}",
                service.service
            );
        }
        match self.target.as_ref().map(ToString::to_string) {
            Some(target) => tracing::info!(
                forward = address,
                target,
                "forward {address} {does}; its visitors go to {target} on the server's side"
            ),
            None => tracing::info!(
                forward = address,
                "forward {address} {does}; its programs reach what they name, on the server's side"
            ),
        }
    }
}

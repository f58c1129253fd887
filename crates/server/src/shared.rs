//! The data that all parts of a server share.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::ServerConfig;
use doors::hosts::Hosts;
use net::resolve::{Bounds, Resolver};
use node::descriptors;
use node::names::{Host, Kind};
use ops::events::{Changed, Events};
use proto::LinkConfig;
use proto::greeting::Features;
use termination::Terminator;

use crate::clients::Clients;
use crate::enrolments::{Enrolled, Enrolments};
use crate::hook::{Hook, HookSettings};
#[cfg(feature = "webrtc")]
use crate::offers::Offers;
use crate::private::PrivateServices;
use crate::strays::Strays;
use crate::stun::StunReport;

/// The data that all parts of a server share.
#[derive(Debug)]
pub(crate) struct ServerShared {
    pub(crate) clients: Clients,
    pub(crate) enrolments: Enrolments,
    /// Whether a listener accepts clients without a certificate, and thus clients that have a code.
    pub(crate) admits_codes: AtomicBool,
    pub(crate) hook: Hook,
    /// The settings of new links.
    pub(crate) link: LinkSettings,
    pub(crate) public_bind: std::net::IpAddr,
    /// The names that clients publish.
    pub(crate) hosts: Arc<Hosts>,
    /// The features that are announced to clients.
    pub(crate) features: Features,
    /// Resolves the names to which clients forward.
    pub(crate) names: Resolver,
    /// The private services of clients.
    pub(crate) private: PrivateServices,
    /// The carriers whose links other nodes of the cluster have.
    pub(crate) strays: Strays,
    /// WebRTC connections.
    #[cfg(feature = "webrtc")]
    pub(crate) offers: Offers,
    /// The events of changes.
    pub(crate) events: Events,
    /// The STUN ports, which are announced to each new link.
    pub(crate) stun: StunReport,
}

impl ServerShared {
    /// The data of a server with this configuration, before its workers start. `kept` stores the
    /// clients that are enrolled by a code; `state` is the state directory.
    pub(crate) fn new(
        config: &ServerConfig,
        (link, features): (LinkConfig, Features),
        (kept, terminator, stun): (Option<Arc<dyn Enrolled>>, Option<Arc<Terminator>>, StunReport),
        state: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let events = Events::default();
        if let Some(terminator) = &terminator {
            let events = events.clone();
            terminator.tell_orders(move |host, reason| {
                let (host, reason) = (host.to_owned(), reason.map(str::to_owned));
                events.tell(|| Changed::Certificate { host, reason });
            });
        }
        let hosts = Hosts::new(config.http.domain.as_deref(), terminator);
        let hosts = hosts.with_events(events.clone());
        let shared = Self {
            clients: Clients::new(config)?,
            enrolments: Enrolments::new(kept, config.public_bind),
            admits_codes: AtomicBool::new(admits_codes(config)),
            hook: Hook::new(HookSettings::new(config)?),
            link: LinkSettings::new(link),
            public_bind: config.public_bind,
            hosts: hosts.into(),
            features,
            names: Resolver::new(Bounds::of_clients(descriptors::kept())),
            private: PrivateServices::default(),
            strays: Strays::default(),
            #[cfg(feature = "webrtc")]
            offers: Offers::default(),
            events,
            stun,
        };
        shared.hosts.set_browser(config.http.browser);
        shared.hosts.set_redirects(!config.http.no_redirect);
        shared.hosts.remember_for(config.http.remember.duration());
        shared.hosts.set_public(&config.public_url);
        if let Some(state) = state {
            shared.hosts.holds.load(state);
            shared.hosts.load_names(state, |client, host| shared.may_have(client, host));
        }
        Ok(shared)
    }

    /// Whether a client may have a name. A client that the server does not know may be one of
    /// `auth.http`, which is queried when the client logs in.
    pub(crate) fn may_have(&self, client: &str, host: &Host) -> bool {
        let Some(known) = self.clients.find(client) else { return self.hook.is_asked() };
        let rights = match host.kind {
            Kind::Http | Kind::Https => &known.http,
            Kind::Tls => &known.tls,
        };
        let domain = self.hosts.domain().filter(|_| host.kind != Kind::Tls);
        let is_own = |domain: &String| config::is_own_name(&host.name, domain, client);
        rights.permits(&host.name) || domain.as_ref().is_some_and(|domain| is_own(domain))
    }
}

/// The settings that a new link gets. A reload changes the settings of later links.
#[derive(Debug)]
pub(crate) struct LinkSettings(Mutex<LinkConfig>);

impl LinkSettings {
    pub(crate) const fn new(config: LinkConfig) -> Self {
        Self(Mutex::new(config))
    }

    pub(crate) fn get(&self) -> LinkConfig {
        *self.lock()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LinkConfig> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a listener accepts clients without a certificate.
pub(crate) fn admits_codes(config: &ServerConfig) -> bool {
    config.listen.iter().any(|at| config.is_exempt(at))
}

/// Removes the clients, because their tokens need not stay in memory.
pub(crate) fn without_clients(config: ServerConfig) -> ServerConfig {
    ServerConfig { clients: Vec::new(), ..config }
}

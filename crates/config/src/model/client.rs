//! The model of a client, the side behind NAT.

use std::num::NonZeroUsize;

use proto::control::{MESSAGE_MAX, ServiceTerms};
use proto::{Limits, Visitors};

use super::change::{Changed, changes};
use super::common::Common;
use super::credentials::Token;
use super::forward::Forward;
use super::p2p::P2p;
use super::path::{Path, Trust};
use super::private::{Private, Visit};
use super::public::Public;
use super::service::{Service, VisitorLists};
use crate::{BadValue, Lists, Net, Span};

/// The largest number of networks in the lists of visitors of all services. Each network has at
/// most 18 bytes (version, prefix, IPv6 address), so the networks fill at most half of the message
/// that registers the services.
const NETWORKS_OF_ALL: usize = MESSAGE_MAX / 2 / 18;

/// The largest size of the host names and the HTTP options of all services, in bytes. They fill at
/// most a quarter of the message that registers the services.
const HTTP_OF_ALL: usize = MESSAGE_MAX / 4;

/// A checked client.yaml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Paths to the server, preferred paths first; at least one.
    pub servers: Vec<Path>,
    /// The name by which the server knows this client.
    pub name: String,
    /// The token that proves the name. `None`: the certificates of the paths prove the name.
    pub token: Option<Token>,
    /// Whether the client may send the data that verify its token to a server that does not know
    /// the client.
    pub introduce: bool,
    /// The number of links; `None`: one per worker, at least 2.
    pub connections: Option<NonZeroUsize>,
    /// The prefix of each service's name.
    pub id_prefix: Option<String>,
    /// The visitors that may use a service without lists of its own.
    pub visitors: VisitorLists,
    /// Published services. Ranges are expanded, and names are unique.
    pub services: Vec<Service>,
    /// Local listeners whose targets the server dials.
    pub forwards: Vec<Forward>,
    /// The proofs for private services of other clients, besides the tokens of forwards.
    pub visits: Vec<Visit>,
    /// How direct paths to other clients are found.
    pub p2p: P2p,
    /// The entries that later entries shadow: those of the file behind those of flags, and both
    /// behind those of commands.
    pub shadowed: Lists,
    /// Shortest pause between two attempts to connect.
    pub retry_min: Span,
    /// Longest pause between two attempts to connect.
    pub retry_max: Span,
    /// Load balancers in front of the forwards that set `accept_proxy`.
    pub trusted_proxies: Vec<Net>,
    /// The limits of the streams of all services and forwards together.
    pub limits: Limits,
    /// Keys of both roles.
    pub common: Common,
}

impl ClientConfig {
    /// The keys whose values differ in `other`. `servers` covers all settings of a path.
    #[must_use]
    pub fn differs(&self, other: &Self) -> Vec<Changed> {
        let Self {
            servers,
            name,
            token,
            introduce,
            connections,
            // Its changes appear in the names of the services.
            id_prefix: _,
            visitors,
            services,
            forwards,
            visits,
            p2p,
            // Visitors do not see it.
            shadowed: _,
            retry_min,
            retry_max,
            trusted_proxies,
            limits,
            common,
        } = self;
        // The path of the token file is irrelevant; only the token counts.
        let secret = |token: &Option<Token>| token.as_ref().map(|token| token.secret.clone());
        let retry = (*retry_min, *retry_max) != (other.retry_min, other.retry_max);
        let own = [
            (*servers != other.servers, Changed::reconnect("servers")),
            (*name != other.name, Changed::restart("name")),
            (secret(token) != secret(&other.token), Changed::reconnect("token")),
            (*introduce != other.introduce, Changed::reconnect("introduce")),
            (*connections != other.connections, Changed::reconnect("connections")),
            (visitors.allow_from != other.visitors.allow_from, Changed::live("allow_from")),
            (visitors.deny_from != other.visitors.deny_from, Changed::live("deny_from")),
            (*services != other.services, Changed::live("services")),
            (*forwards != other.forwards, Changed::live("forwards")),
            (*visits != other.visits, Changed::live("visits")),
            (*p2p != other.p2p, Changed::live("p2p")),
            (retry, Changed::reconnect("retry")),
            (*trusted_proxies != other.trusted_proxies, Changed::live("trusted_proxies")),
            (*limits != other.limits, Changed::live("limits")),
        ];
        changes(own).chain(common.differs(&other.common)).collect()
    }

    /// The configuration in force after a reload of a process that runs with `running`. Keys that
    /// need a restart keep their running values.
    #[must_use]
    pub fn reloaded(mut self, running: &Self) -> Self {
        self.name.clone_from(&running.name);
        self.common.keep(&running.common);
        self
    }

    /// The terms for the visitors of a service of this client.
    #[must_use]
    pub fn terms_of(&self, service: &Service) -> ServiceTerms {
        let private = service.private.as_ref().map(Private::patterns);
        // The client's lists of networks apply only to visitors with an address.
        let visitors =
            if private.is_some() { Visitors::default() } else { self.visitors_of(service) };
        ServiceTerms { visitors, private, http: service.http_terms(), ..service.terms.clone() }
    }

    /// The URL that a visitor uses for a public address of a service: the address, and for a name
    /// also the path of the requests.
    #[must_use]
    pub fn url(&self, service: &Service, address: &str) -> String {
        let is_http = ["http://", "https://"].iter().any(|scheme| address.starts_with(scheme));
        let path = self.terms_of(service).http.path.filter(|_| is_http).unwrap_or_default();
        format!("{address}{path}")
    }

    /// Which visitors may use a service of this client.
    pub(crate) fn visitors_of(&self, service: &Service) -> Visitors {
        let (own, default) = (&service.visitors, &self.visitors);
        let allow_from = own.allow_from.as_ref().or(default.allow_from.as_ref());
        let deny_from = own.deny_from.as_ref().or(default.deny_from.as_ref());
        Visitors {
            allow_from: allow_from.cloned(),
            deny_from: deny_from.cloned().unwrap_or_default(),
        }
    }

    /// The pins that this client trusts, each once.
    #[must_use]
    pub fn pins(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for path in &self.servers {
            if let Trust::Pins(pins) = &path.trust {
                all.extend(
                    pins.iter().filter(|pin| !all.contains(pin)).cloned().collect::<Vec<_>>(),
                );
            }
        }
        all
    }

    /// A summary of the configuration, line by line.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .servers
            .iter()
            .map(|p| {
                let proxy = p.proxy.as_ref().map(|proxy| format!(" through {proxy}"));
                let dscp = (!p.dscp.is_default()).then(|| format!(", dscp {}", p.dscp));
                let (proxy, dscp) = (proxy.unwrap_or_default(), dscp.unwrap_or_default());
                format!("client {} to {}{proxy}{dscp}", self.name, p.endpoint)
            })
            .collect();
        lines.extend(self.pins().iter().map(|pin| format!("trusts a server with the pin {pin}")));
        for service in &self.services {
            lines.push(format!(
                "service {}: {} -> {}{}{}",
                service.name,
                service.places(),
                service.aims(),
                service.extras(&self.terms_of(service).visitors),
                self.origin(service.kept, &service.name)
            ));
        }
        for forward in &self.forwards {
            let auth = if forward.basic_auth.is_empty() { "" } else { ", basic_auth" };
            let origin = self.origin(forward.kept, &forward.listen.to_string());
            let how = match forward.private() {
                Some(service) => format!("a private service of client {}", service.client),
                None => "dialled by the server".to_owned(),
            };
            lines.push(format!("forward {forward} ({how}){auth}{origin}"));
        }
        lines
    }

    /// The origin of an entry, and the entry that it shadows.
    fn origin(&self, kept: bool, name: &str) -> String {
        let mut notes = Vec::new();
        if kept {
            notes.push("added at run time".to_owned());
        }
        let behind = self.shadows().into_iter().filter(|shadow| shadow.by == name);
        notes.extend(behind.map(|shadow| format!("in the place of {}", shadow.of)));
        if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) }
    }

    /// The exits that any visitor may use.
    pub(crate) fn open_exits(&self) -> impl Iterator<Item = &Service> {
        self.services.iter().filter(|service| service.is_open_exit(&self.visitors_of(service)))
    }

    /// The services whose target is the admin API of this daemon.
    pub(crate) fn admin_services(&self) -> impl Iterator<Item = &Service> {
        let admin = self.common.admin.iter();
        admin.flat_map(|admin| {
            let is_admin = |service: &&Service| service.targets().any(|(to, _)| admin.is_at(to));
            self.services.iter().filter(is_admin)
        })
    }

    /// Replaces `{name}` by the client's own label.
    pub(crate) fn expand(&mut self) -> Result<(), BadValue> {
        let services = std::mem::take(&mut self.services);
        let mut lists = Lists { services, forwards: Vec::new() };
        let outcome = lists.expand(&self.full_name());
        self.services = lists.services;
        // Shadowed services were not compared with each other, and need no such check.
        drop(self.shadowed.expand(&self.full_name()));
        outcome
    }

    /// The name whose label replaces `{name}` in host names: `name` with the prefix `id_prefix`.
    pub(crate) fn full_name(&self) -> String {
        match &self.id_prefix {
            Some(prefix) => format!("{prefix}-{}", self.name),
            None => self.name.clone(),
        }
    }

    /// Checks the number of networks in the lists of visitors, and the size of names and HTTP
    /// options.
    pub(crate) fn check_sizes(&self) -> Result<(), BadValue> {
        let of_http = |service: &Service| {
            let names = service.public.iter().map(|public| match public {
                Public::Name { host, .. } => host.len(),
                Public::Tcp { .. } | Public::Udp { .. } => 0,
            });
            names.sum::<usize>() + service.http_terms().encoded_len()
        };
        if self.services.iter().map(of_http).sum::<usize>() > HTTP_OF_ALL {
            let what = "bytes in the host names and options of HTTP of all services";
            return Err(BadValue::new(format!("more than {HTTP_OF_ALL} {what}"))
                .hint("shorten the lists of `basic_auth`, `headers` and `response_headers`"));
        }
        let count = |service| {
            let Visitors { allow_from, deny_from } = self.visitors_of(service);
            allow_from.map_or(0, |list| list.len()) + deny_from.len()
        };
        if self.services.iter().map(count).sum::<usize>() <= NETWORKS_OF_ALL {
            return Ok(());
        }
        let lists = "networks in `allow_from` and `deny_from` of all services";
        let bad = BadValue::new(format!("more than {NETWORKS_OF_ALL} {lists}"));
        Err(bad.hint("each port of a range has the lists of its service"))
    }
}

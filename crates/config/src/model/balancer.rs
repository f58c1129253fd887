//! The model of a proxy: a process that distributes connections and datagrams over targets, without
//! a tunnel.

use proto::Visitors;
use proto::control::ServiceTerms;

use super::change::changes;
use super::{Changed, Common, KeyPair, Service};
use crate::{Local, Net};

/// A checked proxy.yaml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyConfig {
    /// The listeners with their targets; at least one listener. Names and addresses are unique.
    pub proxies: Vec<Balancer>,
    /// Load balancers in front of the entries that have `accept_proxy`.
    pub trusted_proxies: Vec<Net>,
    /// Keys of all roles.
    pub common: Common,
}

/// A listener, and the targets over which its visitors are distributed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balancer {
    /// The address: [`Local::Tcp`], [`Local::Udp`] or [`Local::Unix`].
    pub listen: Local,
    /// The certificate, if TLS of the visitors ends here. `None`: the visitors' bytes are passed on
    /// unchanged.
    pub tls: Option<KeyPair>,
    /// The load balancers whose connections and datagrams begin with a header of the PROXY
    /// protocol: [`ProxyConfig::trusted_proxies`] where the entry has `accept_proxy`, else empty.
    pub announced_by: Vec<Net>,
    /// Name, targets and terms, in the form of a service. Its public address is the listener, and
    /// the targets are dialled over the listener's protocol. A target over TLS is a
    /// [`Target::Tls`](crate::Target::Tls).
    pub service: Service,
}

impl Balancer {
    /// The terms for its visitors.
    #[must_use]
    pub fn terms(&self) -> ServiceTerms {
        let lists = &self.service.visitors;
        let visitors = Visitors {
            allow_from: lists.allow_from.clone(),
            deny_from: lists.deny_from.clone().unwrap_or_default(),
        };
        ServiceTerms { visitors, ..self.service.terms.clone() }
    }
}

impl ProxyConfig {
    /// The keys whose values differ in `other`.
    #[must_use]
    pub fn differs(&self, other: &Self) -> Vec<Changed> {
        let Self { proxies, trusted_proxies, common } = self;
        let own = [
            (*proxies != other.proxies, Changed::live("proxies")),
            (*trusted_proxies != other.trusted_proxies, Changed::live("trusted_proxies")),
        ];
        changes(own).chain(common.differs(&other.common)).collect()
    }

    /// The configuration in force after a reload of a process that runs with `running`. Keys that
    /// need a restart keep their running values.
    #[must_use]
    pub fn reloaded(mut self, running: &Self) -> Self {
        self.common.keep(&running.common);
        self
    }

    /// A summary of the configuration for people, line by line.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let line = |proxy: &Balancer| {
            let Balancer { listen, tls, announced_by, service } = proxy;
            let tls = if tls.is_some() { ", TLS ends here" } else { "" };
            let header = if announced_by.is_empty() { "" } else { ", behind a PROXY header" };
            let most = service
                .stream_limits
                .all
                .streams
                .map(|most| format!(", at most {most} connections"));
            format!(
                "proxy {}: {listen} -> {}{}{tls}{header}{}",
                service.name,
                service.aims(),
                service.extras(&proxy.terms().visitors),
                most.unwrap_or_default()
            )
        };
        self.proxies.iter().map(line).collect()
    }
}

//! The model of a proxy: a process that distributes connections and datagrams over targets, without
//! a tunnel.

use proto::control::ServiceTerms;
use proto::{Balance, Visitors};

use crate::key_table::KeyTable;
use crate::model::change::Changed;
use crate::model::check::Check;
use crate::model::common::Common;
use crate::model::credentials::KeyPair;
use crate::model::dial_options::DialOptions;
use crate::model::limits::Limited;
use crate::model::service::{Service, TargetTls};
use crate::model::spread::Weighted;
use crate::model::times::Times;
use crate::{Local, Net};

/// A checked proxy.yaml.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows, compare)]
pub struct ProxyConfig {
    /// The listeners of the proxy with their targets.
    ///
    /// At least one listener. Names and addresses are unique.
    #[key("list", list, of = "of the listener", required, live, at = Balancer)]
    pub proxies: Vec<Balancer>,
    /// The load balancers whose PROXY protocol headers the listeners accept.
    #[key("address or network, one or list", none, live)]
    pub trusted_proxies: Vec<Net>,
    /// Keys of all roles.
    #[key(flat, compare)]
    pub common: Common,
}

/// A listener, and the targets over which its visitors are distributed.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows, later("sticky"))]
#[row(name: "name", absent = "`tcp-PORT` (or `udp-PORT`, `unix-FILE`)",
    text = "The unique name of the listener.")]
#[row(mode: "octal digits", default = "600", note = "of the file of a Unix socket",
    text = "The permissions of the socket file of the listener.")]
#[row(target: "`tcp://host:port` (short: `host:port`, `3000`), `tls://host:port`, `udp://host:port` \
    or `unix:///path`; a list of targets", list, keys = Weighted, required, holds = Url,
    text = "The target of the listener, or a list of targets to balance visitors over.")]
#[row(target_tls: map, keys = TargetTls, none,
    text = "The verification of certificates of tls:// targets of the listener.")]
#[row(balance: is = Balance::WORDS, default = "round_robin",
    text = "The rule that selects a target of the listener for a visitor.")]
#[row(health: map, keys = Check, none = "visitors find out",
    text = "The health check of the targets of the listener.")]
#[row(limits: map, keys = Limited, text = "The limits of connections and flows of the listener.")]
#[row(timeouts: map, keys = Times, text = "The timeouts of connections and flows of the listener.")]
#[row(tcp_keepalive: "duration, 1s-9h, or 0", default = "2m",
    text = "The idle time before TCP keepalive probes to visitors and targets of the listener.")]
#[row(broadcast: "`true`, `false`", default = "false",
    text = "Permits broadcast addresses as UDP targets of the listener.")]
#[row(proxy_protocol: "`v1`, `v2`", none = "no header",
    text = "The version of the PROXY protocol header that is sent to targets of the listener.")]
#[row(accept_proxy: "`true`, `false`", default = "false",
    text = "Reads the PROXY protocol header that trusted_proxies send to the listener.")]
#[row(allow_from: "addresses, networks and `@FILE`, one or list", none = "everybody",
    text = "The addresses from which visitors may use the listener.")]
#[row(deny_from: "addresses, networks and `@FILE`, one or list", none,
    text = "The addresses from which visitors may not use the listener.")]
pub struct Balancer {
    /// The address at which the listener accepts visitors.
    ///
    /// [`Local::Tcp`], [`Local::Udp`] or [`Local::Unix`].
    #[key("`tcp://[address]:port` (short: `5201`, at all addresses), `udp://[address]:port` or \
        `unix:///path`", required, holds = Url)]
    pub listen: Local,
    /// The certificate with which TLS of visitors ends at the listener.
    ///
    /// `None`: the visitors' bytes are passed on unchanged.
    #[key(map, none = "the bytes of the visitors go on")]
    pub tls: Option<KeyPair>,
    /// The load balancers whose connections and datagrams begin with a header of the PROXY
    /// protocol: [`ProxyConfig::trusted_proxies`] where the entry has `accept_proxy`, else empty.
    pub announced_by: Vec<Net>,
    /// Name, targets and terms, in the form of a service. Its public address is the listener, and
    /// the targets are dialled over the listener's protocol. A target over TLS is a
    /// [`Target::Tls`](crate::Target::Tls).
    #[key(flat, keys = DialOptions)]
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
        let mut found = Vec::new();
        self.compare(other, &mut found);
        found
    }

    /// The configuration in force after a reload of a process that runs with `running`. Keys that
    /// need a restart keep their running values.
    #[must_use]
    pub fn reloaded(mut self, running: &Self) -> Self {
        self.keep_running(running);
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

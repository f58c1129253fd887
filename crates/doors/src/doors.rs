//! The state that all doors of a server share: the settings that a reload replaces, the names, and
//! which reverse proxies are trusted.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use config::{Net, ServerConfig};
use files::secret::Secret;
use net::forwarded::{self, ForwardedClient};
use node::{descriptors, names};
use termination::{Prepared, Terminator};
use web::{HeaderMap, HeaderValue, Sender, StickyKey};

use super::behind::Behind;
use super::hosts::Hosts;
use super::{answer, certificates};

/// The timeout for the first bytes of a visitor, which determine its destination. nginx allows 60
/// s, Apache 20 s; a browser sends its request header at once.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The purpose of the key of cookies that is derived from the secret of a cluster.
const COOKIES: &str = "session affinity cookies";

/// The state that all doors of a server share.
#[derive(Debug)]
pub struct Doors {
    pub(super) hosts: Arc<Hosts>,
    pub(super) terms: ArcSwap<Terms>,
    /// The key of the session affinity cookies.
    pub(super) sticky: StickyKey,
    /// Known once the doors are open.
    pub(super) behind: OnceLock<Weak<dyn Behind>>,
}

/// The settings of doors that a reload replaces.
#[derive(Debug)]
pub(super) struct Terms {
    /// The settings of the HTTP proxy, with the pages and the field that names the host.
    pub(super) web: Arc<web::Settings>,
    pub(super) route_header: Option<Arc<str>>,
    /// Reverse proxies, whose connections may carry requests of many visitors.
    pub(super) trusted: Vec<Net>,
    /// Visitors over HTTP are redirected to `https://` names.
    pub(super) redirects: bool,
    /// The path of WebRTC offers at hosts that no service has.
    pub(super) offers: Option<Arc<str>>,
}

impl Doors {
    pub fn new(
        hosts: Arc<Hosts>,
        config: &ServerConfig,
        state: Option<&Path>,
    ) -> anyhow::Result<Arc<Self>> {
        // A cookie holds at all nodes of a cluster.
        let common = certificates::common_secret(config).and_then(|secret| secret.key(COOKIES));
        let sticky = match common {
            Some(key) => key,
            None => sticky_key(state)?,
        };
        let terms = Terms::read(config)?;
        descriptors::trust(&terms.trusted);
        let terms = ArcSwap::from_pointee(terms);
        Ok(Arc::new(Self { hosts, terms, sticky, behind: OnceLock::new() }))
    }

    /// Prepares the settings of a new configuration. Calling the result applies them.
    pub fn renewal(
        self: &Arc<Self>,
        config: &ServerConfig,
        state: Option<&Path>,
    ) -> anyhow::Result<impl FnOnce() + use<>> {
        let (doors, terms) = (Arc::clone(self), Terms::read(config)?);
        let (domain, browser) = (config.http.domain.clone(), config.http.browser);
        let redirects = !config.http.no_redirect;
        let settings = certificates::settings(config, state);
        let terminator = self.terminator().map(|terminator| terminator.reload(&settings));
        let prepared = terminator.transpose()?;
        Ok(move || {
            descriptors::trust(&terms.trusted);
            doors.terms.store(Arc::new(terms));
            doors.hosts.set_domain(domain.as_deref());
            doors.hosts.set_browser(browser);
            doors.hosts.set_redirects(redirects);
            doors.names().note_change();
            prepared.into_iter().for_each(Prepared::apply);
        })
    }

    pub(super) fn names(&self) -> &names::Names {
        &self.hosts.names
    }

    /// Terminates TLS for `https://` names; `None` without a door for TLS.
    pub(super) fn terminator(&self) -> Option<&Arc<Terminator>> {
        self.hosts.terminator()
    }

    /// The visitor that sent a request with these fields over a connection of `peer`: `peer`
    /// itself, or the visitor that `peer` reports if it is a trusted reverse proxy. Lists, the
    /// limit of guesses, log, status and the PROXY protocol use this address.
    pub(super) fn sender(&self, peer: Option<SocketAddr>, fields: &HeaderMap) -> Sender {
        self.terms.load().sender(peer, fields)
    }

    pub(super) fn trusts(&self, peer: Option<SocketAddr>) -> bool {
        peer.is_some_and(|peer| self.terms.load().trust(peer.ip()))
    }
}

impl Terms {
    pub(super) fn read(config: &ServerConfig) -> anyhow::Result<Self> {
        let route_header = config.http.route_header.as_deref();
        Ok(Self {
            web: Arc::new(answer::settings(config)?),
            route_header: route_header.map(Arc::from),
            trusted: config.trusted_proxies.clone(),
            redirects: !config.http.no_redirect,
            offers: offers(config),
        })
    }

    pub(super) fn trust(&self, ip: IpAddr) -> bool {
        // An IPv4 proxy has a mapped address at a dual-stack door.
        let ip = ip.to_canonical();
        self.trusted.iter().any(|net| net.contains(ip))
    }

    pub(super) fn sender(&self, peer: Option<SocketAddr>, fields: &HeaderMap) -> Sender {
        let Some(peer) = peer else { return Sender::Nameless };
        if !self.trust(peer.ip()) {
            return Sender::Known(peer);
        }
        let values = |name| fields.get_all(name).iter().map(HeaderValue::as_bytes);
        match forwarded::client(values, |ip| self.trust(ip)) {
            ForwardedClient::Client(client) => Sender::Known(client),
            ForwardedClient::Ours(farthest) => Sender::Proxy(farthest.unwrap_or(peer)),
            ForwardedClient::Hidden => Sender::Hidden,
            ForwardedClient::Disputed => Sender::Disputed,
        }
    }
}

/// The key of the session affinity cookies: the same in the next process.
fn sticky_key(state: Option<&Path>) -> anyhow::Result<StickyKey> {
    const KEPT: Secret = Secret {
        file: "sticky.keys",
        title: "tunnel sticky keys 1",
        meaning: "keys for cookies that this version can read; a newer version may have made them. \
                  Without the file new ones are made, and visitors may get another target",
    };
    let known = state.map(|state| KEPT.of(state)).transpose();
    match known {
        Ok(Some(key)) => Ok(key),
        Ok(None) => Ok(Secret::random()?),
        Err(error) => {
            tracing::warn!("{error}; cookies of `sticky` hold until this process ends");
            Ok(Secret::random()?)
        }
    }
}

/// The path of WebRTC offers. A server that requires a certificate of every client accepts none,
/// because a door requests no certificate.
fn offers(config: &ServerConfig) -> Option<Arc<str>> {
    let has_exempt = config.listen.iter().any(|at| config.is_exempt(at));
    let webrtc = config.webrtc.as_ref().filter(|_| cfg!(feature = "webrtc") && has_exempt)?;
    Some(Arc::from(webrtc.path.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(peer: &str, list: &[(&'static str, &str)]) -> Sender {
        let trusted = vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()];
        let (web, route_header, redirects) = (Arc::default(), None, true);
        let terms = Terms { web, route_header, trusted, redirects, offers: None };
        let mut fields = HeaderMap::new();
        for (name, value) in list {
            fields.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        terms.sender(Some(peer.parse().unwrap()), &fields)
    }

    #[test]
    fn only_a_trusted_proxy_names_another_visitor() {
        let known = |address: &str| Sender::Known(address.parse().unwrap());
        let claims = [
            ("x-forwarded-for", "203.0.113.9"),
            ("x-real-ip", "203.0.113.9"),
            ("forwarded", "for=203.0.113.9"),
        ];
        assert_eq!(sender("192.0.2.7:1000", &claims), known("192.0.2.7:1000"));
        for proxy in ["10.1.2.3:80", "[::1]:80", "[::ffff:10.1.2.3]:80"] {
            assert_eq!(sender(proxy, &claims), known("203.0.113.9:0"), "{proxy}");
            for claim in claims {
                assert_eq!(sender(proxy, &[claim]), known("203.0.113.9:0"), "{proxy} {claim:?}");
            }
        }
        let list = [("x-forwarded-for", "198.51.100.1, 203.0.113.9, 10.0.0.7")];
        assert_eq!(sender("10.1.2.3:80", &list), known("203.0.113.9:0"));
    }

    #[test]
    fn a_proxy_that_names_nobody_else_is_the_visitor_itself() {
        let proxy = |address: &str| Sender::Proxy(address.parse().unwrap());
        assert_eq!(sender("10.1.2.3:80", &[]), proxy("10.1.2.3:80"));
        let inner = [("x-forwarded-for", "10.0.0.9, 10.0.0.7")];
        assert_eq!(sender("10.1.2.3:80", &inner), proxy("10.0.0.9:0"));
    }

    #[test]
    fn what_is_no_address_and_what_is_contradicted_is_nobodys_address() {
        for value in ["unknown", "203.0.113.9, _x", "203.0.113.9.1", "", "\u{fc}"] {
            let found = sender("10.1.2.3:80", &[("x-forwarded-for", value)]);
            assert_eq!(found, Sender::Hidden, "{value}");
        }
        let two = [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=203.0.113.10")];
        assert_eq!(sender("10.1.2.3:80", &two), Sender::Disputed);
        for sender in [Sender::Hidden, Sender::Disputed, Sender::Nameless] {
            assert_eq!(sender.address(), None);
        }
    }
}

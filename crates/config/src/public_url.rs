//! `public_url`: how others reach a server that is behind a reverse proxy or a NAT. The server
//! cannot see these addresses, so its file names them, and the server sends them to its clients.

use std::fmt;
use std::str::FromStr;

use crate::endpoint::{no_zone, port, split};
use crate::{BadValue, Endpoint, Host, HostRights, Scheme};

/// The public addresses of a server; empty without `public_url`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicUrls {
    /// The URLs that clients dial, the preferred URL first.
    pub clients: Vec<Endpoint>,
    /// Where visitors of names arrive, the preferred entry first.
    pub names: Vec<PublicNames>,
}

/// Where visitors reach the names of these hosts: `https://*.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicNames {
    /// Visitors come over TLS, which ends at a reverse proxy or at this server.
    pub tls: bool,
    /// One right.
    hosts: HostRights,
    port: u16,
}

/// An entry of `public_url`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PublicUrl {
    Client(Endpoint),
    Names(PublicNames),
}

impl PublicUrls {
    /// A public address of a service as other machines reach it. `address` is the address as this
    /// server has it; other addresses are returned as they are.
    ///
    /// A port at all addresses of the server gets the host of the first URL for clients. A name
    /// gets scheme and port of the first entry for its host. An `https://` name is not reached over
    /// `http://`, and TLS of a `tls://` name ends at its target, so no proxy changes its scheme.
    #[must_use]
    pub fn public_form(&self, address: &str) -> String {
        self.mapped(address).unwrap_or_else(|| address.to_owned())
    }

    /// A description for people, line by line.
    pub(crate) fn summary(&self) -> impl Iterator<Item = String> {
        let clients = self.clients.iter().map(|url| format!("clients reach this server at {url}"));
        let names = self.names.iter();
        clients.chain(names.map(|at| format!("visitors reach names at {at}")))
    }

    fn mapped(&self, address: &str) -> Option<String> {
        let (scheme, rest) = address.split_once("://")?;
        match scheme {
            "tcp" | "udp" => {
                let (host, port) = rest.rsplit_once(':')?;
                let is_everywhere = matches!(host, "" | "0.0.0.0" | "[::]");
                let public = &self.clients.first().filter(|_| is_everywhere)?.host;
                Some(format!("{scheme}://{public}:{port}"))
            }
            "http" | "https" => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                let host = authority.split(':').next().unwrap_or(authority);
                let serves =
                    |at: &&PublicNames| (at.tls || scheme == "http") && at.hosts.permits(host);
                let at = self.names.iter().find(serves)?;
                Some(format!("{}://{host}{}{path}", at.scheme(), at.port_text()))
            }
            _ => None,
        }
    }
}

impl PublicNames {
    const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    const fn usual_port(tls: bool) -> u16 {
        if tls { 443 } else { 80 }
    }

    /// The port after a host; empty for the default port of the scheme.
    fn port_text(&self) -> String {
        match self.port {
            port if port == Self::usual_port(self.tls) => String::new(),
            port => format!(":{port}"),
        }
    }
}

impl fmt::Display for PublicNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.hosts.0.iter().map(ToString::to_string).collect::<String>();
        write!(f, "{}://{hosts}{}", self.scheme(), self.port_text())
    }
}

impl FromStr for PublicUrl {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let hint = "wss://tunnel.example.com/tunnel for clients, https://*.example.com for names";
        let bad = |what: &str| BadValue::new(format!("`{text}` {what}"));
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(bad("has no scheme").hint(hint));
        };
        if matches!(scheme, "http" | "https") {
            return Self::names(text, scheme == "https", rest);
        }
        if scheme == Scheme::MUX.name {
            return Err(bad("is for `listen`").hint("clients dial tls:// or wss://"));
        }
        if Scheme::named(scheme).is_none() {
            return Err(bad("has a scheme of neither clients nor names").hint(hint));
        }
        let url: Endpoint = text.parse()?;
        if matches!(&url.host, Host::Ip(ip) if ip.is_unspecified()) || url.port == 0 {
            return Err(bad("is no address that a client can dial").hint(hint));
        }
        if let Host::Scoped(_) = &url.host {
            return Err(no_zone(text, "an interface of this machine means nothing to others"));
        }
        if url.path.as_ref().is_some_and(|path| path.contains('?')) {
            return Err(bad("has a query").hint("the URL is told to everybody who enrols"));
        }
        Ok(Self::Client(url))
    }
}

impl PublicUrl {
    fn names(text: &str, tls: bool, rest: &str) -> Result<Self, BadValue> {
        if rest.contains(['/', '?', '#']) {
            let bad = BadValue::new(format!("`{text}` has a path"));
            return Err(bad.hint("services have paths; here are hosts: https://*.example.com"));
        }
        let (host, given) = split(rest)?;
        let hosts = match host.parse() {
            Ok(right) => HostRights(vec![right]),
            Err(_) => {
                let bad = BadValue::new(format!("`{text}` has no host name"));
                return Err(bad.hint("https://app.example.com, https://*.example.com, https://*"));
            }
        };
        let port = given.map_or_else(|| Ok(PublicNames::usual_port(tls)), port)?;
        if port == 0 {
            return Err(BadValue::new(format!("`{text}`: visitors cannot come to port 0")));
        }
        Ok(Self::Names(PublicNames { tls, hosts, port }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(texts: &[&str]) -> PublicUrls {
        let mut urls = PublicUrls::default();
        for text in texts {
            match text.parse().unwrap() {
                PublicUrl::Client(url) => urls.clients.push(url),
                PublicUrl::Names(names) => urls.names.push(names),
            }
        }
        urls
    }

    #[test]
    fn ports_get_the_host_and_names_the_scheme_and_port_that_others_reach() {
        let of = urls(&["wss://T.example.com/tunnel", "http://plain.example", "https://*:8443"]);
        for (own, public) in [
            ("tcp://:10022", "tcp://t.example.com:10022"),
            ("udp://0.0.0.0:53", "udp://t.example.com:53"),
            ("tcp://[::]:22", "tcp://t.example.com:22"),
            ("tcp://192.0.2.5:22", "tcp://192.0.2.5:22"),
            ("http://a.example", "https://a.example:8443"),
            ("http://a.example:8080/x/y:1", "https://a.example:8443/x/y:1"),
            ("http://*.a.example", "https://*.a.example:8443"),
            ("http://plain.example:8080", "http://plain.example"),
            ("https://plain.example", "https://plain.example:8443"),
            ("tls://a.example:444", "tls://a.example:444"),
            ("file", "file"),
        ] {
            assert_eq!(of.public_form(own), public);
            assert_eq!(PublicUrls::default().public_form(own), own);
        }
        let six = urls(&["tls://[2001:db8::1]", "http://*"]);
        assert_eq!(six.public_form("tcp://:1"), "tcp://[2001:db8::1]:1");
        assert_eq!(six.public_form("https://a.example:8443"), "https://a.example:8443");
        assert_eq!(six.public_form("http://a.example:8080"), "http://a.example");
        let under = urls(&["https://*.b.example"]);
        assert_eq!(under.public_form("http://b.example"), "http://b.example");
        assert_eq!(under.public_form("http://*.b.example"), "https://*.b.example");
        assert_eq!(under.public_form("http://*"), "http://*");
        assert_eq!(under.public_form("tcp://:1"), "tcp://:1");
    }
}

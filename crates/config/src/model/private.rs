//! Private services: which clients may visit a service of this client, and how this client visits
//! the services of others.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use proto::NamePattern;
use proto::greeting::Name;

use super::{ClientConfig, Forward, KeyPair, Token};
use crate::{BadValue, Target};

/// A service of another client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrivateService {
    /// The client that provides the service.
    pub client: Name,
    /// The name of the service at that client.
    pub service: Name,
}

impl PrivateService {
    /// The name by which programs address the service at a proxy, without `.service.tunnel`. Names
    /// of clients and services may contain dots and letters of both cases, which DNS does not
    /// distinguish, so two services may have the same such name.
    #[must_use]
    pub fn asked_name(&self) -> String {
        format!("{}.{}", self.service, self.client).to_ascii_lowercase()
    }
}

impl fmt::Display for PrivateService {
    /// `home/ssh`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.client, self.service)
    }
}

impl FromStr for PrivateService {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let name = |text: &str| Name::new(text).ok();
        let parts = text.split_once('/').map(|(client, service)| (name(client), name(service)));
        match parts {
            Some((Some(client), Some(service))) => Ok(Self { client, service }),
            Some(_) | None => {
                Err(BadValue::new(format!("`{text}` is no service of another client"))
                    .hint("the name of the client and that of its service: home/ssh"))
            }
        }
    }
}

/// A right of `allow.visit`: `home/ssh`, `home/*`, `*/web`, `*/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisitRight {
    client: NamePattern,
    service: NamePattern,
}

impl VisitRight {
    /// Whether the right covers this service.
    #[must_use]
    pub fn permits(&self, client: &str, service: &str) -> bool {
        self.client.has(client) && self.service.has(service)
    }
}

impl FromStr for VisitRight {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let pattern = |text: &str| NamePattern::new(text).ok();
        let parts = text.split_once('/');
        match parts.map(|(client, service)| (pattern(client), pattern(service))) {
            Some((Some(client), Some(service))) => Ok(Self { client, service }),
            Some(_) | None => Err(BadValue::new(format!("`{text}` is no right to visit"))
                .hint("CLIENT/SERVICE, each with * at its beginning or end: home/ssh, home/*")),
        }
    }
}

impl fmt::Display for VisitRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.client, self.service)
    }
}

/// The private services of other clients that a client may visit; empty permits none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VisitRights(pub Vec<VisitRight>);

impl VisitRights {
    /// Whether a visit of this service is permitted.
    #[must_use]
    pub fn permit(&self, client: &str, service: &str) -> bool {
        self.0.iter().any(|right| right.permits(client, service))
    }
}

/// The visitors of a private service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Private {
    /// The clients that may visit.
    pub visitors: Vec<Visitor>,
    /// Whether browsers may visit, although the server could read their visits.
    pub browser: bool,
    /// The certificates that visitors without a token present; `None`: such visitors are refused.
    pub tls: Option<PeerTls>,
}

/// Certificates of one authority instead of a token: each of the two clients presents one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerTls {
    /// The PEM file of the authority that issued the certificate of the other client.
    pub ca: PathBuf,
    /// The certificate of this client; `None`: the certificate of its log-in at the server.
    pub identity: Option<KeyPair>,
}

/// The proof that a visitor presents to the client of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The token that both clients know.
    Token(Token),
    /// The certificate of an authority that both clients trust.
    Certificate(PeerTls),
}

/// The proof that a private service demands of a visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand<'a> {
    /// One of these tokens.
    Tokens(&'a [Token]),
    /// A certificate with the name of the visitor.
    Certificate(&'a PeerTls),
    /// No proof exists for this visitor, so it is refused.
    Nothing,
}

/// Clients that may visit a private service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// Their names.
    pub name: NamePattern,
    /// Their tokens; two while a token is being replaced. If empty, these clients prove their
    /// identity by certificates ([`Private::tls`]).
    pub tokens: Vec<Token>,
}

impl Private {
    /// The name patterns of the visitors.
    #[must_use]
    pub fn patterns(&self) -> Arc<[NamePattern]> {
        self.visitors.iter().map(|visitor| visitor.name.clone()).collect()
    }

    /// The proof that a visitor must present. An entry with the exact name takes precedence over
    /// patterns.
    #[must_use]
    pub fn demand(&self, name: &str) -> Demand<'_> {
        let has_proof = |visitor: &Visitor| self.tls.is_some() || !visitor.tokens.is_empty();
        let of = |visitor: &&Visitor| visitor.name.has(name) && has_proof(visitor);
        let exact = self.visitors.iter().filter(of).find(|visitor| visitor.name.as_str() == name);
        match (exact.or_else(|| self.visitors.iter().find(of)), &self.tls) {
            (Some(visitor), _) if !visitor.tokens.is_empty() => Demand::Tokens(&visitor.tokens),
            (Some(_), Some(tls)) => Demand::Certificate(tls),
            (Some(_), None) | (None, _) => Demand::Nothing,
        }
    }

    /// The tokens of a visitor, at most two; none if it needs a certificate.
    #[must_use]
    pub fn tokens_of(&self, name: &str) -> &[Token] {
        match self.demand(name) {
            Demand::Tokens(tokens) => tokens,
            Demand::Certificate(_) | Demand::Nothing => &[],
        }
    }
}

/// How this client reaches a private service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PeerPath {
    /// Through the server at first, and over a direct path as soon as one is found.
    #[default]
    Auto,
    /// Only through the server.
    Relay,
    /// Only over a direct path.
    Direct,
    /// As `Auto`, with WebRTC data channels as the direct path.
    Webrtc,
}

impl fmt::Display for PeerPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Relay => "relay",
            Self::Direct => "direct",
            Self::Webrtc => "webrtc",
        })
    }
}

/// What this client needs to visit a private service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The service.
    pub service: PrivateService,
    /// The proof that the client of the service demands.
    pub proof: Proof,
    /// The way there.
    pub p2p: PeerPath,
}

impl ClientConfig {
    /// The settings for a visit of a service. The token or the certificate of a forward to the
    /// service applies to all visits of this service.
    #[must_use]
    pub fn visit_of(&self, service: &PrivateService) -> Option<Visit> {
        let of_forward = self.forwards.iter().find_map(|forward| match &forward.target {
            Some(Target::Private(target)) if target == service => forward.visit(),
            Some(_) | None => None,
        });
        of_forward.or_else(|| self.visits.iter().find(|visit| visit.service == *service).cloned())
    }

    /// The private services of other clients that the file names.
    pub fn private_services(&self) -> impl Iterator<Item = &PrivateService> {
        let visits = self.visits.iter().map(|visit| &visit.service);
        self.forwards.iter().filter_map(Forward::private).chain(visits)
    }

    /// The tokens of visits: tokens for visitors of this client, and tokens of this client as a
    /// visitor.
    pub fn visit_tokens(&self) -> impl Iterator<Item = &Token> {
        let private = self.services.iter().filter_map(|service| service.private.as_ref());
        let of_visitors = private.flat_map(|private| &private.visitors);
        let own = self.forwards.iter().filter_map(|forward| forward.token.as_ref());
        let own = own.chain(self.visits.iter().filter_map(|visit| match &visit.proof {
            Proof::Token(token) => Some(token),
            Proof::Certificate(_) => None,
        }));
        of_visitors.flat_map(|visitor| &visitor.tokens).chain(own)
    }

    /// The certificate of this client for `tls`: a separate one, or that of the log-in at the
    /// server.
    #[must_use]
    pub fn identity_of<'a>(&'a self, tls: &'a PeerTls) -> Option<&'a KeyPair> {
        let of_log_in = || self.servers.iter().find_map(|path| path.identity.as_ref());
        tls.identity.as_ref().or_else(of_log_in)
    }

    /// The certificates of visits: for the private services of this client, and for this client as
    /// a visitor. Each with its key path in the configuration.
    pub fn peer_tls(&self) -> impl Iterator<Item = (String, &PeerTls)> {
        let services = self.services.iter().enumerate().filter_map(|(n, service)| {
            let tls = service.private.as_ref()?.tls.as_ref()?;
            Some((format!("services[{n}].visitor_tls"), tls))
        });
        let forwards =
            self.forwards.iter().enumerate().filter_map(|(n, forward)| {
                Some((format!("forwards[{n}].tls"), forward.tls.as_ref()?))
            });
        let visits = self.visits.iter().enumerate().filter_map(|(n, visit)| match &visit.proof {
            Proof::Certificate(tls) => Some((format!("visits[{n}].tls"), tls)),
            Proof::Token(_) => None,
        });
        services.chain(forwards).chain(visits)
    }

    /// The same, mutable.
    pub fn peer_tls_mut(&mut self) -> impl Iterator<Item = &mut PeerTls> {
        let services = self.services.iter_mut();
        let services = services.filter_map(|service| service.private.as_mut()?.tls.as_mut());
        let forwards = self.forwards.iter_mut().filter_map(|forward| forward.tls.as_mut());
        let visits = self.visits.iter_mut().filter_map(|visit| match &mut visit.proof {
            Proof::Certificate(tls) => Some(tls),
            Proof::Token(_) => None,
        });
        services.chain(forwards).chain(visits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientFlags, Sources, Text, load_client};

    const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

    fn config(lines: &str) -> ClientConfig {
        let sources = Sources { env: &|_| None, read: &|_| Err(String::new()) };
        let text = format!("servers: tls://a\nname: a\ntoken: {TOKEN}\n{lines}");
        let text = Some(Text { name: "client.yaml", text: &text });
        load_client(text, &ClientFlags::default(), &sources).unwrap().config
    }

    fn demand(visitors: &str, more: &str, name: &str) -> &'static str {
        let config = config(&format!(
            "services: [{{ name: s, target: 22, public: private, visitors: [{visitors}]{more} }}]\n"
        ));
        match config.services[0].private.as_ref().unwrap().demand(name) {
            Demand::Tokens(_) => "token",
            Demand::Certificate(_) => "certificate",
            Demand::Nothing => "nothing",
        }
    }

    #[test]
    fn a_visitor_without_a_token_shows_a_certificate_where_the_service_has_an_authority() {
        let tls = ", visitor_tls: { ca: x, cert: y, key: z }";
        let (one, all) = ("one".to_owned(), format!("one, {{ name: '*', token: {TOKEN} }}"));
        for (visitors, more, name, expected) in [
            (&one, "", "one", "nothing"),
            (&one, tls, "one", "certificate"),
            (&one, tls, "two", "nothing"),
            // Without an authority the token of all counts for each.
            (&all, "", "one", "token"),
            (&all, tls, "one", "certificate"),
            (&all, tls, "two", "token"),
        ] {
            assert_eq!(demand(visitors, more, name), expected, "{visitors} {more} {name}");
        }
    }

    #[test]
    fn the_certificate_of_a_visit_is_that_of_the_log_in_unless_it_has_one() {
        let config = config(
            "tls: { cert: own.crt, key: own.key }\n\
             visits: [{ service: b/c, tls: { ca: x } }, \
             { service: b/d, tls: { ca: x, cert: y, key: z } }]\n",
        );
        let shown = config.peer_tls().map(|(key, tls)| {
            let pair = config.identity_of(tls).unwrap();
            format!("{key} {} {}", pair.cert.display(), pair.key.display())
        });
        let shown: Vec<_> = shown.collect();
        assert_eq!(shown, ["visits[0].tls own.crt own.key", "visits[1].tls y z"]);
    }
}

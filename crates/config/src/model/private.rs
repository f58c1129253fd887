//! Private services: which clients may visit a service of this client, and how this client visits
//! the services of others.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use proto::NamePattern;

use super::credentials::{KeyPair, Token};
use crate::{BadValue, PrivateService};

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

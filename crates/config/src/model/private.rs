//! Private services: which clients may visit a service of this client, and how this client visits
//! the services of others.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use proto::NamePattern;

use crate::key_table::KeyTable;
use crate::model::credentials::{KeyPair, Token};
use crate::words::words;
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
#[derive(Clone, Debug, PartialEq, Eq, Hash, KeyTable)]
#[keys(rows)]
#[row(cert: "path (PEM)", absent = "`tls.cert` of the client", holds = KeyFile,
    text = "The certificate file that the client presents to the other client {of}.")]
#[row(key: "path (PEM)", absent = "`tls.key` of the client", holds = KeyFile,
    text = "The private key file of the certificate that the client presents.")]
pub struct PeerTls {
    /// The CA file that verifies the other client {of}.
    #[key("path (PEM)", required, holds = KeyFile)]
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
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows)]
#[row(token_file: "path, one or list, at most 2", absent = "instead of `token`", holds = TokenFile,
    text = "The files with the tokens that this visitor may present to the private service.")]
pub struct Visitor {
    /// The name or pattern of clients that may visit the private service.
    #[key("name of a client, `*` at its beginning or end", required)]
    pub name: NamePattern,
    /// The tokens that this visitor may present to the private service.
    ///
    /// Two while a token is being replaced. If empty, these clients prove their identity by
    /// certificates ([`Private::tls`]).
    #[key("token or its hash, one or list, at most 2", name = "token", holds = Token,
        none = "the visitor shows a certificate, see `visitor_tls`; without it, it cannot visit")]
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

words! {
    /// How this client reaches a private service.
    pub enum PeerPath: "way" {
        /// Through the server at first, and over a direct path as soon as one is found.
        #[default]
        Auto = "auto",
        /// Only through the server.
        Relay = "relay",
        /// Only over a direct path.
        Direct = "direct",
        /// As `Auto`, with WebRTC data channels as the direct path.
        Webrtc = "webrtc",
    }
}

/// What this client needs to visit a private service.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows)]
#[row(token: "text", required, note = "or `tls`", holds = Token,
    text = "The token with which the client visits the private service.")]
#[row(token_file: "path", absent = "instead of `token`", holds = TokenFile,
    text = "The file with the token with which the client visits the private service.")]
#[row(tls: map, keys = PeerTls, none = "a token",
    text = "The certificates with which the client visits the private service without a token.")]
pub struct Visit {
    /// The client and name of the private service of the visit.
    #[key("`CLIENT/SERVICE`", required)]
    pub service: PrivateService,
    /// The proof that the client of the service demands.
    pub proof: Proof,
    /// The kind of path to the private service of the visit: relayed, direct or WebRTC.
    #[key("`auto`, `relay`, `direct`, `webrtc`", default = "auto")]
    pub p2p: PeerPath,
}

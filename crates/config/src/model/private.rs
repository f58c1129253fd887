//! Private services: who may visit a service of this client, and how this client visits the services
//! of others.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use proto::NamePattern;
use proto::greeting::Name;

use super::{ClientConfig, Forward, Token};
use crate::{BadValue, Target};

/// A service of another client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrivateService {
    /// The client that has the service.
    pub client: Name,
    /// The name of the service there.
    pub service: Name,
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
    /// Whether the right is to this service.
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
    /// Who may visit.
    pub visitors: Vec<Visitor>,
}

/// Clients that may visit a private service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// Their names.
    pub name: NamePattern,
    /// The tokens that they have; two while a token is being replaced. If empty, the secret of these
    /// clients is kept in the state directory.
    pub tokens: Vec<Token>,
}

impl Private {
    /// The patterns of the visitors.
    #[must_use]
    pub fn patterns(&self) -> Arc<[NamePattern]> {
        self.visitors.iter().map(|visitor| visitor.name.clone()).collect()
    }

    /// The tokens of a visitor, at most two. An entry with the name itself comes before patterns.
    #[must_use]
    pub fn tokens_of(&self, name: &str) -> &[Token] {
        let of = |visitor: &&Visitor| visitor.name.has(name) && !visitor.tokens.is_empty();
        let exact = self.visitors.iter().filter(of).find(|visitor| visitor.name.as_str() == name);
        let found = exact.or_else(|| self.visitors.iter().find(of));
        found.map_or(&[], |visitor| visitor.tokens.as_slice())
    }
}

/// How this client reaches a private service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PeerPath {
    /// Through the server at once, and on a direct path as soon as there is one.
    #[default]
    Auto,
    /// Through the server alone.
    Relay,
    /// On a direct path alone.
    Direct,
    /// As `Auto`, with data channels of WebRTC as the direct path.
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
    /// The token that the client of the service knows.
    pub token: Token,
    /// The way there.
    pub p2p: PeerPath,
}

impl ClientConfig {
    /// What is known about the visit of a service. The token of a forward to the service counts for
    /// all its visits.
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

    /// The tokens of visits: those of visitors of this client, and those of this client as a visitor.
    pub fn visit_tokens(&self) -> impl Iterator<Item = &Token> {
        let private = self.services.iter().filter_map(|service| service.private.as_ref());
        let of_visitors = private.flat_map(|private| &private.visitors);
        let own = self.forwards.iter().filter_map(|forward| forward.token.as_ref());
        let own = own.chain(self.visits.iter().map(|visit| &visit.token));
        of_visitors.flat_map(|visitor| &visitor.tokens).chain(own)
    }
}

//! A forward: a local listener whose target the server dials.

use std::fmt;

use proto::Limits;
use proto::control::ServiceTerms;

use super::credentials::Token;
use super::private::{PeerPath, PeerTls, Proof, Visit};
use crate::{Local, Net, PrivateService, Secret, Target};

/// A local listener whose target the server dials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The address on the client's side.
    pub listen: Local,
    /// The address that the server dials: [`Target::Tcp`], [`Target::Udp`] or [`Target::Unix`],
    /// with the protocol of the listener. `None` exactly where programs name their destination
    /// ([`Local::is_proxy`]). [`Target::Private`]: a service of another client.
    pub target: Option<Target>,
    /// The token for a private service; `None`: the token of
    /// [`ClientConfig::visits`](crate::ClientConfig::visits).
    pub token: Option<Token>,
    /// The certificates for a private service, instead of the token.
    pub tls: Option<PeerTls>,
    /// The kind of path to a private service.
    pub p2p: PeerPath,
    /// Pairs `user:password` of a proxy, one of which a program must present; user and password
    /// have at most 255 bytes each (RFC 1929). If empty, the proxy requires no password.
    pub basic_auth: Vec<Secret>,
    /// The terms for its visitors.
    pub terms: ServiceTerms,
    /// Whether load balancers put a header of the PROXY protocol in front.
    pub accept_proxy: bool,
    /// These load balancers:
    /// [`ClientConfig::trusted_proxies`](crate::ClientConfig::trusted_proxies) where the forward
    /// has [`Self::accept_proxy`], else empty.
    pub announced_by: Vec<Net>,
    /// The limits of its streams.
    pub limits: Limits,
    /// Whether the forward was added at run time, by a command.
    pub kept: bool,
}

impl fmt::Display for Forward {
    /// `tcp://127.0.0.1:5203 -> tcp://127.0.0.1:5201`; a proxy shows only its listener.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.listen)?;
        self.target.iter().try_for_each(|target| write!(f, " -> {target}"))
    }
}

impl Forward {
    /// The private service to which the forward leads.
    #[must_use]
    pub const fn private(&self) -> Option<&PrivateService> {
        match &self.target {
            Some(Target::Private(service)) => Some(service),
            Some(_) | None => None,
        }
    }

    /// The visit of the private service, if the forward has a proof of its own.
    pub(crate) fn visit(&self) -> Option<Visit> {
        let token = self.token.clone().map(Proof::Token);
        let proof = token.or_else(|| self.tls.clone().map(Proof::Certificate))?;
        Some(Visit { service: self.private()?.clone(), proof, p2p: self.p2p })
    }
}

//! A forward: a local listener whose target the server dials.

use std::fmt;

use proto::Limits;
use proto::control::ServiceTerms;

use crate::key_table::KeyTable;
use crate::model::credentials::Token;
use crate::model::limits::Limited;
use crate::model::private::{PeerPath, PeerTls, Proof, Visit};
use crate::model::times::Times;
use crate::{Local, Net, PrivateService, Secret, Target};

/// A local listener whose target the server dials.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows, later("name"))]
pub struct Forward {
    /// The address at which the forward listens on the client.
    #[key("`tcp://address:port` (short: `5203`), `udp://address:port`, `unix:///path`, \
        `socks5://address:port` or `http-proxy://address:port`", required, holds = Url)]
    pub listen: Local,
    /// The address that the server dials for the forward, or the private service to visit.
    ///
    /// [`Target::Tcp`], [`Target::Udp`] or [`Target::Unix`], with the protocol of the listener.
    /// `None` exactly where programs name their destination ([`Local::is_proxy`]).
    /// [`Target::Private`]: a service of another client.
    #[key("`tcp://host:port` (short: `host:port`, `5201`), `udp://host:port`, `unix:///path` or \
        `service://CLIENT/SERVICE`", required, note = "not with a proxy", holds = Url)]
    #[row(mode: "octal digits", default = "600", note = "of the file of a Unix socket",
        text = "The permissions of the socket file of the forward.")]
    pub target: Option<Target>,
    /// The users and passwords with which programs log in to the proxy of the forward.
    ///
    /// User and password have at most 255 bytes each (RFC 1929).
    #[key("`user:password`, one or list, at most 16", none = "no password", holds = Passwords)]
    #[row(timeouts: map, keys = Times, text = "The timeouts of streams of the forward.")]
    pub basic_auth: Vec<Secret>,
    /// The token with which the forward visits its private service.
    ///
    /// `None`: the token of [`ClientConfig::visits`](crate::ClientConfig::visits).
    #[key("text", absent = "that of `visits` (only with a private service)", holds = Token)]
    #[row(token_file: "path", absent = "instead of `token`", holds = TokenFile,
        text = "The file with the token with which the forward visits its private service.")]
    pub token: Option<Token>,
    /// The certificates with which the forward visits its private service without a token.
    #[key(map, none = "a token; only with a private service")]
    pub tls: Option<PeerTls>,
    /// The kind of path to the private service of the forward: relayed, direct or WebRTC.
    #[key(
        "`auto`, `relay`, `direct`, `webrtc`",
        default = "auto",
        note = "only with a private service"
    )]
    pub p2p: PeerPath,
    /// The server that dials the target of the forward.
    ///
    /// `None`: a server with a live link, by [`ClientConfig::policy`](crate::ClientConfig::policy).
    #[key("name of a server", absent = "by `use` of the top")]
    pub server: Option<String>,
    /// The terms for its visitors.
    pub terms: ServiceTerms,
    /// Reads the PROXY protocol header that trusted_proxies send to the forward.
    #[key("`true`, `false`", default = "false")]
    pub accept_proxy: bool,
    /// These load balancers:
    /// [`ClientConfig::trusted_proxies`](crate::ClientConfig::trusted_proxies) where the forward
    /// has [`Self::accept_proxy`], else empty.
    pub announced_by: Vec<Net>,
    /// The limits of streams and flows of the forward.
    #[key(map, keys = Limited)]
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

//! The public side.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use super::{Changed, Common, KeyPair, Path, Token, changes};
use crate::{Endpoint, ForwardRights, HostRights, Net, PortRights, Span};

/// A checked server.yaml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where clients connect; at least one, all different.
    pub listen: Vec<Endpoint>,
    /// Certificates.
    pub tls: ServerTls,
    /// Who may connect; names are unique. There may be none yet.
    pub clients: Vec<ClientGrant>,
    /// What clients may do whose names nobody knows; `None` lets none of them in.
    pub any_client: Option<Rights>,
    /// Who is asked about clients that are not here.
    pub auth: Option<HttpAuth>,
    /// Address of published ports without one.
    pub public_bind: IpAddr,
    /// Reverse proxies in front of `ws://` and `wss://` that may say for whom they speak.
    pub trusted_proxies: Vec<Net>,
    /// Keys of both roles.
    pub common: Common,
}

/// Somebody who is asked over HTTP which clients there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAuth {
    /// The way there: `wss` stands for `https`, and `ws` for `http`.
    pub path: Path,
    /// For an answer.
    pub timeout: Span,
    /// How long an answer counts.
    pub cache: Span,
}

impl HttpAuth {
    /// The URL as written, but for what a parser changes.
    #[must_use]
    pub fn url(&self) -> String {
        let Endpoint { scheme, host, port, path } = &self.path.endpoint;
        let scheme = if scheme.tls { "https" } else { "http" };
        format!("{scheme}://{host}:{port}{}", path.as_deref().unwrap_or("/"))
    }
}

/// The server's certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTls {
    /// `None`: self-signed, kept in `state_dir`.
    pub identity: Option<KeyPair>,
    /// With it, clients must show a certificate of this authority.
    pub client_ca: Option<PathBuf>,
}

/// One client and what it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientGrant {
    /// Unique name.
    pub name: String,
    /// One or two tokens, all valid (two while one is being replaced). None: its certificate proves
    /// its name, alone.
    pub tokens: Vec<Token>,
    /// What it may do.
    pub rights: Rights,
}

/// What a client may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Ports it may publish.
    pub tcp: PortRights,
    /// Hosts whose HTTP it may have.
    pub http: HostRights,
    /// Hosts whose TLS it may have, as it is.
    pub tls: HostRights,
    /// Targets its forwards may reach.
    pub forward: ForwardRights,
    /// Whether it may test the speed of its tunnel.
    pub speedtest: bool,
    /// Most streams at once; `None` is no limit.
    pub streams: Option<NonZeroU32>,
    /// Most streams that begin within a second; `None` is no limit.
    pub new_per_second: Option<NonZeroU32>,
    /// Most ports published; `None` is no limit but that of `tcp`.
    pub ports: Option<NonZeroU32>,
    /// Most hosts published; `None` is no limit but those of `http` and `tls`.
    pub hosts: Option<NonZeroU32>,
}

impl ServerConfig {
    /// What is another value in `other`.
    #[must_use]
    pub fn differs(&self, other: &Self) -> Vec<Changed> {
        let Self { listen, tls, clients, any_client, auth, public_bind, trusted_proxies, common } =
            self;
        let tls_key = if self.keeps_tls(other) { Changed::restart } else { Changed::reconnect };
        let own = [
            (*listen != other.listen, Changed::restart("listen")),
            (*tls != other.tls, tls_key("tls")),
            (*clients != other.clients, Changed::live("clients")),
            (*auth != other.auth, Changed::live("auth")),
            (*any_client != other.any_client, Changed::live("allow_any_client")),
            (*public_bind != other.public_bind, Changed::restart("public_bind")),
            (*trusted_proxies != other.trusted_proxies, Changed::reconnect("trusted_proxies")),
        ];
        changes(own).chain(common.differs(&other.common)).collect()
    }

    /// Whether TLS is for listeners that wait for a restart: then it waits with them.
    fn keeps_tls(&self, other: &Self) -> bool {
        let has_tls = |config: &Self| config.listen.iter().any(|at| at.scheme.tls);
        has_tls(self) != has_tls(other)
    }

    /// What is in force after a reload in a process that runs with `running`.
    #[must_use]
    pub fn reloaded(mut self, running: &Self) -> Self {
        if running.keeps_tls(&self) {
            self.tls.clone_from(&running.tls);
        }
        self.listen.clone_from(&running.listen);
        self.public_bind = running.public_bind;
        // Ports without an address are those of the address that is in force.
        let known = self.clients.iter_mut().map(|client| &mut client.rights);
        for rights in known.chain(&mut self.any_client) {
            rights.tcp.default_bind = Some(running.public_bind);
        }
        self.common.keep(&running.common);
        self
    }

    /// What would run, line by line.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.listen.iter().map(|e| format!("listen {e}")).collect();
        lines.push(match &self.tls.identity {
            Some(pair) => format!("certificate {}", pair.cert.display()),
            None => "certificate self-signed, kept in state_dir".into(),
        });
        if let Some(ca) = &self.tls.client_ca {
            lines.push(format!("clients show a certificate of {}", ca.display()));
        }
        lines
            .extend(self.auth.iter().map(|auth| format!("other clients: {} is asked", auth.url())));
        if self.clients.is_empty() && self.any_client.is_none() && self.auth.is_none() {
            lines.push("no client but those that came in by `tunnel enroll`".into());
        }
        for client in &self.clients {
            lines.push(format!("client {}: {}", client.name, client.rights));
        }
        lines.extend(self.any_client.iter().map(|rights| format!("any other client: {rights}")));
        lines
    }
}

impl Rights {
    /// To be there, and no more.
    pub(crate) const fn none(public_bind: IpAddr) -> Self {
        Self {
            tcp: PortRights { default_bind: Some(public_bind), rights: Vec::new() },
            http: HostRights(Vec::new()),
            tls: HostRights(Vec::new()),
            forward: ForwardRights(Vec::new()),
            speedtest: true,
            streams: None,
            new_per_second: None,
            ports: None,
            hosts: None,
        }
    }
}

/// For people.
impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |items: Vec<String>| {
            if items.is_empty() { "nothing".into() } else { items.join(", ") }
        };
        let ports = self.tcp.rights.iter().map(ToString::to_string);
        let web = self.http.0.iter().map(|host| format!("http://{host}"));
        let tls = self.tls.0.iter().map(|host| format!("tls://{host}"));
        let public = join(ports.chain(web).chain(tls).collect());
        let forward = join(self.forward.0.iter().map(ToString::to_string).collect());
        let speedtest = if self.speedtest { "" } else { "; no speed tests" };
        write!(f, "may publish {public}; may reach {forward}{speedtest}")
    }
}

//! The side behind NAT.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use super::{Changed, Common, KeyPair, Token, changes};
use crate::{Endpoint, Host, Local, Proxy, Secret, Span, Target};

/// A checked client.yaml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Paths to the one server, preferred first; at least one.
    pub servers: Vec<Path>,
    /// Name the server knows this client by.
    pub name: String,
    /// Proof of it; `None`: the certificates of its paths are.
    pub token: Option<Token>,
    /// Whether a server that does not know it may have what verifies its token.
    pub introduce: bool,
    /// Links; `None`: one per worker, at least 2.
    pub connections: Option<NonZeroUsize>,
    /// What is published, ranges expanded; names are unique.
    pub services: Vec<Service>,
    /// Local listeners whose targets the server dials.
    pub forwards: Vec<Forward>,
    /// Shortest pause between attempts.
    pub retry_min: Span,
    /// Longest pause between attempts.
    pub retry_max: Span,
    /// Keys of both roles.
    pub common: Common,
}

/// One way to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Where.
    pub endpoint: Endpoint,
    /// Whom to believe.
    pub trust: Trust,
    /// Certificate shown to the server.
    pub identity: Option<KeyPair>,
    /// Name asked for in the handshake in place of the host.
    pub sni: Option<String>,
    /// Further header fields of the request (`wss://`, `ws://`), each name once.
    pub headers: Vec<Field>,
    /// Between here and there.
    pub proxy: Option<Proxy>,
}

/// A field of an HTTP head. The value may be a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// As written.
    pub name: String,
    /// What follows the colon.
    pub value: Secret,
}

/// Which servers a client believes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Authorities of the system.
    System,
    /// One of these keys: `sha256:` and 44 characters of Base64.
    Pins(Vec<String>),
    /// Authorities of a PEM file.
    Ca(PathBuf),
}

/// Something published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Unique name.
    pub name: String,
    /// What the client dials.
    pub target: Target,
    /// Where visitors come; at least one.
    pub public: Vec<Public>,
    /// Turn among other services.
    pub priority: Priority,
    /// Time limits.
    pub timeouts: Timeouts,
}

/// A public address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Public {
    /// `None`: the server's `public_bind`.
    pub bind: Option<IpAddr>,
    /// 0: the server chooses and reports.
    pub port: u16,
}

impl fmt::Display for Public {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bind {
            Some(ip) => write!(f, "tcp://{}:{}", Host::Ip(ip), self.port),
            None => write!(f, "tcp://:{}", self.port),
        }
    }
}

/// Priority class: a higher one is sent first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Before all others.
    Interactive,
    /// The default.
    #[default]
    Normal,
    /// When nothing else waits.
    Bulk,
}

/// Time limits of a service's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the target accepts.
    pub dial: Span,
    /// Without a byte either way; 0 is no limit.
    pub idle: Span,
    /// After one side finished.
    pub half_close: Span,
}

/// A local listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Where, on the client's side.
    pub listen: Local,
    /// What the server dials.
    pub target: Target,
}

impl ClientConfig {
    /// What is another value in `other`. `servers` stands for all that is said of a path.
    #[must_use]
    pub fn differs(&self, other: &Self) -> Vec<Changed> {
        let Self {
            servers,
            name,
            token,
            introduce,
            connections,
            services,
            forwards,
            retry_min,
            retry_max,
            common,
        } = self;
        // The file that it stands in is nobody's concern.
        let secret = |token: &Option<Token>| token.as_ref().map(|token| token.secret.clone());
        let retry = (*retry_min, *retry_max) != (other.retry_min, other.retry_max);
        let own = [
            (*servers != other.servers, Changed::reconnect("servers")),
            (*name != other.name, Changed::restart("name")),
            (secret(token) != secret(&other.token), Changed::reconnect("token")),
            (*introduce != other.introduce, Changed::reconnect("introduce")),
            (*connections != other.connections, Changed::reconnect("connections")),
            (*services != other.services, Changed::live("services")),
            (*forwards != other.forwards, Changed::live("forwards")),
            (retry, Changed::reconnect("retry")),
        ];
        changes(own).chain(common.differs(&other.common)).collect()
    }

    /// What is in force after a reload in a process that runs with `running`.
    #[must_use]
    pub fn reloaded(mut self, running: &Self) -> Self {
        self.name.clone_from(&running.name);
        self.common.keep(&running.common);
        self
    }

    /// What would run, line by line.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .servers
            .iter()
            .map(|p| {
                let proxy = p.proxy.as_ref().map(|proxy| format!(" through {proxy}"));
                format!("client {} to {}{}", self.name, p.endpoint, proxy.unwrap_or_default())
            })
            .collect();
        for service in &self.services {
            let public: Vec<String> = service.public.iter().map(ToString::to_string).collect();
            lines.push(format!(
                "service {}: {} -> {}",
                service.name,
                public.join(", "),
                service.target
            ));
        }
        for forward in &self.forwards {
            lines.push(format!(
                "forward {} -> {} (dialled by the server)",
                forward.listen, forward.target
            ));
        }
        lines
    }
}

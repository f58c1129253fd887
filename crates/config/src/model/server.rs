//! The model of a server, the public side.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use proto::{Dscp, Limits};

use super::change::changes;
use super::{Changed, Common, FlowLimits, Http, KeyPair, Mux, Path, TlsRoutes, Token};
use crate::{
    Endpoint, ForwardRights, HostRights, Net, Over, PortRights, PublicUrls, Span, VisitRights,
};

/// A checked server.yaml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Addresses where clients connect; at least one, all different.
    pub listen: Vec<Listen>,
    /// The server's certificates.
    pub tls: ServerTls,
    /// Clients that may connect, with unique names. The list may be empty.
    pub clients: Vec<ClientGrant>,
    /// Rights of clients that the server does not know; `None`: unknown clients are refused.
    pub any_client: Option<Rights>,
    /// The service that decides about clients that are not in `clients`.
    pub auth: Option<HttpAuth>,
    /// IP address of published ports that name no address.
    pub public_bind: IpAddr,
    /// The addresses at which others reach this server, where it cannot know them.
    pub public_url: PublicUrls,
    /// The UDP port at `public_bind` that answers STUN, besides the ports of `quic://`; 0: no such
    /// port. `None`: 3478 where a listener uses UDP, otherwise none.
    pub stun: Option<u16>,
    /// Connections over WebRTC; `None`: disabled.
    pub webrtc: Option<super::ServerWebrtc>,
    /// Reverse proxies in front of `ws://` and `wss://`. The server believes their header fields
    /// with the client's address (`X-Forwarded-For`, `Forwarded`, `X-Real-IP`).
    pub trusted_proxies: Vec<Net>,
    /// Published ports at which connections and datagrams of [`Self::trusted_proxies`] begin with a
    /// header of the PROXY protocol.
    pub accept_proxy: AcceptProxy,
    /// The limits of the streams of all clients together.
    pub limits: Limits,
    /// Services by HTTP name.
    pub http: Http,
    /// Services by TLS name.
    pub tls_routes: TlsRoutes,
    /// Keys of both roles.
    pub common: Common,
}

/// The published ports at which a load balancer prepends a header of the PROXY protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptProxy {
    /// TCP ports.
    pub tcp: PortRights,
    /// UDP ports.
    pub udp: PortRights,
}

/// An address where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address and its transport.
    pub endpoint: Endpoint,
    /// Whether the `client_ca` of the server applies to this listener. Elsewhere a token alone is
    /// enough for a log-in. A listener without TLS never requests a certificate; a configuration
    /// with a `client_ca` has `false` there.
    pub client_ca: bool,
    /// The code point of the packets to clients.
    pub dscp: Dscp,
    /// The settings of a `mux://` listener; `None` for every other listener.
    pub mux: Option<Mux>,
}

/// A service that decides over HTTP which clients exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAuth {
    /// The path to the service. Its scheme is `wss` for `https`, and `ws` for `http`.
    pub path: Path,
    /// Timeout of an answer.
    pub timeout: Span,
    /// How long an answer stays valid.
    pub cache: Span,
}

impl HttpAuth {
    /// The URL in canonical form, with scheme, host, port and path.
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
    /// The certificate and its key; `None`: a self-signed certificate that is kept in `state_dir`.
    pub identity: Option<KeyPair>,
    /// The authority that issues client certificates. If it is set, clients must present a
    /// certificate of this authority at each listener with [`Listen::client_ca`].
    pub client_ca: Option<PathBuf>,
}

/// A client and its rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientGrant {
    /// The unique name of the client.
    pub name: String,
    /// One or two valid tokens; two while a token is being replaced. If empty, the client's
    /// certificate alone proves its name.
    pub tokens: Vec<Token>,
    /// The rights of the client.
    pub rights: Rights,
    /// Whether the client was enrolled by a code of `tunnel enroll`. If it has two tokens, the
    /// first log-in with the second token invalidates the first token.
    pub enrolled: bool,
}

/// The rights of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// TCP ports that the client may publish.
    pub tcp: PortRights,
    /// UDP ports that the client may publish.
    pub udp: PortRights,
    /// Hosts whose HTTP visitors the client may serve, with or without TLS that ends at the server.
    pub http: HostRights,
    /// Hosts whose TLS visitors the client may serve; the server does not terminate their TLS.
    pub tls: HostRights,
    /// Whether services of the client may set `pass_through`.
    pub pass_through: bool,
    /// Whether services of the client may share their addresses with sharing services of other
    /// clients and of other processes with the same name.
    pub shared: bool,
    /// Whether services of the client may set `dscp`, with which the server marks the packets to
    /// their visitors.
    pub dscp: bool,
    /// Targets that the client's forwards may reach.
    pub forward: ForwardRights,
    /// Private services of other clients that the client may visit.
    pub visit: VisitRights,
    /// Whether the client may invite visitors to its private services by codes.
    pub invite: bool,
    /// Whether the client may measure the throughput of its tunnel.
    pub speedtest: bool,
    /// The limits of the client's streams.
    pub limits: Limits,
    /// The largest number of published ports of both protocols. The default is the number of ports
    /// in `tcp` and `udp`, within the bound of the kind of client; [`u32::MAX`] is unlimited.
    pub ports: u32,
    /// The largest number of published hosts; `None`: only `http` and `tls` limit them.
    pub hosts: Option<NonZeroU32>,
    /// The largest number of UDP flows at each published port.
    pub flows: FlowLimits,
}

/// The STUN port that IANA assigned (RFC 8489).
pub const STUN_PORT: u16 = 3478;

impl AcceptProxy {
    /// Whether the entries are equal, regardless of `public_bind`.
    fn is_same(&self, other: &Self) -> bool {
        (&self.tcp.rights, &self.udp.rights) == (&other.tcp.rights, &other.udp.rights)
    }
}

impl ServerConfig {
    /// The additional UDP port that answers STUN.
    #[must_use]
    pub fn stun_port(&self) -> Option<u16> {
        let has_udp = || self.listen.iter().any(|at| at.endpoint.scheme.over == Over::Udp);
        let default = || has_udp().then_some(STUN_PORT);
        self.stun.or_else(default).filter(|port| *port != 0)
    }

    /// Whether a token alone is enough for a log-in at this listener.
    #[must_use]
    pub const fn is_exempt(&self, at: &Listen) -> bool {
        self.tls.client_ca.is_none() || !at.client_ca
    }

    /// The keys whose values differ in `other`.
    #[must_use]
    pub fn differs(&self, other: &Self) -> Vec<Changed> {
        let Self {
            listen,
            tls,
            clients,
            any_client,
            auth,
            public_bind,
            public_url,
            stun,
            webrtc,
            trusted_proxies,
            accept_proxy,
            limits,
            http,
            tls_routes,
            common,
        } = self;
        let tls_key = if self.keeps_tls(other) { Changed::restart } else { Changed::reconnect };
        let own = [
            (*listen != other.listen, Changed::restart("listen")),
            (*tls != other.tls, tls_key("tls")),
            (*clients != other.clients, Changed::live("clients")),
            (*auth != other.auth, Changed::live("auth")),
            (*any_client != other.any_client, Changed::live("allow_any_client")),
            (*public_bind != other.public_bind, Changed::restart("public_bind")),
            (*public_url != other.public_url, Changed::live("public_url")),
            (*stun != other.stun, Changed::restart("stun")),
            (*webrtc != other.webrtc, Changed::live("p2p")),
            (*trusted_proxies != other.trusted_proxies, Changed::reconnect("trusted_proxies")),
            (!accept_proxy.is_same(&other.accept_proxy), Changed::live("accept_proxy")),
            (*limits != other.limits, Changed::live("limits")),
        ];
        let doors = changes(http.differs(&other.http))
            .chain(changes(tls_routes.differs(&other.tls_routes)));
        changes(own).chain(doors).chain(common.differs(&other.common)).collect()
    }

    /// Whether TLS settings keep their running values until a restart: adding or removing listeners
    /// with TLS needs a restart as well.
    fn keeps_tls(&self, other: &Self) -> bool {
        let has_tls = |config: &Self| config.listen.iter().any(|at| at.endpoint.scheme.tls);
        has_tls(self) != has_tls(other)
    }

    /// The configuration in force after a reload of a process that runs with `running`. Keys that
    /// need a restart keep their running values.
    #[must_use]
    pub fn reloaded(mut self, running: &Self) -> Self {
        if running.keeps_tls(&self) {
            self.tls.clone_from(&running.tls);
        }
        self.listen.clone_from(&running.listen);
        self.public_bind = running.public_bind;
        self.stun = running.stun;
        self.http.listen.clone_from(&running.http.listen);
        self.tls_routes.listen.clone_from(&running.tls_routes.listen);
        self.http.accept_proxy = running.http.accept_proxy;
        self.tls_routes.accept_proxy = running.tls_routes.accept_proxy;
        // Rights without an address apply to the effective `public_bind`.
        let known = self.clients.iter_mut().map(|client| &mut client.rights);
        for rights in known.chain(&mut self.any_client) {
            rights.tcp.default_bind = Some(running.public_bind);
            rights.udp.default_bind = Some(running.public_bind);
        }
        for ports in [&mut self.accept_proxy.tcp, &mut self.accept_proxy.udp] {
            ports.default_bind = Some(running.public_bind);
        }
        self.common.keep(&running.common);
        self
    }

    /// A summary of the configuration, line by line.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let has_ca = self.tls.client_ca.is_some();
        let listener = |at: &Listen| {
            let note = if has_ca && self.is_exempt(at) {
                " (no client certificate, tokens alone)"
            } else {
                ""
            };
            let default = at.mux.as_ref().and_then(|mux| mux.default.as_ref());
            let default = default.map(|target| format!(" (everything else goes to {target})"));
            format!("listen {}{note}{}", at.endpoint, default.unwrap_or_default())
        };
        let mut lines: Vec<String> = self.listen.iter().map(listener).collect();
        lines.extend(self.public_url.summary());
        lines.extend(self.http.summary());
        lines.extend(self.tls_routes.summary());
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
    /// The rights of a client that may only connect and measure its throughput.
    pub(crate) const fn none(public_bind: IpAddr) -> Self {
        Self {
            tcp: PortRights { default_bind: Some(public_bind), rights: Vec::new() },
            udp: PortRights { default_bind: Some(public_bind), rights: Vec::new() },
            http: HostRights(Vec::new()),
            tls: HostRights(Vec::new()),
            pass_through: false,
            shared: false,
            dscp: false,
            forward: ForwardRights(Vec::new()),
            visit: VisitRights(Vec::new()),
            invite: false,
            speedtest: true,
            limits: Limits::NONE,
            ports: 0,
            hosts: None,
            flows: FlowLimits { most: None, per_source: None },
        }
    }
}

/// A readable description.
impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |items: Vec<String>| {
            if items.is_empty() { "nothing".into() } else { items.join(", ") }
        };
        let tcp = self.tcp.rights.iter().map(ToString::to_string);
        let udp = self.udp.rights.iter().map(|right| format!("udp://{right}"));
        let ports = tcp.chain(udp);
        let web = self.http.0.iter().map(|host| format!("http://{host}"));
        let tls = self.tls.0.iter().map(|host| format!("tls://{host}"));
        let public = join(ports.chain(web).chain(tls).collect());
        let forward = join(self.forward.0.iter().map(ToString::to_string).collect());
        let pass_through = if self.pass_through { " (also with pass_through)" } else { "" };
        let speedtest = if self.speedtest { "" } else { "; no speed tests" };
        write!(f, "may publish {public}{pass_through}; may reach {forward}")?;
        if !self.visit.0.is_empty() {
            let visit = join(self.visit.0.iter().map(ToString::to_string).collect());
            write!(f, "; may visit {visit}")?;
        }
        if self.shared {
            f.write_str("; may share addresses")?;
        }
        if self.dscp {
            f.write_str("; may mark packets")?;
        }
        if self.invite {
            f.write_str("; may invite visitors")?;
        }
        f.write_str(speedtest)
    }
}

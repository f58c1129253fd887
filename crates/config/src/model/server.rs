//! The model of a server, the public side.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use proto::{Dscp, Limits, Visitors};

use crate::key_table::KeyTable;
use crate::model::change::{Change, Changed};
use crate::model::cluster::Cluster;
use crate::model::common::Common;
use crate::model::credentials::{KeyPair, Token};
use crate::model::doors::{Http, Mux, TlsRoutes};
use crate::model::limits::Limited;
use crate::model::p2p::STUN_PORT;
use crate::model::path::{Path, PathTls};
use crate::model::private::VisitRights;
use crate::model::service::{FlowLimits, VisitorLists};
use crate::model::times::Times;
use crate::{Endpoint, ForwardRights, HostRights, Net, Over, PortRights, PublicUrls, Span};

/// A checked server.yaml.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows, compare)]
#[row(allow_from: "addresses, networks and `@FILE`, one or list", none = "everybody", live, rank = 6,
    text = "The addresses from which visitors may use services, whatever their own lists are.",
    differs = |server| server.visitors.allow_from.clone())]
#[row(deny_from: "addresses, networks and `@FILE`, one or list", none = "nobody", live, rank = 6,
    text = "The addresses from which visitors may not use services, whatever their own lists are.",
    differs = |server| server.visitors.deny_from.clone())]
pub struct ServerConfig {
    /// The addresses and transports at which clients connect.
    ///
    /// At least one; all different.
    #[key("URL or map, one or list", list, required, restart, holds = Url)]
    pub listen: Vec<Listen>,
    /// The server's certificate, and the authorities of client certificates.
    ///
    /// Adding or removing listeners with TLS needs a restart, and TLS settings then keep their
    /// running values as well.
    #[key(map, reconnect)]
    pub tls: ServerTls,
    /// The clients that may log in, with their rights and limits.
    ///
    /// The names are unique.
    #[key("list", list, none, live)]
    pub clients: Vec<ClientGrant>,
    /// Admits clients without an entry, with these rights and limits for each of them.
    ///
    /// A node of a cluster admits none: a name that one node reserves is free at the others.
    /// `None`: unknown clients are refused.
    #[key("`true`, `false` or a map", name = "allow_any_client", map, keys = AnyClient,
        default = "false", live, rank = 4)]
    pub any_client: Option<Rights>,
    /// The external decision about clients without an entry.
    #[key(map, keys = Auth, absent = "nobody", live, rank = 4)]
    pub auth: Option<HttpAuth>,
    /// The IP address of published ports that name no address.
    #[key("address", default = "[::]", restart)]
    pub public_bind: IpAddr,
    /// The addresses of this server as clients and visitors reach them, behind a proxy or NAT.
    #[key("URL, one or list", absent = "its own addresses", live)]
    pub public_url: PublicUrls,
    /// Settings of services by HTTP name.
    #[key(map, absent = "no names", compare, rank = 6)]
    pub http: Http,
    /// Settings of services by TLS name.
    #[key(map, absent = "no names", compare, rank = 6)]
    pub tls_routes: TlsRoutes,
    /// The UDP port that answers STUN, besides the ports of `quic://` listeners.
    ///
    /// It is at `public_bind`.
    #[key("port, 0: none", absent = "3478 where a listener uses UDP", restart, rank = 6)]
    pub stun: Option<u16>,
    /// Connections over WebRTC; `None`: disabled.
    #[row(p2p: map, keys = super::p2p::ServerP2p, live, rank = 6,
        text = "Settings of direct connections to private services.", differs = |server| server.webrtc.clone())]
    pub webrtc: Option<super::ServerWebrtc>,
    /// The reverse proxies whose reports of the address of a client or visitor are believed.
    ///
    /// In front of `ws://` and `wss://`, the server believes their header fields
    /// (`X-Forwarded-For`, `Forwarded`, `X-Real-IP`).
    #[key("address or network, one or list", none, reconnect, rank = 2)]
    pub trusted_proxies: Vec<Net>,
    /// The published ports at which trusted proxies send a PROXY protocol header.
    #[key(map, absent = "no port", live,
        differs = |server| (server.accept_proxy.tcp.rights.clone(), server.accept_proxy.udp.rights.clone()), rank = 6)]
    pub accept_proxy: AcceptProxy,
    /// The visitors that may use services at all, besides the lists of each service.
    pub visitors: VisitorLists,
    /// The cluster of which this server is a node.
    #[key(map, absent = "this server is alone", restart, rank = 6)]
    pub cluster: Option<Cluster>,
    /// Limits of the streams of all clients together.
    #[key(map, keys = Limited, of = "of all clients together", live, rank = 6)]
    pub limits: Limits,
    /// Keys of both roles.
    #[key(flat, compare)]
    pub common: Common,
}

/// The published ports at which a load balancer prepends a header of the PROXY protocol.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows)]
pub struct AcceptProxy {
    /// The published TCP ports at which trusted proxies send a PROXY protocol header.
    #[key("ports, one or list", none)]
    pub tcp: PortRights,
    /// The published UDP ports at which trusted proxies send a PROXY protocol header.
    #[key("ports, one or list", none)]
    pub udp: PortRights,
}

/// An address where clients connect.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows)]
#[row(default: "`tcp://host:port` or `unix:///path`", none = "the connection is closed", holds = Url,
    text = "The target of connections to the mux:// listener that speak neither TLS nor HTTP.")]
#[row(silence: "duration, 50ms-30s", default = "3s",
    text = "The time without a byte after which a mux:// connection dials the default target.")]
#[row(timeouts: map, keys = Times, of = "of the default target", at = Listener,
    text = "Timeouts of the connections to the default target of the mux:// listener.")]
#[row(accept_proxy: "`true`, `false`", default = "false",
    text = "Expects a PROXY protocol header from trusted proxies at the mux:// listener.")]
pub struct Listen {
    /// The transport, address and path of the listener.
    #[key("URL", name = "url", required, holds = Url)]
    pub endpoint: Endpoint,
    /// Exempts the listener from `tls.client_ca`; clients log in with a token alone.
    ///
    /// Whether the `client_ca` of the server applies to this listener. A listener without TLS never
    /// requests a certificate; a configuration with a `client_ca` has `false` there.
    #[key("`false`", absent = "`tls.client_ca` applies", holds = KeyFile)]
    pub client_ca: bool,
    /// The DSCP mark of the packets that the listener sends.
    #[key(
        "number 0-63, or a name such as `EF`, `AF41`, `CS1`, `LE`",
        default = "0",
        note = "best effort"
    )]
    pub dscp: Dscp,
    /// The settings of a `mux://` listener; `None` for every other listener.
    pub mux: Option<Mux>,
}

/// The keys of `allow_any_client`.
#[derive(KeyTable)]
#[keys(rows)]
#[row(allow: map, keys = Rights, of = "each unknown client", absent = "nothing",
    text = "The rights of each unknown client: ports, names, targets and private services.")]
#[row(limits: map, keys = Limited, of = "of each unknown client", at = Grant,
    text = "Limits of the streams, flows, ports and hosts of each unknown client.")]
pub(crate) struct AnyClient;

/// The keys of `auth`.
#[derive(KeyTable)]
#[keys(rows)]
#[row(http: map, keys = HttpAuth, absent = "nobody",
    text = "The HTTP endpoint that the server queries about clients without an entry.")]
pub(crate) struct Auth;

/// A service that decides over HTTP which clients exist.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows, later("proxy"))]
#[row(url: "URL", required, holds = Url,
    text = "The URL of the auth endpoint, to which the queries are posted.")]
#[row(tls: map, keys = PathTls, of = "of the auth endpoint", absent = "authorities of the system",
    text = "Certificates and TLS version of connections to the auth endpoint.")]
#[row(headers: "map of names to values", none, holds = Fields,
    text = "Additional header fields of each request to the auth endpoint.")]
pub struct HttpAuth {
    /// The path to the service. Its scheme is `wss` for `https`, and `ws` for `http`.
    pub path: Path,
    /// The timeout of an answer of the auth endpoint.
    #[key("duration, at most 8s", default = "5s")]
    pub timeout: Span,
    /// The time for which an answer of the auth endpoint about a client is valid.
    ///
    /// A client that was removed from the service may stay connected for this time.
    #[key("duration", default = "60s")]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, KeyTable)]
#[keys(rows)]
#[row(cert: "path", absent = "self-signed in `state_dir`", holds = KeyFile,
    text = "The file of the certificate chain that the server presents to clients.")]
#[row(key: "path", absent = "", holds = KeyFile, text = "The file of the private key of tls.cert.")]
pub struct ServerTls {
    /// The certificate and its key; `None`: a self-signed certificate that is kept in `state_dir`.
    pub identity: Option<KeyPair>,
    /// The file of the authorities of the certificates that clients must present.
    ///
    /// Clients must present a certificate at each listener with [`Listen::client_ca`].
    #[key("path", none, holds = KeyFile)]
    pub client_ca: Option<PathBuf>,
}

/// A client and its rights.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows)]
#[row(token_file: "path, one or two", absent = "instead of `token`", reconnect, holds = TokenFile,
    text = "The file with the token of the client or its hash; two files during a rotation.")]
#[row(allow: map, keys = Rights, of = "the client", absent = "nothing",
    text = "The rights of the client: ports, names, targets and private services.")]
#[row(limits: map, keys = Limited, of = "of the client", at = Grant,
    text = "Limits of the streams, flows, ports and hosts of the client.")]
pub struct ClientGrant {
    /// The name with which the client logs in.
    #[key("name", required)]
    pub name: String,
    /// The token of the client or its hash; two tokens during a rotation.
    ///
    /// If empty, the client's certificate alone proves its name.
    #[key("text, one or two", name = "token", required, note = "not with `tls.client_ca`", reconnect,
        holds = Token)]
    pub tokens: Vec<Token>,
    /// The rights of the client.
    pub rights: Rights,
    /// Whether the client was enrolled by a code of `tunnel enroll`. If it has two tokens, the
    /// first log-in with the second token invalidates the first token.
    pub enrolled: bool,
}

/// The rights of a client.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows)]
pub struct Rights {
    /// The TCP ports that {of} may publish.
    #[key("ports, one or list", absent = "nothing")]
    pub tcp: PortRights,
    /// The UDP ports that {of} may publish.
    #[key("ports, one or list", absent = "nothing")]
    pub udp: PortRights,
    /// The hosts that {of} may publish as `http://` and `https://` names.
    #[key("hosts, one or list", absent = "nothing")]
    pub http: HostRights,
    /// The hosts that {of} may publish as `tls://` names.
    ///
    /// The server does not terminate their TLS.
    #[key("hosts, one or list", absent = "nothing")]
    pub tls: HostRights,
    /// Permits services of {of} to set pass_through: only the first request is read.
    #[key("`true`, `false`", default = "false")]
    pub pass_through: bool,
    /// The targets on the server's side that forwards and proxies of {of} may reach.
    #[key("host:ports or `unix:/path`, one or list", absent = "nothing")]
    pub forward: ForwardRights,
    /// The servers to which {of} may go through this server (`via` of a path of the client).
    #[key("host:ports, one or list", absent = "nothing")]
    pub via: ForwardRights,
    /// The private services of other clients that {of} may visit.
    #[key("`CLIENT/SERVICE`, one or list", absent = "nothing")]
    pub visit: VisitRights,
    /// Permits {of} to share its public addresses with other clients.
    ///
    /// And with other processes of the same name.
    #[key("`true`, `false`", default = "false")]
    pub shared: bool,
    /// Permits services of {of} to mark the packets to their visitors with a DSCP.
    #[key("`true`, `false`", default = "false")]
    pub dscp: bool,
    /// Permits {of} to invite visitors to its private services by codes.
    #[key("`true`, `false`", default = "false")]
    pub invite: bool,
    /// Permits {of} to measure the throughput of its tunnel.
    #[key("`true`, `false`", default = "true")]
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
        let mut found = Vec::new();
        self.compare(other, &mut found);
        if self.keeps_tls(other) {
            let tls = found.iter_mut().filter(|changed| changed.key == "tls");
            tls.for_each(|tls| tls.change = Change::Restart);
        }
        found
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
        self.keep_running(running);
        // Rights without an address apply to the effective `public_bind`.
        let known = self.clients.iter_mut().map(|client| &mut client.rights);
        for rights in known.chain(&mut self.any_client) {
            rights.tcp.default_bind = Some(running.public_bind);
            rights.udp.default_bind = Some(running.public_bind);
        }
        for ports in [&mut self.accept_proxy.tcp, &mut self.accept_proxy.udp] {
            ports.default_bind = Some(running.public_bind);
        }
        self
    }

    /// The visitors that may use services at all.
    #[must_use]
    pub fn visitors(&self) -> Visitors {
        let VisitorLists { allow_from, deny_from } = self.visitors.clone();
        Visitors { allow_from, deny_from: deny_from.unwrap_or_default() }
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
        let VisitorLists { allow_from, deny_from } = &self.visitors;
        for (key, list) in [("allow_from", allow_from), ("deny_from", deny_from)] {
            let counted = list.iter().map(|list| list.len());
            lines.extend(counted.map(|count| format!("visitors: {key} with {count} networks")));
        }
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
        lines.extend(self.cluster.iter().flat_map(Cluster::summary));
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
            via: ForwardRights(Vec::new()),
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
        if !self.via.0.is_empty() {
            let via = join(self.via.0.iter().map(ToString::to_string).collect());
            write!(f, "; may go via this server to {via}")?;
        }
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

//! The model of a client, the side behind NAT.

use std::fmt;
use std::mem;
use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;

use proto::control::ServiceTerms;
use proto::{
    Compress, Dscp, HttpOptions, Limits, Network, PORTS_MAX, Sticky, TargetProtocol, Visitors,
};

use super::check::Check;
use super::p2p::P2p;
use super::private::{PeerPath, PeerTls, Private, PrivateService, Proof, Visit};
use super::spread::Spread;
use super::{Changed, Common, KeyPair, TlsVersion, Token, changes};
use crate::{
    Endpoint, ForwardRights, Host, Lists, Local, Moment, NameKind, Net, Over, Proxy, Secret, Span,
    Target,
};

/// The `public` of a private service.
pub(crate) const PRIVATE: &str = "private";

/// How many networks of a list the summary shows.
const SHOWN: usize = 8;

/// A checked client.yaml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Paths to the server, preferred paths first; at least one.
    pub servers: Vec<Path>,
    /// The name by which the server knows this client.
    pub name: String,
    /// The token that proves the name. `None`: the certificates of the paths prove the name.
    pub token: Option<Token>,
    /// Whether the client may send the data that verify its token to a server that does not know
    /// the client.
    pub introduce: bool,
    /// The number of links; `None`: one per worker, at least 2.
    pub connections: Option<NonZeroUsize>,
    /// The prefix of each service's name.
    pub id_prefix: Option<String>,
    /// The visitors that may use a service without lists of its own.
    pub visitors: VisitorLists,
    /// Published services. Ranges are expanded, and names are unique.
    pub services: Vec<Service>,
    /// Local listeners whose targets the server dials.
    pub forwards: Vec<Forward>,
    /// The proofs for private services of other clients, besides the tokens of forwards.
    pub visits: Vec<Visit>,
    /// How direct paths to other clients are found.
    pub p2p: P2p,
    /// The entries that later entries shadow: those of the file behind those of flags, and both
    /// behind those of commands.
    pub shadowed: Lists,
    /// Shortest pause between two attempts to connect.
    pub retry_min: Span,
    /// Longest pause between two attempts to connect.
    pub retry_max: Span,
    /// Load balancers in front of the forwards that set `accept_proxy`.
    pub trusted_proxies: Vec<Net>,
    /// The limits of the streams of all services and forwards together.
    pub limits: Limits,
    /// Keys of both roles.
    pub common: Common,
}

/// One path to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The server's address.
    pub endpoint: Endpoint,
    /// How the client verifies the server's certificate.
    pub trust: Trust,
    /// The client's certificate for this path.
    pub identity: Option<KeyPair>,
    /// The oldest version of TLS that the path accepts. [`TlsVersion::V12`] is possible only for a
    /// WebSocket scheme, whose TLS may end at a proxy.
    pub min_version: TlsVersion,
    /// Server name in the TLS handshake (SNI) instead of the host. If the host is an address, this
    /// name is also the host of the HTTP request.
    pub sni: Option<String>,
    /// Additional header fields of the HTTP request (`wss://`, `ws://`). Each name is unique.
    pub headers: Vec<Field>,
    /// Outgoing proxy; `None`: the client connects directly.
    pub proxy: Option<Proxy>,
    /// The code point of the packets to the server, or to the proxy.
    pub dscp: Dscp,
}

/// A header field of HTTP. The value may be a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name as written in the file.
    pub name: String,
    /// The value after the colon.
    pub value: Secret,
}

/// How a server's certificate is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// By the authorities that the system trusts.
    System,
    /// By its public key, which must match a pin: `sha256:` and 44 characters of Base64.
    Pins(Vec<String>),
    /// By the authorities in a PEM file.
    Ca(PathBuf),
}

/// A published service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The unique name of the service.
    pub name: String,
    /// The address that the client dials. It fits the public addresses: a service with ports of UDP
    /// alone has a [`Target::Udp`], a service without a port of UDP has no such target, and a
    /// service with both has a target with host and port. A private service has either kind.
    pub target: Target,
    /// The other targets, which are dialled in the same way.
    pub spread: Spread,
    /// How the certificate of a [`Target::Https`] is verified; the default for all other targets.
    pub target_tls: TargetTls,
    /// Public addresses on the server: at least one, or none for a private service.
    pub public: Vec<Public>,
    /// The clients that may visit a private service; `None`: the service is not private.
    pub private: Option<Private>,
    /// The terms for its visitors, except the lists that the service inherits
    /// ([`ClientConfig::terms_of`]).
    pub(crate) terms: ServiceTerms,
    /// The largest number of UDP flows that the client accepts.
    pub limits: FlowLimits,
    /// Limits of its streams on this client.
    pub stream_limits: Limits,
    /// How the client checks the health of the target; `None`: it is not checked.
    pub health: Option<Check>,
    /// Whether the service was added at run time, by a command.
    pub kept: bool,
    /// When the client withdraws the service; `None`: never.
    pub until: Option<Moment>,
    /// The lists of permitted and refused visitors. An absent list is inherited from the client.
    pub visitors: VisitorLists,
    /// The header that tells the target the visitor's address; `None`: no header.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Who may use an exit, and for what; empty unless [`Target::is_exit`].
    pub exit: Exit,
    /// The file of users whose hashes are part of the terms; `None`: no file.
    pub user_file: Option<UserFile>,
    /// `forwarded: false`: the targets of an `https://` name are not told about the visitor.
    pub unforwarded: bool,
    /// How files are served; the default for a target other than [`Target::Files`].
    pub files: Files,
    /// Whether datagrams may go to all machines of a network. A server cannot request this.
    pub broadcast: bool,
    /// Whether the client records the latest requests of the visitors for inspection.
    pub requests: bool,
}

/// A file of users of `basic_auth`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserFile {
    /// The path as written.
    pub path: PathBuf,
    /// The number of hashes of the terms that are not of the file. They come first.
    pub inline: usize,
}

/// How the client verifies the certificate of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetTls {
    /// The requirement for the certificate. `None`: any certificate is accepted (`insecure`).
    pub trust: Option<Trust>,
    /// The name that the certificate must have and that is sent to the target (SNI); `None`: the
    /// host of the target.
    pub server_name: Option<Host>,
}

impl Default for TargetTls {
    fn default() -> Self {
        Self { trust: Some(Trust::System), server_name: None }
    }
}

/// How the client serves the files of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Whether a directory without `index.html` is listed.
    pub list: bool,
    /// The files that are served if the path of a request names none, in the order in which they
    /// are tried: paths relative to the directory. `{path}` stands for the path of the request.
    pub try_files: Vec<String>,
    /// The only file of the directory that is served; only `tunnel share` sets it.
    pub only: Option<String>,
}

/// The settings of a service whose visitors choose what the client dials (`socks5`, `http-proxy`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Pairs `user:password`, one of which a visitor must present; user and password have at most
    /// 255 bytes each (RFC 1929). If empty, the exit requires no password, and the configuration
    /// restricts its visitors otherwise.
    pub basic_auth: Vec<Secret>,
    /// The destinations that visitors may reach. `None`: every ordinary destination, as with the
    /// right `*:*` ([`ForwardRights::ordinary`]).
    pub allow: Option<ForwardRights>,
}

/// Lists of visitors as written. Absent lists are inherited; empty lists are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VisitorLists {
    /// Only these networks may visit.
    pub allow_from: Option<Arc<[Network]>>,
    /// These networks may not visit.
    pub deny_from: Option<Arc<[Network]>>,
}

impl Service {
    /// Whether only the name, addresses, target and command line options
    /// ([`ServiceOptions`](crate::ServiceOptions)) are set.
    pub(crate) fn is_short(&self) -> bool {
        let (http, basic_auth) = (self.terms.http.clone(), Vec::new());
        let http =
            HttpOptions { basic_auth, hashes: Vec::new(), path: None, host_rewrite: None, ..http };
        let terms = ServiceTerms { http, ..self.terms.clone() };
        let trust = self.target_tls.trust.as_ref();
        let is_of_flags = matches!(trust, None | Some(Trust::System | Trust::Ca(_)))
            && self.target_tls.server_name.is_none();
        self.visitors.deny_from.is_none()
            && self.private.is_none()
            && self.user_file.is_none()
            && !self.unforwarded
            && self.proxy_protocol.is_none()
            && is_of_flags
            && self.spread == Spread::default()
            && self.health.is_none()
            && terms == ServiceTerms::default()
            && self.exit.allow.is_none()
            && self.files == Files::default()
            && !self.requests
            && self.limits == FlowLimits::default()
            && self.stream_limits == Limits::default()
    }

    /// The targets with their weights; the first is [`Self::target`].
    pub fn targets(&self) -> impl Iterator<Item = (&Target, u16)> {
        let others = self.spread.others.iter().map(|other| (&other.target, other.weight));
        std::iter::once((&self.target, self.spread.weight)).chain(others)
    }

    /// The targets in readable form.
    #[must_use]
    pub fn aims(&self) -> String {
        let all: Vec<_> = self.targets().map(|(target, _)| target.to_string()).collect();
        all.join(", ")
    }

    /// Whether other clients may serve the same addresses.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.terms.shared.is_some()
    }

    /// The HTTP options as configured.
    #[must_use]
    pub const fn http(&self) -> &HttpOptions {
        &self.terms.http
    }

    /// The HTTP options as sent to the server: including those that follow from the public
    /// addresses and the targets.
    pub(crate) fn http_terms(&self) -> HttpOptions {
        let mut http = self.terms.http.clone();
        let is_https =
            |public: &Public| matches!(public, Public::Name { kind: NameKind::Https, .. });
        // A target that does not know of the visitors' TLS takes its own address to be `http://`.
        http.forwarded |=
            !self.unforwarded && http.redirect.is_none() && self.public.iter().any(is_https);
        if http.need_proxy() {
            let ports = self.targets().filter_map(|(target, _)| target.port());
            for (_, port) in ports {
                if http.ports.len() < PORTS_MAX && !http.ports.contains(&port) {
                    http.ports.push(port);
                }
            }
        }
        http
    }

    /// Whether HTTP visitors need a user name and a password.
    #[must_use]
    pub fn asks_for_passwords(&self) -> bool {
        !self.terms.http.basic_auth.is_empty() || !self.terms.http.hashes.is_empty()
    }

    /// The public addresses in readable form, or `private`.
    #[must_use]
    pub fn places(&self) -> String {
        if self.private.is_some() {
            return PRIVATE.to_owned();
        }
        let public: Vec<_> = self.public.iter().map(ToString::to_string).collect();
        public.join(", ")
    }

    /// Whether visitors come over UDP, over TCP (also to a name), or both.
    #[must_use]
    pub fn carries(&self, over: Over) -> bool {
        if self.private.is_some() {
            return over
                == if matches!(self.target, Target::Udp { .. }) { Over::Udp } else { Over::Tcp };
        }
        self.public.iter().any(|public| public.over() == over)
    }

    /// Takes over all settings of another service except name, addresses, target and expiry, and
    /// except the command line options that this service sets.
    pub(crate) fn take_settings(&mut self, from: &Self) {
        let own = mem::replace(self, from.clone());
        let Self { name, target, spread, public, kept, until, target_tls, broadcast, .. } = own;
        let target = Self { name, target, spread, public, kept, until, ..from.clone() };
        *self = Self { private: None, ..target };
        self.broadcast |= broadcast;
        if !self.public.iter().all(Public::is_http) {
            // The options applied to the names of the other service.
            self.terms.http = HttpOptions::default();
            self.user_file = None;
        }
        let is_https =
            |public: &Public| matches!(public, Public::Name { kind: NameKind::Https, .. });
        if self.public.iter().any(is_https) {
            self.terms.http.pass_through = false;
        }
        if target_tls != TargetTls::default() {
            self.target_tls = target_tls;
        }
        let HttpOptions { basic_auth, hashes, path, host_rewrite, .. } = own.terms.http;
        if !basic_auth.is_empty() || !hashes.is_empty() {
            let http = &mut self.terms.http;
            (http.basic_auth, http.hashes, self.user_file) = (basic_auth, hashes, None);
        }
        if path.is_some() {
            self.terms.http.path = path;
        }
        if host_rewrite.is_some() {
            self.terms.http.host_rewrite = host_rewrite;
        }
        if own.visitors.allow_from.is_some() {
            self.visitors.allow_from = own.visitors.allow_from;
        }
        if !own.exit.basic_auth.is_empty() {
            self.exit.basic_auth = own.exit.basic_auth;
        }
        self.drop_unfit();
    }

    /// The service as a command adds it that ends it again: the server does not remember its names.
    #[must_use]
    pub fn of_the_moment(mut self) -> Self {
        self.kept = true;
        self.terms.ephemeral = true;
        self
    }

    /// Whether `known` has the addresses, the target and all command line options of this service.
    /// The name and the expiry are ignored.
    #[must_use]
    pub fn is_in(&self, known: &Self) -> bool {
        let mut whole = self.clone();
        whole.take_settings(known);
        (whole.kept, whole.until) = (known.kept, known.until);
        whole.name.clone_from(&known.name);
        // Files of earlier versions have the address instead of `localhost`.
        if whole.target.to_string().replace("://localhost:", "://127.0.0.1:")
            == known.target.to_string()
        {
            whole.target.clone_from(&known.target);
        }
        whole == *known
    }

    /// Drops the settings that a former kind of target had.
    fn drop_unfit(&mut self) {
        let dials = match self.target {
            Target::Tcp { .. }
            | Target::Udp { .. }
            | Target::Https { .. }
            | Target::H2c { .. }
            | Target::Tls { .. }
            | Target::Unix(_) => true,
            Target::Socks5
            | Target::HttpProxy
            | Target::Files(_)
            | Target::Redirect(_)
            | Target::Private(_) => false,
        };
        if !dials || self.carries(Over::Udp) {
            self.proxy_protocol = None;
        }
        let is_udp = self.health.as_ref().is_some_and(|check| check.udp.is_some());
        if !dials || !self.carries(if is_udp { Over::Udp } else { Over::Tcp }) {
            self.health = None;
        }
        if !self.target.is_exit() {
            self.exit = Exit::default();
        }
        if !matches!(self.target, Target::Https { .. }) {
            self.target_tls = TargetTls::default();
        }
        self.broadcast &= self.carries(Over::Udp);
        self.terms.http.target = if self.public.iter().all(Public::is_http) {
            self.target.protocol()
        } else {
            TargetProtocol::Http
        };
        if !matches!(self.target, Target::Redirect(_)) {
            self.terms.http.redirect = None;
        }
        if !matches!(self.target, Target::Files(_)) {
            self.files = Files::default();
        }
    }

    /// Whether anybody who reaches the server could use the exit. `visitors` are the lists of the
    /// service.
    pub(crate) fn is_open_exit(&self, visitors: &Visitors) -> bool {
        let everybody = |list: &Arc<[Network]>| list.iter().any(|network| network.prefix() == 0);
        let is_local = |public: &Public| match public {
            Public::Tcp { bind: Some(ip), .. } => ip.to_canonical().is_loopback(),
            Public::Tcp { bind: None, .. } | Public::Udp { .. } | Public::Name { .. } => false,
        };
        self.target.is_exit()
            && self.exit.basic_auth.is_empty()
            && visitors.allow_from.as_ref().is_none_or(everybody)
            && !self.public.iter().all(is_local)
    }

    /// The settings beside addresses, for people: `, allow_from [10.0.0.0/8], PROXY protocol v2`.
    pub(super) fn extras(&self, visitors: &Visitors) -> String {
        let mut extras = String::new();
        if let Some(Private { visitors: named, tls, browser }) = &self.private {
            let shown: Vec<_> = named.iter().take(SHOWN).map(|one| one.name.to_string()).collect();
            let more = named.len() - shown.len();
            extras.push_str(&format!(", visitors [{}", shown.join(", ")));
            extras.push_str(&if more > 0 { format!(" and {more} more]") } else { "]".to_owned() });
            if let Some(tls) = tls {
                let ca = tls.ca.display();
                extras.push_str(&format!(", visitors without a token by certificates of {ca}"));
            }
            extras.push_str(if *browser { ", also browsers" } else { "" });
        }
        let Visitors { allow_from, deny_from } = visitors;
        let denies = (!deny_from.is_empty()).then_some(deny_from);
        for (key, list) in [("allow_from", allow_from.as_ref()), ("deny_from", denies)] {
            let Some(list) = list else { continue };
            let shown: Vec<_> = list.iter().take(SHOWN).map(ToString::to_string).collect();
            let more = list.len() - shown.len();
            extras.push_str(&format!(", {key} [{}", shown.join(", ")));
            extras.push_str(&if more > 0 { format!(" and {more} more]") } else { "]".to_owned() });
        }
        if !self.spread.others.is_empty() {
            extras.push_str(&format!(", {}", self.spread.balance));
        }
        if let Some(until) = self.until {
            extras.push_str(&format!(", until {until}"));
        }
        if let Some(version) = self.proxy_protocol {
            extras.push_str(&format!(", PROXY protocol {version}"));
        }
        if !self.terms.dscp.is_default() {
            extras.push_str(&format!(", dscp {}", self.terms.dscp));
        }
        let TargetTls { trust, server_name } = &self.target_tls;
        match trust {
            Some(Trust::System) => {}
            Some(Trust::Pins(pins)) => {
                extras.push_str(&format!(", target pin {}", pins.join(", ")))
            }
            Some(Trust::Ca(file)) => extras.push_str(&format!(", target ca {}", file.display())),
            None => extras.push_str(", target not verified"),
        }
        if let Some(name) = server_name {
            extras.push_str(&format!(", target name {name}"));
        }
        let Exit { basic_auth: users, allow } = &self.exit;
        if !users.is_empty() {
            extras.push_str(", basic_auth");
        }
        if let Some(ForwardRights(allow)) = allow {
            let shown: Vec<_> = allow.iter().map(ToString::to_string).collect();
            extras.push_str(&format!(", may reach [{}]", shown.join(", ")));
        }
        let Files { list, try_files, only: _ } = &self.files;
        if *list {
            extras.push_str(", list");
        }
        if !try_files.is_empty() {
            extras.push_str(&format!(", try_files [{}]", try_files.join(", ")));
        }
        let HttpOptions { pass_through, basic_auth, host_rewrite, request, response, .. } =
            &self.terms.http;
        let HttpOptions { forwarded, path, compress, strip_prefix, hsts, hashes, .. } =
            &self.terms.http;
        if let Some(path) = path {
            extras.push_str(&format!(", path {path}"));
        }
        if let Some(path) = strip_prefix {
            extras.push_str(&format!(" as {path}"));
        }
        if let Some(seconds) = hsts {
            extras.push_str(&format!(", hsts {}", Span::from_millis(u64::from(*seconds) * 1000)));
        }
        if let Some(host) = host_rewrite {
            extras.push_str(&format!(", Host {host}"));
        }
        for (is_set, what) in [
            (*pass_through, "pass_through"),
            (!basic_auth.is_empty() || !hashes.is_empty(), "basic_auth"),
            (!request.is_empty(), "headers"),
            (!response.is_empty(), "response_headers"),
            (*forwarded, "forwarded"),
            (self.unforwarded, "not forwarded"),
            (self.terms.http.preflight_pass, "preflight pass"),
            (self.terms.http.no_https_redirect, "no redirect from http://"),
            (self.terms.ephemeral, "not remembered"),
            (self.terms.shared.is_some(), "shared"),
            (self.terms.http.sticky != Sticky::Off, "sticky cookie"),
            (self.broadcast, "broadcast"),
            (self.requests, "requests kept"),
            (*compress == Compress::Public, "compress"),
            (*compress == Compress::Always, "compress always"),
        ] {
            if is_set {
                extras.push_str(&format!(", {what}"));
            }
        }
        extras
    }
}

/// The version of the PROXY protocol that tells a target the visitor's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

impl fmt::Display for ProxyProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        })
    }
}

/// A public address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Public {
    /// A TCP port of the server.
    Tcp {
        /// IP address of the listener; `None`: the server's `public_bind`.
        bind: Option<IpAddr>,
        /// 0: the server chooses a port and reports it.
        port: u16,
    },
    /// A UDP port of the server.
    Udp {
        /// IP address of the socket; `None`: the server's `public_bind`.
        bind: Option<IpAddr>,
        /// 0: the server chooses a port and reports it.
        port: u16,
    },
    /// A host name at ports that all clients share.
    Name {
        /// How visitors of the name are served.
        kind: NameKind,
        /// A DNS name in lower case without a dot at the end, `*.` and such a name, or `*` for
        /// every host without a service of its own. A host of one label is below the server's
        /// `http.domain`. In [`Lists`], the first label may be `{name}`; in a [`ClientConfig`] it
        /// is replaced by the label of the client.
        host: String,
    },
}

impl Public {
    /// Whether the server reads HTTP requests at this address.
    #[must_use]
    pub const fn is_http(&self) -> bool {
        match self {
            Self::Name { kind, .. } => kind.is_http(),
            Self::Tcp { .. } | Self::Udp { .. } => false,
        }
    }

    /// The protocol over which visitors come.
    #[must_use]
    pub const fn over(&self) -> Over {
        match self {
            Self::Tcp { .. } | Self::Name { .. } => Over::Tcp,
            Self::Udp { .. } => Over::Udp,
        }
    }

    /// A port of this protocol.
    pub(crate) const fn of_port(over: Over, bind: Option<IpAddr>, port: u16) -> Self {
        match over {
            Over::Tcp => Self::Tcp { bind, port },
            Over::Udp => Self::Udp { bind, port },
        }
    }
}

impl fmt::Display for Public {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { bind, port } | Self::Udp { bind, port } => {
                let host = bind.map(|ip| Host::Ip(ip).to_string()).unwrap_or_default();
                write!(f, "{}://{host}:{port}", self.over())
            }
            Self::Name { kind, host } => write!(f, "{kind}://{host}"),
        }
    }
}

/// The largest number of UDP flows at one address. Absent limits get the defaults of the role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowLimits {
    /// In all.
    pub most: Option<NonZeroU32>,
    /// The largest number per source address.
    pub per_source: Option<NonZeroU32>,
}

/// A local listener whose target the server dials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The address on the client's side.
    pub listen: Local,
    /// The address that the server dials: [`Target::Tcp`], [`Target::Udp`] or [`Target::Unix`],
    /// with the protocol of the listener. `None` exactly where programs name their destination
    /// ([`Local::is_proxy`]). [`Target::Private`]: a service of another client.
    pub target: Option<Target>,
    /// The token for a private service; `None`: the token of [`ClientConfig::visits`].
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
    /// These load balancers: [`ClientConfig::trusted_proxies`] where the forward has
    /// [`Self::accept_proxy`], else empty.
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

impl ClientConfig {
    /// The keys whose values differ in `other`. `servers` covers all settings of a path.
    #[must_use]
    pub fn differs(&self, other: &Self) -> Vec<Changed> {
        let Self {
            servers,
            name,
            token,
            introduce,
            connections,
            // Its changes appear in the names of the services.
            id_prefix: _,
            visitors,
            services,
            forwards,
            visits,
            p2p,
            // Visitors do not see it.
            shadowed: _,
            retry_min,
            retry_max,
            trusted_proxies,
            limits,
            common,
        } = self;
        // The path of the token file is irrelevant; only the token counts.
        let secret = |token: &Option<Token>| token.as_ref().map(|token| token.secret.clone());
        let retry = (*retry_min, *retry_max) != (other.retry_min, other.retry_max);
        let own = [
            (*servers != other.servers, Changed::reconnect("servers")),
            (*name != other.name, Changed::restart("name")),
            (secret(token) != secret(&other.token), Changed::reconnect("token")),
            (*introduce != other.introduce, Changed::reconnect("introduce")),
            (*connections != other.connections, Changed::reconnect("connections")),
            (visitors.allow_from != other.visitors.allow_from, Changed::live("allow_from")),
            (visitors.deny_from != other.visitors.deny_from, Changed::live("deny_from")),
            (*services != other.services, Changed::live("services")),
            (*forwards != other.forwards, Changed::live("forwards")),
            (*visits != other.visits, Changed::live("visits")),
            (*p2p != other.p2p, Changed::live("p2p")),
            (retry, Changed::reconnect("retry")),
            (*trusted_proxies != other.trusted_proxies, Changed::live("trusted_proxies")),
            (*limits != other.limits, Changed::live("limits")),
        ];
        changes(own).chain(common.differs(&other.common)).collect()
    }

    /// The configuration in force after a reload of a process that runs with `running`. Keys that
    /// need a restart keep their running values.
    #[must_use]
    pub fn reloaded(mut self, running: &Self) -> Self {
        self.name.clone_from(&running.name);
        self.common.keep(&running.common);
        self
    }

    /// The terms for the visitors of a service of this client.
    #[must_use]
    pub fn terms_of(&self, service: &Service) -> ServiceTerms {
        let private = service.private.as_ref().map(Private::patterns);
        // The client's lists of networks apply only to visitors with an address.
        let visitors =
            if private.is_some() { Visitors::default() } else { self.visitors_of(service) };
        ServiceTerms { visitors, private, http: service.http_terms(), ..service.terms.clone() }
    }

    /// The URL that a visitor uses for a public address of a service: the address, and for a name
    /// also the path of the requests.
    #[must_use]
    pub fn url(&self, service: &Service, address: &str) -> String {
        let is_http = ["http://", "https://"].iter().any(|scheme| address.starts_with(scheme));
        let path = self.terms_of(service).http.path.filter(|_| is_http).unwrap_or_default();
        format!("{address}{path}")
    }

    /// Which visitors may use a service of this client.
    pub(crate) fn visitors_of(&self, service: &Service) -> Visitors {
        let (own, default) = (&service.visitors, &self.visitors);
        let allow_from = own.allow_from.as_ref().or(default.allow_from.as_ref());
        let deny_from = own.deny_from.as_ref().or(default.deny_from.as_ref());
        Visitors {
            allow_from: allow_from.cloned(),
            deny_from: deny_from.cloned().unwrap_or_default(),
        }
    }

    /// The pins that this client trusts, each once.
    #[must_use]
    pub fn pins(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for path in &self.servers {
            if let Trust::Pins(pins) = &path.trust {
                all.extend(
                    pins.iter().filter(|pin| !all.contains(pin)).cloned().collect::<Vec<_>>(),
                );
            }
        }
        all
    }

    /// A summary of the configuration, line by line.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .servers
            .iter()
            .map(|p| {
                let proxy = p.proxy.as_ref().map(|proxy| format!(" through {proxy}"));
                let dscp = (!p.dscp.is_default()).then(|| format!(", dscp {}", p.dscp));
                let (proxy, dscp) = (proxy.unwrap_or_default(), dscp.unwrap_or_default());
                format!("client {} to {}{proxy}{dscp}", self.name, p.endpoint)
            })
            .collect();
        lines.extend(self.pins().iter().map(|pin| format!("trusts a server with the pin {pin}")));
        for service in &self.services {
            lines.push(format!(
                "service {}: {} -> {}{}{}",
                service.name,
                service.places(),
                service.aims(),
                service.extras(&self.terms_of(service).visitors),
                self.origin(service.kept, &service.name)
            ));
        }
        for forward in &self.forwards {
            let auth = if forward.basic_auth.is_empty() { "" } else { ", basic_auth" };
            let origin = self.origin(forward.kept, &forward.listen.to_string());
            let how = match forward.private() {
                Some(service) => format!("a private service of client {}", service.client),
                None => "dialled by the server".to_owned(),
            };
            lines.push(format!("forward {forward} ({how}){auth}{origin}"));
        }
        lines
    }

    /// The origin of an entry, and the entry that it shadows.
    fn origin(&self, kept: bool, name: &str) -> String {
        let mut notes = Vec::new();
        if kept {
            notes.push("added at run time".to_owned());
        }
        let behind = self.shadows().into_iter().filter(|shadow| shadow.by == name);
        notes.extend(behind.map(|shadow| format!("in the place of {}", shadow.of)));
        if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) }
    }
}

//! The one file that lists the transports: from a URL of the configuration to a listener or a
//! dialer.

mod quic;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use config::{Endpoint, Host, ServerConfig, Transport};
use net::Current;
use tls::{Identity, Trust};
use transport::{Dialer, Listener};
use transport_quic::{QuicDialer, QuicListener};
use transport_tcp::{ProxyKind, Speech, TcpDialer, TcpListener, TlsClient, Via};
use transport_ws::{Proxies, Request, Terms, WsDialer, WsListener};

use crate::identity;
use quic::QuicSide;

/// What a WebSocket may be still for at most: nginx and most load balancers close after 60 s, some
/// after 30 s, and up to twice this time can pass.
const STILL: Duration = Duration::from_secs(14);

/// What the listeners of a server have in common.
#[derive(Clone, Debug)]
pub(crate) struct ServerSide {
    /// For our own protocol, and for HTTP in front of it.
    tls: Option<[Current<tls::ServerConfig>; 2]>,
    /// Where one of the listeners is `quic://`.
    quic: Option<QuicSide>,
    terms: Current<Terms>,
}

/// One port, a socket for each worker.
#[derive(Debug)]
pub(crate) enum Bound {
    Tcp(Vec<std::net::TcpListener>),
    Udp(Vec<std::net::UdpSocket>),
}

/// One of them: of which worker, of how many.
#[derive(Debug)]
pub(crate) struct OneSocket {
    socket: AnySocket,
    worker: usize,
    workers: usize,
}

#[derive(Debug)]
enum AnySocket {
    Tcp(std::net::TcpListener),
    Udp(std::net::UdpSocket),
}

impl Bound {
    /// Where it listens.
    pub(crate) fn local_addr(&self) -> anyhow::Result<SocketAddr> {
        let address = match self {
            Self::Tcp(group) => group.first().map(std::net::TcpListener::local_addr),
            Self::Udp(group) => group.first().map(std::net::UdpSocket::local_addr),
        };
        Ok(address.context("no socket")??)
    }

    /// In the order of the workers.
    pub(crate) fn by_worker(self) -> Vec<OneSocket> {
        let all: Vec<_> = match self {
            Self::Tcp(group) => group.into_iter().map(AnySocket::Tcp).collect(),
            Self::Udp(group) => group.into_iter().map(AnySocket::Udp).collect(),
        };
        let workers = all.len();
        let one = |(worker, socket)| OneSocket { socket, worker, workers };
        all.into_iter().enumerate().map(one).collect()
    }
}

impl ServerSide {
    /// Reads the authorities of clients, and from `state` what `quic://` keeps there. Without an
    /// identity there is no TLS.
    pub(crate) fn new(
        config: &ServerConfig,
        identity: Option<&Identity>,
        state: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let tls = identity.map(|identity| tls_sides(config, identity)).transpose()?;
        let tls: Option<[Current<_>; 2]> = tls.map(|both| both.map(Into::into));
        let wanted = config.listen.iter().any(|endpoint| endpoint.transport == Transport::Quic);
        let quic = match &tls {
            Some([tunnel, _]) if wanted => Some(QuicSide::new(config, tunnel.clone(), state)?),
            Some(_) | None => None,
        };
        Ok(Self { tls, quic, terms: terms(config).into() })
    }

    /// Whether one of the listeners speaks TLS.
    pub(crate) const fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Gives the listeners that there are what a configuration says now. Returns what puts it in
    /// force, when nothing can fail any more.
    pub(crate) fn renew(
        &self,
        config: &ServerConfig,
        identity: Option<&Identity>,
    ) -> anyhow::Result<impl FnOnce() + use<>> {
        let new = identity.map(|identity| tls_sides(config, identity)).transpose()?;
        let (side, terms) = (self.clone(), terms(config));
        let quic = self.quic.as_ref().map(|quic| quic.renewal(config)).transpose()?;
        Ok(move || {
            quic.into_iter().for_each(|renew| renew());
            for (current, new) in side.tls.iter().flatten().zip(new.into_iter().flatten()) {
                current.replace(new);
            }
            side.terms.replace(Arc::new(terms));
        })
    }

    /// Takes the port, once for each worker.
    pub(crate) fn bind(
        &self,
        endpoint: &Endpoint,
        common: &config::Common,
        workers: usize,
    ) -> anyhow::Result<Bound> {
        let address = listen_address(endpoint)?;
        if let (Transport::Quic, Some(quic)) = (endpoint.transport, &self.quic) {
            return Ok(Bound::Udp(quic.bind(endpoint, address, workers, &common.quic)?));
        }
        let group = net::listen_group(address, workers).map_err(|e| {
            let advice = bind_advice(e.kind());
            anyhow::anyhow!("cannot listen on {endpoint}: {e}{advice}")
        })?;
        Ok(Bound::Tcp(group))
    }

    /// A listener on one socket of a group.
    pub(crate) fn listener(
        &self,
        endpoint: &Endpoint,
        one: OneSocket,
    ) -> io::Result<Box<dyn Listener>> {
        let OneSocket { socket, worker, workers } = one;
        let socket = match (socket, &self.quic) {
            (AnySocket::Tcp(socket), _) => socket,
            (AnySocket::Udp(socket), Some(quic)) => {
                let listener = QuicListener::new(socket, worker, workers, &quic.server)?;
                return Ok(Box::new(listener));
            }
            (AnySocket::Udp(_), None) => {
                return Err(io::Error::other("quic:// without a certificate"));
            }
        };
        let [tunnel, http] = self.tls.clone().map_or([None, None], |tls| tls.map(Some));
        Ok(match endpoint.transport {
            Transport::Tls | Transport::Quic => Box::new(TcpListener::new(socket, tunnel)?),
            Transport::Tcp => Box::new(TcpListener::new(socket, None)?),
            Transport::Wss => self.web_socket(endpoint, TcpListener::new(socket, http)?),
            Transport::Ws => self.web_socket(endpoint, TcpListener::new(socket, None)?),
        })
    }

    fn web_socket(&self, endpoint: &Endpoint, inner: TcpListener) -> Box<dyn Listener> {
        let inner = inner.speaking(Speech::Http);
        Box::new(WsListener::new(inner, endpoint.path.as_deref(), self.terms.clone()))
    }
}

/// For our own protocol, and for HTTP in front of it.
fn tls_sides(
    config: &ServerConfig,
    identity: &Identity,
) -> anyhow::Result<[Arc<tls::ServerConfig>; 2]> {
    let client_ca = config.tls.client_ca.as_deref();
    let side =
        |speech: Speech| tls::server_config(identity, client_ca, &[speech.alpn()]).context("tls");
    Ok([side(Speech::Tunnel)?, side(Speech::Http)?])
}

fn terms(config: &ServerConfig) -> Terms {
    let trusted = config.trusted_proxies.clone();
    let proxies = Proxies::new(move |ip| trusted.iter().any(|net| net.contains(ip)));
    Terms { proxies, ping_after: ping_after(&config.common) }
}

fn ping_after(common: &config::Common) -> Duration {
    STILL.min(common.keepalive.duration())
}

/// The address that a listener's URL names.
pub(crate) fn listen_address(endpoint: &Endpoint) -> anyhow::Result<SocketAddr> {
    match &endpoint.host {
        Host::Ip(ip) => Ok(SocketAddr::new(*ip, endpoint.port)),
        Host::Name(name) => {
            let found = std::net::ToSocketAddrs::to_socket_addrs(&(name.as_str(), endpoint.port));
            let first = found.with_context(|| format!("{endpoint}: resolving {name}"))?.next();
            first.with_context(|| format!("{endpoint}: {name} has no address"))
        }
    }
}

/// A path to a server, checked; each worker makes its own dialer of it.
#[derive(Clone, Debug)]
pub struct Way {
    url: String,
    host: String,
    port: u16,
    tls: Option<TlsClient>,
    /// Of `quic://`, with the tickets that all its dialers share.
    quic: Option<QuicDialer>,
    /// Of `wss://` and `ws://`.
    request: Option<Request>,
    ping_after: Duration,
    /// Where the proxy is, and what it is asked.
    proxy: Option<(String, u16, Via)>,
}

impl Way {
    /// Reads certificates and pins.
    pub fn new(path: &config::Path, common: &config::Common) -> anyhow::Result<Self> {
        let endpoint = &path.endpoint;
        let host = plain(&endpoint.host);
        let url = endpoint.to_string();
        let tls = (endpoint.transport.has_tls()).then(|| tls_client(path, &host)).transpose();
        let tls = tls.with_context(|| url.clone())?;
        let quic = match &tls {
            Some(tls) if endpoint.transport == Transport::Quic => Some(quic_dialer(tls, common)?),
            Some(_) | None => None,
        };
        let request = endpoint.transport.is_http().then(|| request(path)).transpose();
        let request = request.with_context(|| url.clone())?;
        let ping_after = ping_after(common);
        let port = endpoint.port;
        let proxy = path.proxy.as_ref().map(|proxy| via(proxy, &host, port));
        Ok(Self { url, host, port, tls, quic, request, ping_after, proxy })
    }

    /// The host as configured.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The path of a link, with a dialer of this thread. Links of consecutive numbers come to
    /// different workers of the server, where the transport lets the client say so.
    pub(crate) fn path_of_link(&self, number: u8) -> link::Path {
        let mut path = self.path();
        if let Some(quic) = &self.quic {
            path.dialer = Rc::new(quic.clone().steered(number));
        }
        path
    }

    /// The path with a dialer of this thread.
    pub fn path(&self) -> link::Path {
        // The proxy is who is dialled; it resolves the server's name.
        let (host, port) = match &self.proxy {
            Some((host, port, _)) => (host, *port),
            None => (&self.host, self.port),
        };
        // What fails on the way may be the proxy.
        let url = match &self.proxy {
            Some((host, port, _)) => format!("{} (proxy {host}:{port})", self.url),
            None => self.url.clone(),
        };
        link::Path { url, host: host.clone(), port, dialer: self.dialer() }
    }

    /// The way without what makes a WebSocket of it.
    pub fn bare(&self) -> link::Path {
        let dialer = Rc::new(TcpDialer::new(self.tls.clone()).speaking(Speech::Http));
        link::Path { url: self.url.clone(), host: self.host.clone(), port: self.port, dialer }
    }

    fn dialer(&self) -> Rc<dyn Dialer> {
        if let Some(quic) = &self.quic {
            return Rc::new(quic.clone());
        }
        let via = self.proxy.as_ref().map(|(_, _, via)| via.clone());
        let inner = TcpDialer::new(self.tls.clone()).through(via);
        match &self.request {
            None => Rc::new(inner),
            Some(request) => {
                let inner = inner.speaking(Speech::Http);
                Rc::new(WsDialer::new(inner, request.clone(), self.ping_after))
            }
        }
    }
}

fn quic_dialer(tls: &TlsClient, common: &config::Common) -> anyhow::Result<QuicDialer> {
    let tls = transport_quic::TlsClient { config: Arc::clone(&tls.config), name: tls.name.clone() };
    let dialer = QuicDialer::new(&tls, quic::settings(common), quic::buffers(&common.quic));
    dialer.context("quic")
}

/// A host without brackets.
fn plain(host: &Host) -> String {
    match host {
        Host::Ip(ip) => ip.to_string(),
        Host::Name(name) => name.clone(),
    }
}

fn via(proxy: &config::Proxy, host: &str, port: u16) -> (String, u16, Via) {
    let kind = match proxy.kind {
        config::ProxyKind::Http => ProxyKind::Http,
        config::ProxyKind::Socks5 => ProxyKind::Socks5,
    };
    let credentials = proxy.credentials.as_ref();
    let credentials =
        credentials.map(|(user, password)| (user.clone(), password.reveal().to_owned()));
    (plain(&proxy.host), proxy.port, Via { kind, host: host.to_owned(), port, credentials })
}

/// What is asked for in the opening handshake of a WebSocket.
pub fn request(path: &config::Path) -> Result<Request, transport_ws::BadField> {
    let Endpoint { transport, host, port, path: place } = &path.endpoint;
    // RFC 9110 section 7.2: the port is left out where it is the scheme's own.
    let host =
        if *port == transport.default_port() { host.to_string() } else { format!("{host}:{port}") };
    let extra: Vec<_> = (path.headers.iter())
        .map(|field| (field.name.clone(), field.value.reveal().to_owned()))
        .collect();
    Request::new(place.as_deref().unwrap_or("/"), &host, &extra)
}

fn tls_client(path: &config::Path, host: &str) -> anyhow::Result<TlsClient> {
    let trust = match &path.trust {
        config::Trust::System => Trust::System,
        config::Trust::Ca(file) => Trust::Authority(file.clone()),
        config::Trust::Pins(pins) => {
            let pins: Result<Vec<_>, _> = pins.iter().map(|pin| pin.parse()).collect();
            Trust::Pins(pins?)
        }
    };
    let identity =
        path.identity.as_ref().map(|pair| Identity::load(&pair.cert, &pair.key)).transpose()?;
    if let (Some(identity), Some(pair)) = (&identity, &path.identity) {
        identity::warn_of_dates(identity, &pair.cert);
    }
    let speech = if path.endpoint.transport.is_http() { Speech::Http } else { Speech::Tunnel };
    let config = tls::client_config(&trust, identity.as_ref(), &[speech.alpn()])?;
    let name = tls::server_name(path.sni.as_deref().unwrap_or(host))?;
    Ok(TlsClient { config, name })
}

/// All of them, or a line for each that could not be had: who runs into one taken port shall not
/// find the next one only at the next start.
pub(crate) fn all_bound<T>(
    each: impl Iterator<Item = anyhow::Result<T>>,
) -> anyhow::Result<Vec<T>> {
    let (mut bound, mut failed) = (Vec::new(), Vec::new());
    for outcome in each {
        match outcome {
            Ok(group) => bound.push(group),
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    // Each line as the first one will be written.
    anyhow::ensure!(failed.is_empty(), "{}", failed.join("\ntunnel: "));
    Ok(bound)
}

/// What to do about a listener that does not bind, as the end of a line.
pub(crate) fn bind_advice(kind: io::ErrorKind) -> &'static str {
    if kind == io::ErrorKind::AddrInUse {
        " (another program listens there: see `ss -ltunp`, or choose another port)"
    } else if kind == io::ErrorKind::PermissionDenied {
        " (ports below 1024 need CAP_NET_BIND_SERVICE; the systemd unit gives it)"
    } else if kind == io::ErrorKind::AddrNotAvailable {
        " (this machine does not have that address)"
    } else {
        ""
    }
}

//! The one file that lists the transports: from a URL of the configuration to a listener or a
//! dialer.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context;
use config::{Endpoint, Host, ServerTls, Transport};
use transport::tls::{Identity, Trust};
use transport::{ALPN, Listener};
use transport_tcp::{TcpDialer, TcpListener, TlsClient};

use crate::material;

/// TLS of a server's listeners.
pub(crate) type ServerSide = Arc<transport::tls::ServerConfig>;

/// Makes the TLS side of a server.
pub(crate) fn server_tls(tls: &ServerTls, identity: &Identity) -> anyhow::Result<ServerSide> {
    let client_ca = tls.client_ca.as_deref();
    transport::tls::server_config(identity, client_ca, &[ALPN]).context("tls")
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

/// A listener of the transport on one socket of a group.
pub(crate) fn listener(
    transport: Transport,
    socket: std::net::TcpListener,
    tls: Option<ServerSide>,
) -> io::Result<Box<dyn Listener>> {
    let tls = match transport {
        Transport::Tls => tls,
        Transport::Tcp => None,
    };
    Ok(Box::new(TcpListener::new(socket, tls)?))
}

/// A path to a server, checked; each worker makes its own dialer of it.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    url: String,
    host: String,
    port: u16,
    tls: Option<TlsClient>,
}

impl Way {
    /// Reads certificates and pins.
    pub(crate) fn new(path: &config::Path) -> anyhow::Result<Self> {
        let endpoint = &path.endpoint;
        let host = match &endpoint.host {
            Host::Ip(ip) => ip.to_string(),
            Host::Name(name) => name.clone(),
        };
        let tls = match endpoint.transport {
            Transport::Tcp => None,
            Transport::Tls => Some(tls_client(path, &host).with_context(|| endpoint.to_string())?),
        };
        Ok(Self { url: endpoint.to_string(), host, port: endpoint.port, tls })
    }

    /// The host as configured.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The path with a dialer of this thread.
    pub(crate) fn path(&self) -> link::Path {
        link::Path {
            url: self.url.clone(),
            host: self.host.clone(),
            port: self.port,
            dialer: Rc::new(TcpDialer::new(self.tls.clone())),
        }
    }
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
        material::warn_of_dates(identity, &pair.cert);
    }
    let config = transport::tls::client_config(&trust, identity.as_ref(), &[ALPN])?;
    let name = transport::tls::server_name(path.sni.as_deref().unwrap_or(host))?;
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
        " (another program listens there: see `ss -ltnp`, or choose another port)"
    } else if kind == io::ErrorKind::PermissionDenied {
        " (ports below 1024 need CAP_NET_BIND_SERVICE; the systemd unit gives it)"
    } else if kind == io::ErrorKind::AddrNotAvailable {
        " (this machine does not have that address)"
    } else {
        ""
    }
}

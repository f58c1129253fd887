//! From a URL of the configuration to a listener or a dialer. Each scheme (`config::Scheme`)
//! belongs to one family of transports, and each family is a module here.
//!
//! ```text
//!   server   Family::listeners -> Listeners::bind, one port -> Bound,
//!            an Opener for each worker -> Listener
//!   client   Family::dials -> Way, checked once -> Dials::dialer, on each worker -> Dialer
//! ```
//!
//! | module | schemes |
//! |---|---|
//! | `tcp` | `tls://`, `tcp://` |
//! | `ws` | `wss://`, `ws://` |
//! | `quic` | `quic://` |
//! | `kcp` | `kcp://` |
//! | `mux` | the carriers among the connections of `mux://` |
//! | `browser` | the page that a WebSocket listener serves to browsers |
//! | `identity` | the certificate of the process |
//! | `budget` | the memory budget of the process, and the part for repairs of `kcp` |
//! | `side`, `way` | a server's listeners and a client's paths to servers, over all families |
//! | `http` | requests of this program to a service that it asks |
//! | `nodes` | `quic://` and `tls://` between the nodes of a cluster |
//! | `material` | certificates, pins and proxies, for every family |

pub mod browser;
pub mod budget;
pub mod http;
pub mod identity;
mod kcp;
mod material;
mod mux;
pub mod nodes;
pub mod quic;
mod side;
mod tcp;
mod way;
mod ws;

use std::fmt::Debug;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use config::{Common, DialOptions, Endpoint, Listen, Scheme, ServerConfig, Size};
use files::peers::{Peers, RecordedPeer};
use net::SocketOptions;
use net::options::Interface;
use net::resolve::Lookups;
use net::source::Proxies;
use net::udp::{self, Buffers, Form, SteeringSlot};
use tls::Identity;
use transport::{Dialer, Listener, PathDialer};
use transport_quic::StunServer;

pub use material::trust;
pub use mux::MuxCarriers;
pub use side::ServerSide;
pub use way::{Detour, Way};
pub use ws::request;

/// All families.
const FAMILIES: [&dyn Family; 4] = [&tcp::Tcp, &ws::Ws, &quic::Quic, &kcp::Kcp];

/// A family: transports that share one kind of listener and one kind of dialer.
trait Family: Sync {
    /// The names of its schemes.
    fn schemes(&self) -> &'static [&'static str];

    /// Checks that this family can use all settings of a path.
    fn check(&self, _path: &config::Path) -> Result<(), Unfit> {
        Ok(())
    }

    /// Prepares the listeners of a server. They share the result.
    fn listeners(&self, setup: &Setup<'_>) -> anyhow::Result<Arc<dyn Listeners>>;

    /// Prepares the dialers of a path. Certificates and pins are read here, once.
    fn dials(&self, path: &config::Path, common: &Common) -> anyhow::Result<Arc<dyn Dials>>;
}

/// The input for the listeners of a server.
#[derive(Debug)]
struct Setup<'a> {
    config: &'a ServerConfig,
    /// The server's certificate. Without it there is no TLS.
    identity: Option<&'a Identity>,
    /// The directory in which a family keeps data for the next process.
    state: Option<&'a Path>,
    /// The STUN server at the UDP ports.
    stun: &'a Arc<StunServer>,
}

/// The listeners of one family of a server.
trait Listeners: Debug + Send + Sync {
    /// Binds the port, with one socket for each worker.
    fn bind(&self, listen: &Listen, common: &Common, workers: usize) -> anyhow::Result<Bound>;

    /// Prepares new settings for later connections. Calling the result applies the settings and
    /// cannot fail.
    fn renew(&self, setup: &Setup<'_>) -> anyhow::Result<Renewal>;
}

/// The dialers of one path to a server.
trait Dials: Debug + Send + Sync {
    /// Makes a dialer for this thread. `link` is the number of the link. Links with consecutive
    /// numbers reach different workers of the server, if the transport lets the client choose the
    /// worker.
    fn dialer(&self, link: Option<u8>) -> Rc<dyn PathDialer>;

    /// Makes a dialer for this thread whose handshake runs inside a lane. `None`: the transport
    /// does not run inside a lane.
    fn inside(&self) -> Option<Rc<dyn Dialer>> {
        None
    }
}

/// Applies prepared settings.
type Renewal = Box<dyn FnOnce()>;

/// Makes a listener from the socket of one worker, on the thread of that worker.
pub(crate) type Opener = Box<dyn FnOnce() -> io::Result<Box<dyn Listener>> + Send>;

/// A bound port.
pub struct Bound {
    /// The address of the port, with the number that the system chose.
    pub address: SocketAddr,
    /// The openers in the order of the workers.
    pub by_worker: Vec<Opener>,
}

impl Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bound").finish_non_exhaustive()
    }
}

/// A key in the settings of a path that the transport cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The key.
    pub key: &'static str,
    /// The problem with its value.
    pub problem: String,
}

fn family(scheme: Scheme) -> anyhow::Result<&'static dyn Family> {
    let found = FAMILIES.into_iter().find(|family| family.schemes().contains(&scheme.name));
    found.with_context(|| format!("{}:// has no transport", scheme.name))
}

/// Checks that the transport of a path can use all its settings.
///
/// # Errors
/// The key that the transport cannot use, and the problem with its value. A scheme without a
/// transport is not an error here.
pub fn check(path: &config::Path) -> Result<(), Unfit> {
    family(path.endpoint.scheme).map_or(Ok(()), |family| family.check(path))
}

/// An address at which this process cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {at}: {text}{}", bind_advice(*kind))]
pub struct Unbound {
    at: String,
    text: String,
    kind: io::ErrorKind,
}

impl Unbound {
    pub fn new(at: &impl ToString, error: &io::Error) -> Self {
        Self { at: at.to_string(), text: error.to_string(), kind: error.kind() }
    }
}

/// The retry period for an address that this machine does not have: it may appear with a DHCP
/// lease, with VRRP, or with a VPN.
pub const AGAIN: Duration = Duration::from_secs(15);

/// Whether the reason of a failed bind is that this machine does not have the address.
pub fn is_absent(error: &anyhow::Error) -> bool {
    let unbound = error.downcast_ref::<Unbound>();
    unbound.is_some_and(|unbound| unbound.kind == io::ErrorKind::AddrNotAvailable)
}

/// Binds a TCP port for each worker. Accepted connections inherit the options of the listener.
fn bind_tcp(listen: &Listen, workers: usize) -> anyhow::Result<Vec<std::net::TcpListener>> {
    let endpoint = &listen.endpoint;
    let group =
        net::listen_group_with(listen_address(endpoint)?, workers, &listener_options(listen))
            .map_err(|e| Unbound::new(endpoint, &e))?;
    net::inherited::store(&group);
    Ok(group)
}

/// The options of the sockets of a listener.
pub fn listener_options(listen: &Listen) -> SocketOptions {
    SocketOptions { dscp: listen.dscp.number(), ..SocketOptions::DEFAULT }
}

/// The options of the connections over a path.
fn dialer_options(path: &config::Path) -> SocketOptions {
    dial_options(&path.dial, SocketOptions::CARRIER)
}

/// The options of sockets that are dialled as a configuration says; `base` has the others.
#[must_use]
pub fn dial_options(dial: &DialOptions, base: SocketOptions) -> SocketOptions {
    let DialOptions { dscp, interface, source } = dial;
    SocketOptions {
        dscp: dscp.number(),
        interface: interface.as_deref().and_then(Interface::new),
        source: *source,
        ..base
    }
}

/// Wraps bound TCP sockets. `open` makes a listener from each socket.
fn bound_tcp(
    group: Vec<std::net::TcpListener>,
    open: impl Fn(std::net::TcpListener) -> io::Result<Box<dyn Listener>> + Clone + Send + 'static,
) -> anyhow::Result<Bound> {
    let address = group.first().context("no socket")?.local_addr()?;
    let by_worker = group.into_iter().map(|socket| -> Opener {
        let open = open.clone();
        Box::new(move || open(socket))
    });
    Ok(Bound { address, by_worker: by_worker.collect() })
}

/// Starts the record of the connections of a UDP transport ([`Peers`]), and returns the connections
/// that an ended process left. The previous process of an upgrade, while it runs, has its own
/// record, and its connections continue.
fn record(folder: &Path, name: &str) -> io::Result<(Peers, Vec<RecordedPeer>)> {
    let of_slot = |slot: u8| if slot == 0 { name.to_owned() } else { format!("{name}-{slot}") };
    let (own, has_former) = udp::slot();
    let (peers, mut left) = Peers::take_all(folder, &of_slot(own))?;
    if !has_former {
        for other in (0..udp::SLOTS).filter(|slot| *slot != own) {
            left.extend(Peers::take_left(folder, &of_slot(other))?);
        }
    }
    Ok((peers, left))
}

/// Binds a UDP port with a socket of these buffers for each worker. `call_back` resets the
/// connections of the previous process through the first socket, so that their clients reconnect at
/// once, and returns their number. `open` makes a listener from a socket and its place in the
/// group.
fn bound_udp(
    listen: &Listen,
    workers: usize,
    (form, buffers): (Form, Buffers),
    call_back: impl FnOnce(&UdpSocket) -> io::Result<usize>,
    open: impl Fn(UdpSocket, SteeringSlot) -> io::Result<Box<dyn Listener>> + Clone + Send + 'static,
) -> anyhow::Result<Bound> {
    let endpoint = &listen.endpoint;
    let group = udp::carrier_group(listen_address(endpoint)?, workers, form)
        .map_err(|e| Unbound::new(endpoint, &e))?;
    let options = SocketOptions { buffers: Some(buffers), ..listener_options(listen) };
    for socket in &group.sockets {
        // A socket of a former process may have other options.
        options.at_bind(socket, None)?;
    }
    let first = group.sockets.first().context("no socket")?;
    let connections = call_back(first)?;
    if connections > 0 {
        tracing::info!(
            connections,
            "clients that were connected to the server before this one were called back"
        );
    }
    let address = first.local_addr()?;
    let slots: io::Result<Vec<_>> =
        (0..group.sockets.len()).map(|nth| group.steering_slot(nth)).collect();
    let by_worker =
        group.sockets.into_iter().zip(slots?).map(|(socket, steering_slot)| -> Opener {
            let open = open.clone();
            Box::new(move || open(socket, steering_slot))
        });
    Ok(Bound { address, by_worker: by_worker.collect() })
}

/// The reverse proxies of a configuration.
fn proxies(config: &ServerConfig) -> Proxies {
    let trusted = config.trusted_proxies.clone();
    Proxies::new(move |ip| trusted.iter().any(|net| net.contains(ip)))
}

/// The socket buffers of the configuration, in bytes.
fn buffers(receive: Size, send: Size) -> Buffers {
    let bytes = |size: Size| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
    Buffers { receive: bytes(receive), send: bytes(send) }
}

/// The address in the URL of a listener. A host name is resolved, and its first address is used.
pub fn listen_address(endpoint: &Endpoint) -> anyhow::Result<SocketAddr> {
    match &endpoint.host {
        config::Host::Ip(ip) => Ok(SocketAddr::new(*ip, endpoint.port)),
        config::Host::Scoped(at) => {
            let found = net::zone::socket_addr(at.ip(), at.zone(), endpoint.port);
            Ok(found.map_err(|error| Unbound::new(endpoint, &error))?)
        }
        config::Host::Name(name) => {
            let found = Lookups::of_servers().resolve_blocking(name);
            let found = found.with_context(|| format!("{endpoint}: resolving {name}"))?;
            let first = found.first().map(|ip| SocketAddr::new(*ip, endpoint.port));
            first.with_context(|| format!("{endpoint}: {name} has no address"))
        }
    }
}

/// Collects the results. When some have failed, the error has a line for each failure, so that the
/// user sees all ports in use at once and not one per start.
pub fn all_bound<T>(each: impl Iterator<Item = anyhow::Result<T>>) -> anyhow::Result<Vec<T>> {
    let (mut bound, mut failed) = (Vec::new(), Vec::new());
    for outcome in each {
        match outcome {
            Ok(group) => bound.push(group),
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    // Each line starts like the first line in the output of the program.
    anyhow::ensure!(failed.is_empty(), "{}", failed.join("\ntunnel: "));
    Ok(bound)
}

/// The advice for a failed bind, as the end of a line.
pub fn bind_advice(kind: io::ErrorKind) -> &'static str {
    if kind == io::ErrorKind::AddrInUse {
        " (another program listens there: see `ss -ltunp`, or choose another port)"
    } else if kind == io::ErrorKind::PermissionDenied {
        " (ports below 1024 need CAP_NET_BIND_SERVICE; the systemd unit gives it)"
    } else if kind == io::ErrorKind::AddrNotAvailable {
        " (this machine does not have that address; it is tried again every 15 s)"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_has_one_family_and_every_family_is_in_the_table() {
        let named: Vec<_> = FAMILIES.iter().flat_map(|family| family.schemes()).collect();
        for scheme in Scheme::ALL {
            assert_eq!(named.iter().filter(|name| ***name == scheme.name).count(), 1, "{scheme:?}");
        }
        assert_eq!(named.len(), Scheme::ALL.len());
    }
}

//! From a URL of the configuration to a listener or a dialer. A row of the table of schemes
//! (`config::Scheme`) belongs to one family of transports, and each family is a module here.
//!
//! ```text
//!   server   Family::listeners -> Listeners::bind, one port -> Bound, an Opener for each worker -> Listener
//!   client   Family::dials -> Way, checked once -> Dials::dialer, on each worker -> Dialer
//! ```
//!
//! | module | schemes |
//! |---|---|
//! | `tcp` | `tls://`, `tcp://` |
//! | `ws` | `wss://`, `ws://` |
//! | `quic` | `quic://` |
//! | `side`, `way` | a server's listeners and a client's ways, over all families |
//! | `material` | certificates, pins and proxies, for every family |

mod material;
mod quic;
mod side;
mod tcp;
mod way;
mod ws;

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context;
use config::{Common, Endpoint, Scheme, ServerConfig};
use tls::Identity;
use transport::{Listener, PathDialer};

pub(crate) use side::ServerSide;
pub use way::Way;
pub(crate) use ws::request;

/// All families.
const FAMILIES: [&dyn Family; 3] = [&tcp::Tcp, &ws::Ws, &quic::Quic];

/// Transports that share a kind of listener and of dialer.
trait Family: Sync {
    /// The names of its rows in the table of schemes.
    fn schemes(&self) -> &'static [&'static str];

    /// What a way says that this family cannot use.
    fn check(&self, _path: &config::Path) -> Result<(), Unfit> {
        Ok(())
    }

    /// What the listeners of a server have in common.
    fn listeners(&self, setup: &Setup<'_>) -> anyhow::Result<Arc<dyn Listeners>>;

    /// What the dialers of a way have in common: certificates and pins are read once.
    fn dials(&self, path: &config::Path, common: &Common) -> anyhow::Result<Arc<dyn Dials>>;
}

/// What a server has when its listeners are prepared.
#[derive(Debug)]
struct Setup<'a> {
    config: &'a ServerConfig,
    /// Without it there is no TLS.
    identity: Option<&'a Identity>,
    /// Where a family keeps what the next process is to know.
    state: Option<&'a Path>,
}

/// The listeners of a server of one family.
trait Listeners: Debug + Send + Sync {
    /// Takes the port, once for each worker.
    fn bind(&self, endpoint: &Endpoint, common: &Common, workers: usize) -> anyhow::Result<Bound>;

    /// What connections from now on are to have. Returns what puts it in force, when nothing can
    /// fail any more.
    fn renew(&self, setup: &Setup<'_>) -> anyhow::Result<Renewal>;
}

/// The dialers of one way.
trait Dials: Debug + Send + Sync {
    /// A dialer of this thread. Links of consecutive numbers come to different workers of the
    /// server, where the transport lets the client say so.
    fn dialer(&self, link: Option<u8>) -> Rc<dyn PathDialer>;
}

/// Puts in force what was prepared.
type Renewal = Box<dyn FnOnce()>;

/// Makes a listener of the socket of one worker, on the thread of that worker.
pub(crate) type Opener = Box<dyn FnOnce() -> io::Result<Box<dyn Listener>> + Send>;

/// One port, bound.
pub(crate) struct Bound {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// In the order of the workers.
    pub(crate) by_worker: Vec<Opener>,
}

/// A key of a way that its transport cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The key.
    pub key: &'static str,
    /// What is wrong.
    pub problem: String,
}

fn family(scheme: Scheme) -> anyhow::Result<&'static dyn Family> {
    let found = FAMILIES.into_iter().find(|family| family.schemes().contains(&scheme.name));
    found.with_context(|| format!("{}:// has no transport", scheme.name))
}

/// Whether a way says something that its transport cannot use.
///
/// # Errors
/// The key, and what is wrong with its value.
pub fn check(path: &config::Path) -> Result<(), Unfit> {
    family(path.endpoint.scheme).map_or(Ok(()), |family| family.check(path))
}

/// Binds a TCP port for each worker.
fn bind_tcp(endpoint: &Endpoint, workers: usize) -> anyhow::Result<Vec<std::net::TcpListener>> {
    net::listen_group(listen_address(endpoint)?, workers).map_err(|e| {
        let advice = bind_advice(e.kind());
        anyhow::anyhow!("cannot listen on {endpoint}: {e}{advice}")
    })
}

/// The port of some TCP sockets, with what makes a listener of each.
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

/// The address that a listener's URL names.
fn listen_address(endpoint: &Endpoint) -> anyhow::Result<SocketAddr> {
    match &endpoint.host {
        config::Host::Ip(ip) => Ok(SocketAddr::new(*ip, endpoint.port)),
        config::Host::Name(name) => {
            let found = std::net::ToSocketAddrs::to_socket_addrs(&(name.as_str(), endpoint.port));
            let first = found.with_context(|| format!("{endpoint}: resolving {name}"))?.next();
            first.with_context(|| format!("{endpoint}: {name} has no address"))
        }
    }
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

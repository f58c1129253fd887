//! The sockets of an entrance: a group of TCP sockets, one for each worker, or one Unix socket.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use config::{Local, Over};
use net::udp::{FlowGroup, Steering};
use ops::socket_file::{self, SocketFile};

use families::Unbound;

/// The backlog of a Unix socket, in connections, as for TCP. The kernel lowers the number to
/// `somaxconn`.
const BACKLOG: i32 = 4096;

/// The listening sockets of one address.
#[derive(Debug)]
pub enum Listeners {
    /// A group with one socket for each worker.
    Tcp(Vec<std::net::TcpListener>),
    /// A group of UDP sockets.
    Udp(FlowGroup),
    /// One socket for all workers, because Unix sockets have no `SO_REUSEPORT`.
    Unix(Unix),
}

/// The listening socket of one worker.
#[derive(Debug)]
pub enum Listener {
    Tcp(std::net::TcpListener),
    Udp(std::net::UdpSocket),
    Unix(Unix),
}

/// A listening Unix socket, and its file. An abstract socket has no file.
#[derive(Debug)]
pub struct Unix {
    pub socket: UnixListener,
    pub file: Option<SocketFile>,
}

impl Listeners {
    /// Listens on a port of this protocol, with a socket for each of `workers` workers.
    ///
    /// # Errors
    /// As for [`net::listen_group`] and [`net::udp::flow_group`].
    pub fn ports(over: Over, address: SocketAddr, workers: usize) -> io::Result<Self> {
        Ok(match over {
            Over::Tcp => Self::Tcp(net::listen_group(address, workers)?),
            Over::Udp => Self::Udp(net::udp::flow_group(address, workers)?),
        })
    }

    /// All sockets.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let (tcp, udp, unix) = match self {
            Self::Tcp(group) => (&group[..], &[][..], None),
            Self::Udp(group) => (&[][..], &group.sockets[..], None),
            Self::Unix(unix) => (&[][..], &[][..], Some(&unix.socket)),
        };
        let tcp = tcp.iter().map(AsFd::as_fd);
        tcp.chain(udp.iter().map(AsFd::as_fd)).chain(unix.map(AsFd::as_fd))
    }

    /// The steering of the peers of UDP sockets to workers.
    pub fn steering(&self) -> Option<Arc<Steering>> {
        match self {
            Self::Udp(group) => Some(Arc::clone(&group.steering)),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// The sockets in the order of the workers. A Unix socket belongs to the first worker.
    pub fn by_worker(self) -> Vec<Listener> {
        match self {
            Self::Tcp(group) => group.into_iter().map(Listener::Tcp).collect(),
            Self::Udp(group) => group.sockets.into_iter().map(Listener::Udp).collect(),
            Self::Unix(unix) => vec![Listener::Unix(unix)],
        }
    }
}

/// Listens at the address of a forward. Returns also the URL of the address, with the port that the
/// system chose.
pub fn bind(local: &Local, workers: NonZeroUsize) -> anyhow::Result<(String, Listeners)> {
    if let Some((over, at)) = local.socket() {
        let address = match at.link() {
            Some(link) => net::zone::socket_addr(link.ip(), link.zone(), at.port()),
            None => Ok((at.ip(), at.port()).into()),
        };
        let group = address.and_then(|address| Listeners::ports(over, address, workers.get()));
        let group = group.map_err(|e| Unbound::new(local, &e))?;
        store(&group);
        let bound = match &group {
            Listeners::Tcp(group) => group.first().map(std::net::TcpListener::local_addr),
            Listeners::Udp(group) => group.sockets.first().map(std::net::UdpSocket::local_addr),
            Listeners::Unix(_) => None,
        };
        let bound = bound.context("no socket")??;
        // The socket has the index of the interface; users know its name.
        let bound = match at.link() {
            Some(_) => at.with_port(bound.port()).to_string(),
            None => bound.to_string(),
        };
        let scheme = local.to_string();
        let scheme = scheme.split_once("://").map_or("", |(scheme, _)| scheme);
        return Ok((format!("{scheme}://{bound}"), group));
    }
    match local {
        Local::Tcp(_) | Local::Udp(_) | Local::Socks5(_) | Local::HttpProxy(_) => {
            anyhow::bail!("cannot listen on {local}")
        }
        Local::Unix { address, mode } => {
            let unix = match address.abstract_name() {
                Some(name) => {
                    socket_file::listen_abstract(name).map(|socket| Unix { socket, file: None })
                }
                None => socket_file::listen(Path::new(address.place()), *mode, BACKLOG)
                    .map(|(socket, file)| Unix { socket, file: Some(file) }),
            };
            let unix = unix.map_err(|e| {
                anyhow::anyhow!("cannot listen on {local}: {e}{}", unix_advice(e.kind()))
            })?;
            let group = Listeners::Unix(unix);
            store(&group);
            Ok((local.to_string(), group))
        }
    }
}

/// Lets a configured listener outlive a crash, if the service manager stores sockets.
fn store(listeners: &Listeners) {
    net::inherited::store(&listeners.sockets().collect::<Vec<_>>());
}

/// The hint for a failed bind of a Unix socket, as the end of a log line.
fn unix_advice(kind: io::ErrorKind) -> &'static str {
    if kind == io::ErrorKind::NotFound {
        " (make the folder first)"
    } else if kind == io::ErrorKind::PermissionDenied {
        " (this user may not write to the folder, or another user's socket is there)"
    } else if kind == io::ErrorKind::AddrInUse {
        " (choose another path)"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use families::is_absent;

    #[test]
    fn a_listener_behind_an_interface_that_is_not_there_waits_for_it() {
        let text = "servers: tls://a\nname: a\ntoken: q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi\nforwards:\n\
                    - { listen: 'tcp://[fe80::1%absent0]:0', target: 'tcp://b:1' }\n\
                    - { listen: 'udp://[fe80::1%25absent0]:0', target: 'udp://b:1' }\n";
        let sources = config::Sources { env: &|_| None, read: &|_| Err(String::new()) };
        let file = Some(config::Text { name: "client.yaml", text });
        let loaded = config::load_client(file, &config::ClientFlags::default(), &sources);
        for forward in loaded.unwrap().config.forwards {
            let why = bind(&forward.listen, NonZeroUsize::MIN).unwrap_err();
            assert!(is_absent(&why), "{why}");
            let said = why.to_string();
            assert!(said.contains("[fe80::1%absent0]:0: "), "{said}");
            assert!(said.contains("no interface absent0") && said.contains("15 s"), "{said}");
        }
    }
}

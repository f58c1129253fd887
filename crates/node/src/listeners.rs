//! The sockets of an entrance: a group of TCP sockets, one for each worker, or one Unix socket.

use std::io;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixListener;
use std::path::Path;

use anyhow::Context;
use config::Local;
use ops::socket_file::{self, SocketFile};

use crate::transports::bind_advice;

/// The backlog of a Unix socket, in connections, as for TCP. The kernel lowers the number to
/// `somaxconn`.
const BACKLOG: i32 = 4096;

/// The listening sockets of one address.
#[derive(Debug)]
pub(crate) enum Listeners {
    /// A group with one socket for each worker.
    Tcp(Vec<std::net::TcpListener>),
    /// One socket for all workers, because Unix sockets have no `SO_REUSEPORT`.
    Unix(Unix),
}

/// The listening socket of one worker.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(std::net::TcpListener),
    Unix(Unix),
}

/// A listening Unix socket, and its file. An abstract socket has no file.
#[derive(Debug)]
pub(crate) struct Unix {
    pub(crate) socket: UnixListener,
    pub(crate) file: Option<SocketFile>,
}

impl Listeners {
    /// The sockets in the order of the workers. A Unix socket belongs to the first worker.
    pub(crate) fn by_worker(self) -> Vec<Listener> {
        match self {
            Self::Tcp(group) => group.into_iter().map(Listener::Tcp).collect(),
            Self::Unix(unix) => vec![Listener::Unix(unix)],
        }
    }
}

/// Listens at the address of a forward. Returns also the URL of the address, with the port that the
/// system chose.
pub(crate) fn bind(local: &Local, workers: NonZeroUsize) -> anyhow::Result<(String, Listeners)> {
    match local {
        Local::Tcp(address) => {
            let group = net::listen_group(*address, workers.get()).map_err(|e| {
                let advice = bind_advice(e.kind());
                anyhow::anyhow!("cannot listen on {local}: {e}{advice}")
            })?;
            let bound = group.first().context("no socket")?.local_addr()?;
            Ok((format!("tcp://{bound}"), Listeners::Tcp(group)))
        }
        Local::Udp(_) | Local::Socks5(_) | Local::HttpProxy(_) => {
            anyhow::bail!("cannot listen on {local}: this version does not support it")
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
            Ok((local.to_string(), Listeners::Unix(unix)))
        }
    }
}

/// The advice for a failed bind of a Unix socket, as the end of a line.
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

//! Connecting to a target: resolve, check, race, within one deadline.

mod address;
mod unix;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use proto::{ResetCode, UnixAddr};
use rustix::io::Errno;
use tokio::net::{TcpSocket, lookup_host};
use transport::LocalFuture;
use transport::race::{ADDRESS_STAGGER, interleave, race};

use crate::Socket;
pub use address::{TargetAddr, TargetError};

/// Addresses tried at most. A name with more is a pool whose first eight do as well; the bound
/// keeps one stream from opening sockets by the hundred.
const ADDRESSES: usize = 8;

/// What a dial leads to in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination<'a> {
    /// Address and port; IPv4-mapped addresses are IPv4 here.
    Tcp(IpAddr, u16),
    /// A Unix socket, as it was written.
    Unix(&'a UnixAddr),
}

/// Asked about each address a name resolved to, after resolution: a permitted name may point to a
/// forbidden address.
#[derive(Clone)]
pub struct Allow(Rc<dyn Fn(Destination<'_>) -> bool>);

impl Allow {
    /// Permission by a rule over destinations.
    pub fn new(rule: impl Fn(Destination<'_>) -> bool + 'static) -> Self {
        Self(Rc::new(rule))
    }

    fn permits(&self, destination: Destination<'_>) -> bool {
        (self.0)(destination)
    }
}

impl fmt::Debug for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Allow")
    }
}

/// Why a target could not be connected.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name does not resolve.
    #[error("{host} does not resolve: {source}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// None of the target's addresses is permitted.
    #[error("{0} is not an allowed target")]
    Denied(TargetAddr),
    /// Every address failed; the error is that of the first one that could be asked at all.
    #[error("{target}: {source}")]
    Connect {
        /// Where to.
        target: TargetAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The deadline passed.
    #[error("{0} did not answer in time")]
    Timeout(TargetAddr),
}

impl DialError {
    /// The reason as the far side is told.
    #[must_use]
    pub fn code(&self) -> ResetCode {
        match self {
            Self::Resolve { source, .. } | Self::Connect { source, .. } => code_of(source),
            Self::Denied(_) => ResetCode::Denied,
            Self::Timeout(_) => ResetCode::Timeout,
        }
    }
}

/// A connection of which it is not yet known whether it is wanted. One that is dropped - it lost
/// the race, or its visitor left meanwhile - was perhaps accepted already: its target is told by RST
/// that nothing will come, where a clean end would be an empty request. (The service behind a Unix
/// socket sees that clean end.)
#[derive(Debug)]
pub struct Dialled(Socket);

impl Dialled {
    /// It is wanted: from now on closing it is a clean end.
    #[must_use]
    pub fn keep(self) -> Socket {
        self.0.end_on_close();
        self.0
    }
}

/// Connects within `deadline`, resolution included. A slow answer of the resolver holds a thread
/// of the runtime's blocking pool and nobody else.
pub async fn dial(
    target: &TargetAddr,
    allow: Option<&Allow>,
    deadline: Duration,
) -> Result<Dialled, DialError> {
    let permits = |destination: Destination<'_>| allow.is_none_or(|a| a.permits(destination));
    let attempt = async {
        let outcome = match target {
            TargetAddr::Tcp { host, port } => {
                let mut addresses = resolve(host, *port).await?;
                addresses.retain(|address| {
                    permits(Destination::Tcp(address.ip().to_canonical(), address.port()))
                });
                if addresses.is_empty() {
                    return Err(DialError::Denied(target.clone()));
                }
                let addresses = interleave(addresses, ADDRESSES);
                let start = |address| -> LocalFuture<'static, _> { Box::pin(connect(address)) };
                // The error told is that of the first address to fail.
                let raced = race(addresses, ADDRESS_STAGGER, start, |first, _| first).await;
                raced.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
            }
            TargetAddr::Unix(address) if !permits(Destination::Unix(address)) => {
                return Err(DialError::Denied(target.clone()));
            }
            TargetAddr::Unix(address) => {
                unix::connect(address).await.map(|socket| Dialled(socket.into()))
            }
        };
        outcome.map_err(|source| DialError::Connect { target: target.clone(), source })
    };
    match tokio::time::timeout(deadline, attempt).await {
        Ok(outcome) => outcome,
        Err(_) => Err(DialError::Timeout(target.clone())),
    }
}

async fn connect(address: SocketAddr) -> io::Result<Dialled> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
    socket.set_zero_linger()?;
    Ok(Dialled(socket.connect(address).await?.into()))
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
    let failed = |source| DialError::Resolve { host: host.to_owned(), source };
    let found: Vec<_> = lookup_host((host, port)).await.map_err(failed)?.collect();
    if found.is_empty() {
        return Err(failed(io::Error::from(io::ErrorKind::NotFound)));
    }
    Ok(found)
}

/// The code for an error of connect(2) or of the resolver.
fn code_of(error: &io::Error) -> ResetCode {
    match Errno::from_io_error(error) {
        Some(Errno::CONNREFUSED | Errno::CONNRESET) => ResetCode::Refused,
        Some(Errno::TIMEDOUT) => ResetCode::Timeout,
        Some(Errno::ACCESS | Errno::PERM) => ResetCode::Denied,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => ResetCode::Limit,
        Some(_) | None => ResetCode::Unreachable,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn local(port: u16) -> TargetAddr {
        TargetAddr::Tcp { host: "127.0.0.1".into(), port }
    }

    fn free_port() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.local_addr().unwrap().port()
    }

    #[tokio::test]
    async fn a_closed_port_is_refused() {
        let error = dial(&local(free_port()), None, 5 * SECOND).await.unwrap_err();
        assert_eq!(error.code(), ResetCode::Refused);
    }

    #[tokio::test]
    async fn an_unwanted_connection_is_reset_and_a_kept_one_ends_cleanly() {
        use std::io::Read;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = local(listener.local_addr().unwrap().port());
        let end = async |keep: bool| {
            let dialled = dial(&target, None, 5 * SECOND).await.unwrap();
            let (mut accepted, _) = listener.accept().unwrap();
            if keep {
                drop(dialled.keep())
            } else {
                drop(dialled)
            }
            accepted.read(&mut [0]).map_err(|e| e.kind())
        };
        assert_eq!(end(false).await, Err(io::ErrorKind::ConnectionReset));
        assert_eq!(end(true).await, Ok(0));
    }

    #[tokio::test]
    async fn a_permission_is_asked_after_resolution_and_in_ipv4_form() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let deny = Allow::new(|to| matches!(to, Destination::Tcp(ip, _) if !ip.is_loopback()));
        for host in ["127.0.0.1", "localhost", "::ffff:127.0.0.1"] {
            let target = TargetAddr::Tcp { host: host.into(), port };
            let error = dial(&target, Some(&deny), 5 * SECOND).await.unwrap_err();
            assert_eq!(error.code(), ResetCode::Denied, "{host}");
        }
        let allow = Allow::new(move |to| matches!(to, Destination::Tcp(_, p) if p == port));
        dial(&local(port), Some(&allow), 5 * SECOND).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_never_answers_is_a_timeout() {
        // A listener whose backlog is full drops further SYNs.
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let fillers: Vec<_> = (0..4)
            .map(|_| {
                let filler =
                    socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
                        .unwrap();
                filler.set_nonblocking(true).unwrap();
                let _ = filler.connect(&address.into());
                filler
            })
            .collect();
        let error = dial(&local(address.port()), None, 10 * SECOND).await.unwrap_err();
        assert_eq!(error.code(), ResetCode::Timeout);
        drop(fillers);
    }

    #[test]
    fn errors_of_the_system_have_their_codes() {
        for (errno, code) in [
            (Errno::CONNREFUSED, ResetCode::Refused),
            (Errno::TIMEDOUT, ResetCode::Timeout),
            (Errno::HOSTUNREACH, ResetCode::Unreachable),
            (Errno::NETUNREACH, ResetCode::Unreachable),
            (Errno::ACCESS, ResetCode::Denied),
            (Errno::MFILE, ResetCode::Limit),
        ] {
            assert_eq!(code_of(&errno.into()), code, "{errno}");
        }
    }
}

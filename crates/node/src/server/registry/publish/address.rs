//! The public addresses that clients ask for, and the errors of refused addresses.

use std::io;
use std::net::{IpAddr, SocketAddr};

use config::Over;
use proto::control::{ServiceError, ServiceErrorCode};
use rustix::io::Errno;

use crate::transports::bind_advice;

/// A resource that one client at a time may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A port of this protocol. A TCP port and the UDP port of the same number are two resources.
    Port(Over, SocketAddr),
}

impl Key {
    /// The address at which visitors connect.
    pub(super) const fn address(self) -> SocketAddr {
        let Self::Port(_, address) = self;
        address
    }
}

/// A public address as a client asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Public {
    /// A TCP port; 0 lets the server choose.
    Tcp(SocketAddr),
}

impl Public {
    /// The resource that this address takes.
    pub(super) const fn key(self) -> Key {
        let Self::Tcp(address) = self;
        Key::Port(Over::Tcp, address)
    }
}

/// The result of a step of a registration.
pub(super) type Outcome<T> = Result<T, ServiceError>;

pub(super) fn error(code: ServiceErrorCode, text: String) -> ServiceError {
    ServiceError { code, text }
}

/// Parses `tcp://:port` or `tcp://address:port`. A port without an address is at `public_bind`.
pub(super) fn parse(text: &str, public_bind: IpAddr) -> Outcome<Public> {
    let bad = || {
        let text = format!("`{text}` is no public address: tcp://:10022 or tcp://127.0.0.1:10022");
        error(ServiceErrorCode::BadAddress, text)
    };
    let rest = text.strip_prefix("tcp://").ok_or_else(bad)?;
    if let Some(port) = rest.strip_prefix(':') {
        let port = port.parse().map_err(|_| bad())?;
        return Ok(Public::Tcp(SocketAddr::new(public_bind, port)));
    }
    rest.parse().map(Public::Tcp).map_err(|_| bad())
}

/// The address as a client is told it. The text has no host where the server listens at all
/// addresses, because the client knows the host by which it reaches the server.
pub(super) fn told(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        format!("tcp://:{}", address.port())
    } else {
        format!("tcp://{address}")
    }
}

/// Parses `http://host` or `tls://host`, optionally with the port of another listener, into scheme
/// and host.
pub(super) fn host(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    matches!(scheme, "http" | "tls").then(|| (scheme, rest.split(':').next().unwrap_or(rest)))
}

/// The error of a failed bind.
pub(super) fn refusal(text: &str, service: &str, e: &io::Error) -> ServiceError {
    let code = if e.kind() == io::ErrorKind::AddrInUse {
        ServiceErrorCode::PortTaken
    } else if e.kind() == io::ErrorKind::PermissionDenied {
        ServiceErrorCode::NotAllowed
    } else if e.kind() == io::ErrorKind::AddrNotAvailable {
        ServiceErrorCode::BadAddress
    } else if is_exhaustion(e) {
        ServiceErrorCode::Limit
    } else {
        ServiceErrorCode::Internal
    };
    let advice = bind_advice(e.kind());
    error(code, format!("the server cannot listen on {text} for `{service}`: {e}{advice}"))
}

/// The error of a bind for which the server keeps no descriptor.
pub(super) fn no_room(text: &str, service: &str) -> ServiceError {
    let text = format!(
        "the server cannot listen on {text} for `{service}`: its descriptors for published ports \
         are used up; raise the limit of open files (LimitNOFILE)"
    );
    error(ServiceErrorCode::Limit, text)
}

/// Whether this process or the system ran out of descriptors or memory.
fn is_exhaustion(e: &io::Error) -> bool {
    let errno = Errno::from_io_error(e);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

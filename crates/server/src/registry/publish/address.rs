//! The public addresses that clients request, and the errors of refused addresses.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use config::Over;
use proto::control::{RefusedAddress, ServiceError, ServiceErrorCode};
use rustix::io::Errno;

use crate::directory::{Class, Key, NotGiven, Port};
use families::bind_advice;
use node::names::{Host, Kind};

/// The place of an entrance. Services of one client may share a name by different paths.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) key: Key,
    /// The kind of the name.
    pub(super) kind: Option<Kind>,
    pub(super) path: Option<Arc<str>>,
}

impl From<Key> for Place {
    fn from(key: Key) -> Self {
        Self { key, kind: None, path: None }
    }
}

/// A public address as a client requests it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Public {
    /// A port; 0 lets the server choose.
    Port(Port),
    /// A name.
    Name(Host),
}

impl Public {
    /// The resource that this address takes.
    pub(super) fn key(&self) -> Key {
        match self {
            Self::Port((over, class, port)) => Key::Port(*over, *class, *port),
            Self::Name(host) => Key::Name(host.kind.space(), Arc::clone(&host.name)),
        }
    }

    /// The place of an entrance at this address, for a service with this path.
    pub(super) fn place(&self, path: Option<&str>) -> Place {
        match self {
            Self::Port(..) => self.key().into(),
            Self::Name(host) => {
                let (kind, path) = (Some(host.kind), path.map(Arc::from));
                Place { key: self.key(), kind, path }
            }
        }
    }
}

/// The result of a step of a registration.
pub(super) type Outcome<T> = Result<T, ServiceError>;

pub(super) fn error(code: ServiceErrorCode, text: String) -> ServiceError {
    ServiceError { code, text }
}

/// The outcome of one service: the addresses at which visitors reach it, or why it has none; and
/// the refused addresses of a service that requested several.
pub(super) type Settled = (Outcome<Vec<String>>, Vec<RefusedAddress>);

/// Joins the outcomes of the addresses of one service.
pub(super) fn settle(all: Vec<(&str, Outcome<String>)>) -> Settled {
    let count = all.len();
    let (mut reached, mut refused) = (Vec::new(), Vec::new());
    for (asked, outcome) in all {
        match outcome {
            Ok(at) => reached.push(at),
            Err(error) => refused.push(RefusedAddress { address: asked.to_owned(), error }),
        }
    }
    match refused.first() {
        Some(first) if count == 1 => (Err(first.error.clone()), Vec::new()),
        Some(first) if reached.is_empty() => (Err(first.error.clone()), refused),
        Some(_) | None => (Ok(reached), refused),
    }
}

/// Parses `tcp://:port`, `udp://address:port`, or a name. A port without an address is at
/// `public_bind`. A name of one label is in `domain`.
pub(super) fn parse(text: &str, public_bind: IpAddr, domain: Option<&str>) -> Outcome<Public> {
    let bad = || {
        let text = format!(
            "`{text}` is no public address: tcp://:10022, udp://127.0.0.1:5353, \
             http://app.example.com, https://app.example.com or tls://app.example.com"
        );
        error(ServiceErrorCode::BadAddress, text)
    };
    let port = [Over::Tcp, Over::Udp].into_iter().find_map(|over| {
        let rest = text.strip_prefix(scheme(over))?.strip_prefix("://")?;
        Some((over, rest))
    });
    let Some((over, rest)) = port else {
        let mut host: Host = text.parse().map_err(|()| bad())?;
        if let Some(domain) = domain
            && !host.name.contains(['.', '*'])
        {
            host.name = format!("{}.{domain}", host.name).into();
        }
        return Ok(Public::Name(host));
    };
    if let Some(port) = rest.strip_prefix(':') {
        let port = port.parse().map_err(|_| bad())?;
        return Ok(Public::Port((over, Class::Public, port)));
    }
    let address: SocketAddr = rest.parse().map_err(|_| bad())?;
    Ok(Public::Port((over, Class::of(address.ip(), public_bind), address.port())))
}

const fn scheme(over: Over) -> &'static str {
    match over {
        Over::Tcp => "tcp",
        Over::Udp => "udp",
    }
}

/// The address as it is reported to a client. The text has no host where the server listens at all
/// addresses, because the client knows the host by which it reaches the server.
pub(super) fn url(over: Over, address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        format!("{over}://:{}", address.port())
    } else {
        format!("{over}://{address}")
    }
}

/// The error of a resource that the directory does not give to the client. `taken` is the error if
/// another client has the resource.
pub(super) fn not_given(
    why: NotGiven,
    text: &str,
    taken: impl FnOnce() -> ServiceError,
) -> ServiceError {
    match why {
        NotGiven::Taken => taken(),
        NotGiven::Away => waits(text),
    }
}

/// The error of an address for which the directory has to be asked, which does not answer.
pub(super) fn waits(text: &str) -> ServiceError {
    let text = format!(
        "{text} waits: the server cannot ask now whether another client has the address; it asks \
         again by itself"
    );
    error(ServiceErrorCode::Waits, text)
}

/// The error of a failed bind.
pub(super) fn refusal(text: &str, service: &str, e: &io::Error) -> ServiceError {
    // A client retries a port that is in use, and likewise an address that may appear later.
    let code = if matches!(e.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) {
        ServiceErrorCode::PortTaken
    } else if e.kind() == io::ErrorKind::PermissionDenied {
        ServiceErrorCode::NotAllowed
    } else if is_exhaustion(e) {
        ServiceErrorCode::Limit
    } else {
        ServiceErrorCode::Internal
    };
    let advice = bind_advice(e.kind());
    error(code, format!("the server cannot listen on {text} for `{service}`: {e}{advice}"))
}

/// The error of a bind for which the server has no descriptor left.
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

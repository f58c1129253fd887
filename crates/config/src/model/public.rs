//! A public address of a service.

use std::fmt;
use std::net::IpAddr;

use crate::{Host, NameKind, Over};

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
        /// `http.domain`. In [`Lists`](crate::Lists), the first label may be `{name}`; in a
        /// [`ClientConfig`](crate::ClientConfig) it is replaced by the label of the client.
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

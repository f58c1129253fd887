//! The visitor of an incoming stream or flow, and the source for which it counts.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use net::source::Source;

/// The visitor of a stream or a flow, as far as this process knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Visitor {
    /// The visitor is unknown: it connected over a Unix socket, or the far side announces no
    /// address.
    #[default]
    Unknown,
    /// A visitor with this address, which this process or its server has observed.
    At(SocketAddr),
    /// A program of a client that visits a private service.
    Of {
        /// The name of the client, authenticated by its log-in.
        client: Arc<str>,
        /// The address of the program. The client announces it, and may announce any address: it is
        /// only for display, and no decision depends on it.
        claimed: Option<SocketAddr>,
    },
}

impl Visitor {
    /// The address, unless it is only claimed.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::At(address) => Some(*address),
            Self::Unknown | Self::Of { .. } => None,
        }
    }

    /// The source for which the stream or flow counts. `None`: it has no source.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        match self {
            Self::Unknown => None,
            Self::At(address) => Some(address.ip().to_canonical().into()),
            Self::Of { client, .. } => Some(Source::Client(Arc::clone(client))),
        }
    }

    /// The visitor as text, with or without the port of its address. `None`: it is unknown.
    #[must_use]
    pub fn shown(&self, with_port: bool) -> Option<String> {
        let text = |address: &SocketAddr| {
            // Port 0 means that the port is unknown.
            if with_port && address.port() != 0 {
                address.to_string()
            } else {
                address.ip().to_canonical().to_string()
            }
        };
        match self {
            Self::Unknown => None,
            Self::At(address) => Some(text(address)),
            Self::Of { client, claimed: None } => Some(format!("client {client}")),
            Self::Of { client, claimed: Some(address) } => {
                Some(format!("client {client} (claims {})", text(address)))
            }
        }
    }
}

impl From<Option<SocketAddr>> for Visitor {
    fn from(address: Option<SocketAddr>) -> Self {
        address.map_or(Self::Unknown, Self::At)
    }
}

impl fmt::Display for Visitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown(true).as_deref().unwrap_or("unix"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_a_client_claims_is_shown_and_is_no_source() {
        let of = |claimed: Option<&str>| {
            let claimed = claimed.map(|text| text.parse().unwrap());
            Visitor::Of { client: "laptop".into(), claimed }
        };
        let all = [None, Some("198.51.100.7:1000"), Some("[2001:db8::7]:2")].map(of);
        for visitor in &all {
            assert_eq!(visitor.source(), Some(Source::Client("laptop".into())), "{visitor:?}");
            assert_eq!(visitor.address(), None);
        }
        assert_eq!(
            all.map(|visitor| visitor.to_string()),
            [
                "client laptop",
                "client laptop (claims 198.51.100.7:1000)",
                "client laptop (claims [2001:db8::7]:2)"
            ]
        );
        let seen = Visitor::from(Some("[::ffff:192.0.2.1]:80".parse().unwrap()));
        assert_eq!(seen.source(), Some(Source::Address([192, 0, 2, 1].into())));
        assert_eq!(seen.shown(false).as_deref(), Some("192.0.2.1"));
        assert_eq!(Visitor::default().to_string(), "unix");
    }
}

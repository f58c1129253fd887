//! What visitors send, and the origins that they reach.

use std::net::SocketAddr;

/// The bytes that a system takes from visitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visitors {
    /// Any bytes.
    Any,
    /// HTTP for the host [`HOST`].
    Http,
    /// HTTP for the host [`HOST`] over TLS.
    Https,
    /// Any bytes, behind the greeting of SOCKS5.
    Socks,
}

/// The host of systems that take only HTTP.
pub(crate) const HOST: &str = "bench.example.com";

/// The origin of HTTP, the only origin behind a system that takes only HTTP.
pub(crate) const WEB: &str = "web";

/// The origin of datagrams, a `load origin udp`.
pub(crate) const UDP: &str = "udp";

/// A target of visitors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// A name of letters and digits, because it becomes the name of a service. [`UDP`] is the
    /// origin of datagrams; all others take TCP.
    pub(crate) name: &'static str,
    /// An IPv4 address of the loopback interface.
    pub(crate) address: SocketAddr,
}

/// The URL of a path for the visitors of a system.
pub(super) fn url(visitors: Visitors, address: SocketAddr, path: &str) -> String {
    let port = address.port();
    match visitors {
        Visitors::Any | Visitors::Socks => format!("http://{address}{path}"),
        Visitors::Http => format!("http://{HOST}:{port}{path}"),
        Visitors::Https => format!("https://{HOST}:{port}{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visitors_of_names_use_the_host() {
        let address = ([127, 0, 0, 1], 81).into();
        for (visitors, wanted) in [
            (Visitors::Any, "http://127.0.0.1:81/x"),
            (Visitors::Http, "http://bench.example.com:81/x"),
            (Visitors::Https, "https://bench.example.com:81/x"),
        ] {
            assert_eq!(url(visitors, address, "/x"), wanted);
        }
    }
}

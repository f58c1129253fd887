//! The table of transports: a row for each scheme of this build. Every list of schemes is made from
//! this table, so a new transport needs only a new row.

use std::fmt;

use crate::BadValue;

/// A transport that never leads to a server: its data channels are slower than QUIC. Its name is
/// not a typing error, so it gets a message of its own.
const BETWEEN_CLIENTS: &str = "webrtc";

/// The protocol below a transport, a service or a forward. A port is a port of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Over {
    /// TCP; the connection of a transport may go through a proxy.
    Tcp,
    /// UDP; proxies do not carry it.
    Udp,
}

impl fmt::Display for Over {
    /// The scheme: `tcp`, `udp`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// A transport of this build, or a listener for several transports ([`Scheme::MUX`]).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Scheme {
    /// The scheme of the transport's URLs.
    pub name: &'static str,
    /// The port of a URL without a port.
    pub port: u16,
    /// The protocol below the transport.
    pub over: Over,
    /// Whether the two ends of the transport speak TLS.
    pub tls: bool,
    /// Whether TLS is end to end between client and server, which binds a log-in to its connection.
    /// Then a certificate alone is enough for a log-in, and an unknown client may introduce itself.
    /// A WebSocket may come through a reverse proxy that terminates TLS.
    pub binds_log_ins: bool,
    /// Whether the transport begins with an HTTP request; its URL may then have a path.
    pub http: bool,
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The table, preferred transports first.
const TABLE: &[Scheme] = &[
    Scheme {
        name: "tls",
        port: 7000,
        over: Over::Tcp,
        tls: true,
        binds_log_ins: true,
        http: false,
    },
    Scheme {
        name: "quic",
        port: 7000,
        over: Over::Udp,
        tls: true,
        binds_log_ins: true,
        http: false,
    },
    Scheme {
        name: "kcp",
        port: 7001,
        over: Over::Udp,
        tls: true,
        binds_log_ins: true,
        http: false,
    },
    Scheme { name: "wss", port: 443, over: Over::Tcp, tls: true, binds_log_ins: false, http: true },
    Scheme { name: "ws", port: 80, over: Over::Tcp, tls: false, binds_log_ins: false, http: true },
    Scheme {
        name: "tcp",
        port: 7000,
        over: Over::Tcp,
        tls: false,
        binds_log_ins: false,
        http: false,
    },
];

impl Scheme {
    /// All transports of this build, preferred transports first.
    pub const ALL: &'static [Self] = TABLE;

    /// TLS 1.3 over TCP.
    pub const TLS: Self = Self::row("tls");
    /// QUIC, with TLS 1.3 in it.
    pub const QUIC: Self = Self::row("quic");
    /// KCP with forward error correction, secured by TLS 1.3.
    pub const KCP: Self = Self::row("kcp");
    /// WebSocket over TLS.
    pub const WSS: Self = Self::row("wss");
    /// WebSocket without TLS, for a server behind a reverse proxy with TLS.
    pub const WS: Self = Self::row("ws");
    /// TCP without TLS.
    pub const TCP: Self = Self::row("tcp");

    /// One TCP port for carriers (`tls://`, `wss://`), for visitors of names and for a default
    /// target. It is not a row of the table: a server listens there, and a client dials one of its
    /// transports.
    pub const MUX: Self = Self {
        name: "mux",
        port: 443,
        over: Over::Tcp,
        tls: true,
        binds_log_ins: true,
        http: true,
    };

    /// The transport with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|scheme| scheme.name == name)
    }

    /// The transports over this protocol.
    pub fn over(over: Over) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |scheme| scheme.over == over)
    }

    /// The recommended replacement for a transport without TLS on a path where others can
    /// eavesdrop.
    #[must_use]
    pub fn with_tls(self) -> Self {
        let alike = |other: &&Self| other.tls && (other.over, other.http) == (self.over, self.http);
        Self::ALL.iter().find(alike).copied().unwrap_or(self)
    }

    /// The transports that fulfil a condition, as text: `tls://, quic:// or tcp://`.
    pub(crate) fn list(last: &str, wanted: impl Fn(&Self) -> bool) -> String {
        let names: Vec<_> = Self::ALL.iter().filter(|scheme| wanted(scheme)).collect();
        let names: Vec<_> = names.iter().map(|scheme| format!("{}://", scheme.name)).collect();
        match names.split_last() {
            Some((end, [])) => end.clone(),
            Some((end, begin)) => format!("{} {last} {end}", begin.join(", ")),
            None => String::new(),
        }
    }

    /// The transport of a URL, or `mux`, or the reason why the URL names none.
    pub(crate) fn of_url(name: &str) -> Result<Self, BadValue> {
        let mux = (name == Self::MUX.name).then_some(Self::MUX);
        Self::named(name).or(mux).ok_or_else(|| {
            let known = Self::list("or", |_| true);
            if name == BETWEEN_CLIENTS {
                let text = "data channels lead from client to client, and never to a server";
                return BadValue::new(format!("{name}://: {text}")).hint(format!(
                    "use {known}; `p2p: webrtc` of a forward takes data channels, and \
                     `p2p: {{ webrtc: {{}} }}` of a server takes offers of browsers and programs"
                ));
            }
            BadValue::new(format!("unknown transport `{name}`")).hint(format!("use {known}"))
        })
    }

    /// The row with this name. It runs at compile time.
    const fn row(name: &str) -> Self {
        let mut n = 0;
        while n < TABLE.len() {
            if is_same(TABLE[n].name.as_bytes(), name.as_bytes()) {
                return TABLE[n];
            }
            n += 1;
        }
        panic!("no row of this name")
    }
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut n = 0;
    while n < a.len() && n < b.len() && a[n] == b[n] {
        n += 1;
    }
    n == a.len() && n == b.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_name_and_names_differ() {
        for (n, scheme) in Scheme::ALL.iter().enumerate() {
            assert_eq!(Scheme::named(scheme.name), Some(*scheme));
            assert!(Scheme::ALL[..n].iter().all(|other| other.name != scheme.name));
            assert_ne!(scheme.name, BETWEEN_CLIENTS);
        }
        assert_eq!(Scheme::named("TLS"), None);
        assert_eq!(Scheme::named("mux"), None, "no client dials it");
        assert_eq!(Scheme::of_url("mux"), Ok(Scheme::MUX));
    }

    #[test]
    fn lists_follow_the_table() {
        assert_eq!(
            Scheme::list("or", |_| true),
            "tls://, quic://, kcp://, wss://, ws:// or tcp://"
        );
        assert_eq!(Scheme::list("and", |s| s.binds_log_ins), "tls://, quic:// and kcp://");
        assert_eq!(Scheme::list("or", |s| s.over == Over::Udp), "quic:// or kcp://");
        assert_eq!(Scheme::list("or", |_| false), "");
    }

    #[test]
    fn a_plain_transport_has_one_with_tls_beside_it() {
        for (plain, with) in [(Scheme::WS, Scheme::WSS), (Scheme::TCP, Scheme::TLS)] {
            assert_eq!(plain.with_tls(), with);
        }
    }
}

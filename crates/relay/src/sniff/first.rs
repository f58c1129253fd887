//! Which protocol is it? The first bytes of a connection to a port for several protocols.

use proto::greeting::MAGIC;

use super::http::{Opened, Opening, PREFACE};

/// The methods after which a path makes the rest of the line needless.
const METHODS: [&[u8]; 8] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE"];

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// A handshake record of TLS.
    Tls,
    /// A request of HTTP/1, or a broken attempt at a request.
    Http,
    /// The connection preface of HTTP/2 without TLS (RFC 9113 section 3.4).
    Http2,
    /// The greeting of a tunnel client.
    TunnelGreeting,
    /// None of these.
    Other,
}

/// Looks at the first bytes of a connection.
#[derive(Debug, Default)]
pub struct FirstSniffer {
    line: Opening,
}

impl FirstSniffer {
    /// Looks at `bytes`, which are all that arrived since the first byte of the connection. `None`:
    /// more bytes are needed. 2 bytes tell TLS, 4 bytes the greeting, the method and the first
    /// byte of the path most requests of HTTP; other requests need their whole first line.
    pub fn look(&mut self, bytes: &[u8]) -> Option<First> {
        match *bytes {
            [] | [22] => return None,
            [22, 3, ..] => return Some(First::Tls),
            _ => {}
        }
        for (start, first) in [(&MAGIC[..], First::TunnelGreeting), (PREFACE, First::Http2)] {
            if bytes.starts_with(start) {
                return Some(first);
            }
            if start.starts_with(bytes) {
                return None;
            }
        }
        if METHODS.iter().any(|method| {
            let path = bytes.strip_prefix(*method).and_then(|rest| rest.strip_prefix(b" "));
            path.is_some_and(|path| path.starts_with(b"/"))
        }) {
            return Some(First::Http);
        }
        match self.line.look(bytes) {
            Opened::More => None,
            Opened::Not => Some(First::Other),
            Opened::Line(_) | Opened::Bad(_) => Some(First::Http),
        }
    }
}

//! Detects the protocol by the first bytes of a connection to a port for several protocols.

use h1::{Opened, Opening, PREFACE};
use proto::greeting::MAGIC;

/// The methods after which the beginning of a path identifies HTTP without the rest of the line.
const METHODS: [&[u8]; 8] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE"];

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// A TLS handshake record.
    Tls,
    /// An HTTP/1 request, or a malformed attempt at one.
    Http,
    /// The connection preface of HTTP/2 without TLS (RFC 9113 section 3.4).
    Http2,
    /// The greeting of a tunnel client.
    TunnelGreeting,
    /// None of these.
    Other,
}

/// Inspects the first bytes of a connection.
#[derive(Debug, Default)]
pub struct FirstSniffer {
    line: Opening,
}

impl FirstSniffer {
    /// Inspects `bytes`, which are all bytes of the connection so far. `None`: more bytes are
    /// needed. 2 bytes identify TLS, 4 bytes the greeting, and the method with the first byte of
    /// the path most HTTP requests; other requests need their whole first line.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_the_protocol() {
        for (bytes, wanted, known) in [
            (&b"\x16\x03\x01\x02\x00\x01"[..], First::Tls, 2),
            (b"TNL1....", First::TunnelGreeting, 4),
            (b"TNL2....\n", First::Other, 9),
            (b"GET /x HTTP/1.1\r\n", First::Http, 5),
            (b"DELETE /x HTTP/1.1\r\n", First::Http, 8),
            (b"\r\nGET /x HTTP/1.1\r\n", First::Http, 19),
            (b"PROPFIND /x HTTP/1.1\r\n", First::Http, 22),
            (b"CONNECT a:80 HTTP/1.1\r\n", First::Http, 23),
            (b"GET http://a/ HTTP/1.1\n", First::Http, 23),
            (b"OPTIONS rtsp://a/b RTSP/1.0\r\n", First::Other, 29),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0", First::Http2, 24),
            (b"SSH-2.0-OpenSSH_9.2\r\n", First::Other, 20),
            (b"\x80\x2e\x01\x03\x01", First::Other, 1),
            (b"\x16\x02\x00", First::Other, 2),
            (b"EHLO mail.example\r\n", First::Other, 19),
        ] {
            assert_eq!(
                FirstSniffer::default().look(bytes),
                Some(wanted),
                "{}",
                bytes.escape_ascii()
            );
            let mut sniffer = FirstSniffer::default();
            let looked = (0..=bytes.len()).map(|end| (end, sniffer.look(&bytes[..end])));
            let first = looked.filter_map(|(end, first)| Some((end, first?))).next();
            assert_eq!(first, Some((known, wanted)), "{}", bytes.escape_ascii());
        }
    }
}

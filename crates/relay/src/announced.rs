//! The header of the PROXY protocol (haproxy's `proxy-protocol.txt`) that a load balancer sends
//! before the bytes of a visitor. The header contains the address of the visitor. The caller
//! decides which balancers to trust; this module reads the header and nothing after it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ::proxy_header::{ParseConfig, ProxyHeader};
use bytes::{Bytes, BytesMut};
use net::socket::canonical;
use proto::ResetCode;
use tokio::time::timeout;

use crate::Socket;
use crate::look::look;
use crate::throttle::Throttle;

/// The longest wait for a complete header, from the moment that the connection was accepted. A
/// balancer sends the header at once, so a peer that is silent for longer is another program.
pub const HEADER_WAIT: Duration = Duration::from_secs(5);

/// The longest header in bytes, with its fields. A header of version 1 has at most 107 bytes
/// (section 2.1); the fields of version 2 that describe a visitor's TLS have a few hundred bytes.
pub(crate) const HEADER_MAX: usize = 4096;

/// The signature of a version 2 header (section 2.2).
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Length of the fixed part of a version 2 header, in bytes.
const V2_HEAD: usize = 16;

/// The first bytes of version 1.
const V1: &[u8] = b"PROXY ";

/// The longest line of version 1 in bytes, with its CRLF.
const V1_MAX: usize = 107;

/// The content of the header of a connection or a datagram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// The address of the visitor. `None`: the connection is the balancer's own, as for a health
    /// check, or the balancer does not know the address.
    pub visitor: Option<SocketAddr>,
    /// The address to which the visitor connected.
    pub public: Option<SocketAddr>,
    /// The fields of version 2 (section 2.2, TLVs) as received, without the checksum, which would
    /// be wrong in another header.
    pub fields: Bytes,
}

/// Why no header was read from a connection.
#[derive(Debug)]
pub enum HeaderError {
    /// The first bytes are no header, or the header is malformed or longer than 4,096 bytes.
    NotOne,
    /// No complete header arrived within [`HEADER_WAIT`].
    Late,
    /// The connection ended or failed before a complete header.
    Gone(io::Error),
}

impl HeaderError {
    /// The code under which the refusal is counted.
    #[must_use]
    pub const fn code(&self) -> ResetCode {
        match self {
            Self::NotOne => ResetCode::Denied,
            Self::Late => ResetCode::Timeout,
            Self::Gone(_) => ResetCode::Aborted,
        }
    }

    /// Logs, at most once per period, that a balancer sends no header to `listener`. A connection
    /// that closes at once, as for a health check, causes no warning.
    pub fn complain(&self, peer: Option<SocketAddr>, listener: &dyn fmt::Display) {
        thread_local! {
            static COMPLAINTS: Throttle = Throttle::default();
        }
        let is_news = !matches!(self, Self::Gone(_)) && COMPLAINTS.with(Throttle::ready);
        let peer = peer.map_or_else(|| "a balancer".to_owned(), |peer| peer.ip().to_string());
        if is_news {
            tracing::warn!(
                %listener, peer,
                "a connection of {peer} to {listener} is closed: {self}; remove `accept_proxy`, or let \
                 {peer} send the header (haproxy: send-proxy-v2)"
            );
        } else {
            tracing::debug!(%listener, peer, "a connection of {peer} is closed: {self}");
        }
    }
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOne => f.write_str("its first bytes are no header of the PROXY protocol"),
            Self::Late => {
                let wait = HEADER_WAIT.as_secs();
                write!(f, "it sent no complete header of the PROXY protocol within {wait} s")
            }
            Self::Gone(error) => write!(f, "it left before its header: {error}"),
        }
    }
}

/// The outcome of an inspection of the first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The bytes may be the beginning of a header.
    More,
    /// The header, and its length in bytes.
    Header(Announced, usize),
    /// The bytes are no header.
    Not,
}

/// Reads the header of a fresh TCP connection. The bytes after the header stay in the socket.
///
/// # Errors
/// No complete header arrives within [`HEADER_WAIT`]. Bytes that are no header stay unread.
pub async fn announced(socket: &Socket) -> Result<Announced, HeaderError> {
    let seen = look(socket, |bytes| match parse(bytes) {
        Parsed::More => None,
        Parsed::Header(announced, size) => Some(Some((announced, size))),
        Parsed::Not => Some(None),
    });
    let (announced, size) = match timeout(HEADER_WAIT, seen).await {
        Err(_) => return Err(HeaderError::Late),
        Ok(Err(error)) => return Err(HeaderError::Gone(error)),
        Ok(Ok(None)) => return Err(HeaderError::Gone(io::ErrorKind::UnexpectedEof.into())),
        Ok(Ok(Some(None))) => return Err(HeaderError::NotOne),
        Ok(Ok(Some(Some(found)))) => found,
    };
    // The inspection has seen all of these bytes in the socket's receive queue.
    let (mut read, mut left) = (BytesMut::with_capacity(size), size);
    while left > 0 {
        match socket.read(&mut read, left) {
            Ok(Some(count)) if count > 0 => left -= count.min(left),
            Ok(_) => return Err(HeaderError::Gone(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => return Err(HeaderError::Gone(error)),
        }
    }
    Ok(announced)
}

/// Reads the header of a datagram, which has version 2. Returns its content and its length in
/// bytes. `None`: the datagram does not begin with a complete header.
pub(crate) fn of_datagram(bytes: &[u8]) -> Option<(Announced, usize)> {
    match parse_v2(bytes) {
        Parsed::Header(announced, size) => Some((announced, size)),
        Parsed::More | Parsed::Not => None,
    }
}

pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    if V1.starts_with(bytes) || bytes.starts_with(V1) {
        return parse_v1(bytes);
    }
    parse_v2(bytes)
}

fn parse_v1(bytes: &[u8]) -> Parsed {
    let line = bytes.get(..bytes.len().min(V1_MAX)).unwrap_or_default();
    match line.windows(2).position(|pair| pair == b"\r\n") {
        Some(at) => read(bytes.get(..at + 2).unwrap_or_default()),
        None if line.len() < V1_MAX => Parsed::More,
        None => Parsed::Not,
    }
}

fn parse_v2(bytes: &[u8]) -> Parsed {
    let begins = bytes.len().min(SIGNATURE.len());
    if bytes.get(..begins) != SIGNATURE.get(..begins) {
        return Parsed::Not;
    }
    let Some([.., high, low]) = bytes.get(..V2_HEAD) else { return Parsed::More };
    let size = V2_HEAD + usize::from(u16::from_be_bytes([*high, *low]));
    if size > HEADER_MAX {
        return Parsed::Not;
    }
    bytes.get(..size).map_or(Parsed::More, read)
}

/// Parses a complete header. The crate returns no address for `UNKNOWN`, for `LOCAL` and for a Unix
/// socket.
fn read(header: &[u8]) -> Parsed {
    // The fields are parsed below, which needs them contiguous.
    let config = ParseConfig { include_tlvs: false, ..ParseConfig::default() };
    let Ok((parsed, size)) = ProxyHeader::parse(header, config) else { return Parsed::Not };
    let Some(address) = parsed.proxied_address() else {
        return Parsed::Header(Announced::default(), size);
    };
    let Some(fields) = fields(header) else { return Parsed::Not };
    let (visitor, public) = (canonical(address.source), canonical(address.destination));
    Parsed::Header(Announced { visitor: Some(visitor), public: Some(public), fields }, size)
}

/// The fields of a header with IP addresses, without checksum and padding. `None`: a field is
/// longer than the rest of the header, or the checksum is wrong.
fn fields(header: &[u8]) -> Option<Bytes> {
    let begin = match header.get(V2_HEAD - 3) {
        Some(0x11 | 0x12) if !header.starts_with(V1) => V2_HEAD + 12,
        Some(0x21 | 0x22) if !header.starts_with(V1) => V2_HEAD + 36,
        _ => return Some(Bytes::new()),
    };
    let (mut kept, mut at) = (Vec::new(), begin);
    while let Some(rest) = header.get(at..).filter(|rest| !rest.is_empty()) {
        let [kind, high, low, ..] = rest else { return None };
        let size = 3 + usize::from(u16::from_be_bytes([*high, *low]));
        let field = rest.get(..size)?;
        match *kind {
            CHECKSUM => {
                let stated = u32::from_be_bytes(field.get(3..)?.try_into().ok()?);
                if stated != checksum(header, at + 3) {
                    return None;
                }
            }
            PADDING => {}
            _ => kept.extend_from_slice(field),
        }
        at += size;
    }
    Some(kept.into())
}

/// The field with the checksum of the header (section 2.2.3).
const CHECKSUM: u8 = 3;

/// The padding field, which has no meaning (section 2.2.4).
const PADDING: u8 = 4;

/// The CRC-32C (RFC 4960 appendix B) of a header, with the four bytes at `hole` taken as zero.
fn checksum(header: &[u8], hole: usize) -> u32 {
    let hole = hole..hole + 4;
    let value = header.iter().enumerate().fold(u32::MAX, |crc, (at, byte)| {
        let byte = if hole.contains(&at) { 0 } else { *byte };
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 }
        })
    });
    !value
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream as StdStream};

    use super::*;
    use crate::proxy_header::{ProxyVersion, proxy_header, with_fields};

    const VISITOR: &str = "203.0.113.9:40000";
    const PUBLIC: &str = "198.51.100.1:443";

    fn header(version: ProxyVersion) -> Vec<u8> {
        proxy_header(version, Some(VISITOR.parse().unwrap()), PUBLIC.parse().unwrap()).to_vec()
    }

    fn announced_with(fields: &[u8]) -> Announced {
        Announced {
            visitor: Some(VISITOR.parse().unwrap()),
            public: Some(PUBLIC.parse().unwrap()),
            fields: Bytes::copy_from_slice(fields),
        }
    }

    #[test]
    fn a_header_is_read_however_it_is_cut_and_what_follows_it_is_left() {
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            let header = header(version);
            let all = [&header[..], b"GET / HTTP/1.1\r\n\r\n"].concat();
            for end in 0..header.len() {
                assert_eq!(parse(&all[..end]), Parsed::More, "{version:?} {end}");
            }
            for end in header.len()..=all.len() {
                let whole = Parsed::Header(announced_with(b""), header.len());
                assert_eq!(parse(&all[..end]), whole, "{version:?} {end}");
            }
        }
    }

    #[test]
    fn a_balancer_that_speaks_for_itself_names_nobody() {
        let nobody = |bytes: &[u8]| Parsed::Header(Announced::default(), bytes.len());
        for text in ["PROXY UNKNOWN\r\n", "PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n"] {
            assert_eq!(parse(text.as_bytes()), nobody(text.as_bytes()), "{text}");
        }
        let local = proxy_header(ProxyVersion::V2, None, PUBLIC.parse().unwrap());
        assert_eq!(parse(&local), nobody(&local));
        // LOCAL with addresses, which the receiver must ignore.
        let mut local = header(ProxyVersion::V2);
        local[12] = 0x20;
        assert_eq!(parse(&local), nobody(&local));
    }

    #[test]
    fn a_mapped_address_is_one_of_ipv4() {
        let v6 = "PROXY TCP6 ::ffff:203.0.113.9 ::ffff:198.51.100.1 40000 443\r\n";
        assert_eq!(parse(v6.as_bytes()), Parsed::Header(announced_with(b""), v6.len()));
    }

    #[test]
    fn fields_are_kept_but_for_the_checksum_and_padding() {
        // An authority, padding and a unique id.
        let (authority, padding, id) = (b"\x02\x00\x01a", b"\x04\x00\x02..", b"\x05\x00\x02id");
        let hole = b"\x03\x00\x04\0\0\0\0";
        let fields = [&authority[..], padding, hole, id].concat();
        let (visitor, public) = (Some(VISITOR.parse().unwrap()), PUBLIC.parse().unwrap());
        let mut bytes = with_fields(ProxyVersion::V2, visitor, public, &fields).to_vec();
        let at = V2_HEAD + 12 + authority.len() + padding.len() + 3;
        assert_eq!(parse(&bytes), Parsed::Not, "the checksum is wrong");
        let sum = checksum(&bytes, at);
        bytes[at..at + 4].copy_from_slice(&sum.to_be_bytes());
        let kept = announced_with(&[&authority[..], id].concat());
        assert_eq!(parse(&bytes), Parsed::Header(kept, bytes.len()));
        bytes[30] ^= 1;
        assert_eq!(parse(&bytes), Parsed::Not, "a bit has changed");
    }

    #[test]
    fn the_checksum_is_that_of_rfc_3720() {
        // Appendix B.4: 32 bytes of zeros, and 32 bytes of ones.
        assert_eq!(checksum(&[0; 32], 40), 0x8a91_36aa);
        assert_eq!(checksum(&[0xff; 32], 40), 0x62a8_ab43);
    }

    #[test]
    fn what_is_no_header_is_known_at_once_and_no_length_is_believed() {
        let long = [SIGNATURE, b"\x21\x11\xff\xff"].concat();
        let short = [SIGNATURE, b"\x21\x11\x00\x04abcd"].concat();
        let field = {
            let (visitor, public) = (Some(VISITOR.parse().unwrap()), PUBLIC.parse().unwrap());
            with_fields(ProxyVersion::V2, visitor, public, b"\x02\x00\x09a").to_vec()
        };
        let line = format!("PROXY TCP4 {}", "1".repeat(200));
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 99999\r\n",
            b"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
            b"PROXY TCP4 ::1 ::1 1 2\r\n",
            b"PROXY \r\n",
            b"\r\n\r\nx",
            line.as_bytes(),
            &long,
            &short,
            &field,
        ] {
            assert_eq!(parse(bytes), Parsed::Not, "{:?}", bytes.escape_ascii().to_string());
        }
    }

    #[test]
    fn no_bytes_make_the_parser_fail() {
        // A header with each byte replaced by several values, and truncated at every position.
        for header in [header(ProxyVersion::V1), header(ProxyVersion::V2)] {
            for at in 0..header.len() {
                for value in [0, 1, 3, 0x0d, 0x20, 0x21, 0x31, 0x7f, 0xff] {
                    let mut changed = header.clone();
                    changed[at] = value;
                    for end in 0..=changed.len() {
                        let _ = parse(&changed[..end]);
                        let _ = of_datagram(&changed[..end]);
                    }
                }
            }
        }
    }

    fn pair() -> (StdStream, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let visitor = StdStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        (visitor, tokio::net::TcpStream::from_std(socket).unwrap().into())
    }

    #[tokio::test]
    async fn the_bytes_behind_the_header_stay_in_the_socket() {
        let (mut visitor, socket) = pair();
        visitor.write_all(&[&header(ProxyVersion::V2)[..], b"hello"].concat()).unwrap();
        assert_eq!(announced(&socket).await.unwrap(), announced_with(b""));
        let mut read = BytesMut::with_capacity(100);
        assert_eq!(socket.read(&mut read, 100).unwrap(), Some(5));
        assert_eq!(&read[..], b"hello");
    }

    #[tokio::test]
    async fn what_is_no_header_stays_in_the_socket_too() {
        let (mut visitor, socket) = pair();
        visitor.write_all(b"hello").unwrap();
        assert!(matches!(announced(&socket).await, Err(HeaderError::NotOne)));
        let mut read = BytesMut::with_capacity(100);
        assert_eq!(socket.read(&mut read, 100).unwrap(), Some(5));
        drop(visitor);
        assert!(matches!(announced(&socket).await, Err(HeaderError::Gone(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_that_does_not_come_is_waited_for_5_s() {
        let (mut visitor, socket) = pair();
        visitor.write_all(b"PROXY ").unwrap();
        let begin = tokio::time::Instant::now();
        assert!(matches!(announced(&socket).await, Err(HeaderError::Late)));
        assert_eq!(begin.elapsed().as_secs(), HEADER_WAIT.as_secs());
    }
}

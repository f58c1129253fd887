//! The TLS ClientHello (RFC 8446 section 4.1.2) and its server name.
//!
//! A ClientHello may be split into any number of TLS records, and a record into any number of
//! pieces. With a post-quantum key exchange it has 1.5 KiB or more. Memory is allocated for bytes
//! that arrived, never for a length that the visitor only claims.

#[cfg(test)]
mod tests;

use super::Sniff;

/// The maximum size of a ClientHello in bytes, including its 4 bytes of header.
const HELLO: usize = 16 << 10;

/// No record of a ClientHello may begin after this number of bytes on the wire. A ClientHello of
/// common size may be split into records of one byte.
const WIRE: usize = 20 << 10;

/// The maximum payload of a record in bytes (RFC 8446 section 5.1).
const RECORD: usize = 1 << 14;

/// The maximum number of protocols stored from an ALPN extension. Visitors offer 2 or 3.
const ALPN: usize = 16;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const APPLICATION_PROTOCOLS: u16 = 16;

/// The server name and the protocols of a ClientHello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The name of the server (RFC 6066 section 3) in lower case without a final dot. `None`: no
    /// name, no valid DNS name (an address, for example), or several names.
    pub server_name: Option<Box<str>>,
    /// The protocols that the visitor offers, best first (RFC 7301); at most 16.
    pub alpn: Vec<Box<[u8]>>,
}

impl Hello {
    /// Whether the visitor offers the protocol `name`.
    #[must_use]
    pub fn offers(&self, name: &[u8]) -> bool {
        self.alpn.iter().any(|offered| **offered == *name)
    }
}

/// Looks for a ClientHello in the first bytes of a connection.
#[derive(Debug, Default)]
pub struct HelloSniffer {
    /// The number of inspected bytes on the wire.
    at: usize,
    /// The number of missing bytes of the current record.
    left: usize,
    /// The received part of the handshake message.
    message: Vec<u8>,
}

impl HelloSniffer {
    /// Inspects `bytes`, which are all bytes of the connection so far.
    pub fn look(&mut self, bytes: &[u8]) -> Sniff<Hello> {
        loop {
            if let Some(outcome) = self.message() {
                return outcome;
            }
            let rest = bytes.get(self.at..).unwrap_or_default();
            if self.left > 0 {
                let taken = self.left.min(rest.len());
                if taken == 0 {
                    return Sniff::More;
                }
                self.message.extend_from_slice(&rest[..taken]);
                self.left -= taken;
                self.at += taken;
            } else {
                match record(rest) {
                    Sniff::Found(length) if self.at < WIRE => {
                        self.left = length;
                        self.at += RECORD_HEAD;
                    }
                    Sniff::More => return Sniff::More,
                    Sniff::Found(_) | Sniff::Not => return Sniff::Not,
                }
            }
        }
    }

    /// The outcome, if the handshake message is complete or cannot be a ClientHello.
    fn message(&self) -> Option<Sniff<Hello>> {
        match *self.message {
            [kind, ..] if kind != CLIENT_HELLO => Some(Sniff::Not),
            [_, a, b, c, ref rest @ ..] => {
                let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                if length + 4 > HELLO {
                    return Some(Sniff::Not);
                }
                let body = rest.get(..length)?;
                Some(hello(&mut Reader(body)).map_or(Sniff::Not, Sniff::Found))
            }
            _ => None,
        }
    }
}

/// The size of a record header in bytes: type, version, length.
const RECORD_HEAD: usize = 5;

/// The length of the record that begins with `bytes`.
fn record(bytes: &[u8]) -> Sniff<usize> {
    match *bytes {
        // Each byte is checked as soon as it arrives, so that another protocol is detected early.
        [kind, ..] if kind != HANDSHAKE => Sniff::Not,
        [_, major, ..] if major != 3 => Sniff::Not,
        [_, _, _, a, b, ..] => match usize::from(u16::from_be_bytes([a, b])) {
            length @ 1..=RECORD => Sniff::Found(length),
            _ => Sniff::Not,
        },
        _ => Sniff::More,
    }
}

/// Decodes the body of a ClientHello. `None`: malformed.
fn hello(body: &mut Reader<'_>) -> Option<Hello> {
    // Version and random.
    body.take(2 + 32)?;
    let session = body.vector8()?;
    let suites = body.vector16()?;
    let compression = body.vector8()?;
    if session.len() > 32 || suites.is_empty() || suites.len() % 2 != 0 || compression.is_empty() {
        return None;
    }
    let mut hello = Hello::default();
    if body.is_empty() {
        // Clients with TLS 1.2 or older may omit the extensions.
        return Some(hello);
    }
    let mut extensions = Reader(body.vector16()?);
    let (mut names_seen, mut protocols_seen) = (false, false);
    while !extensions.is_empty() {
        let kind = extensions.number16()?;
        let mut data = Reader(extensions.vector16()?);
        // An extension occurs once (RFC 8446 section 4.2). Other extensions and GREASE (RFC 8701)
        // are ignored.
        if kind == SERVER_NAME && !std::mem::replace(&mut names_seen, true) {
            hello.server_name = server_name(&mut data)?;
        } else if kind == APPLICATION_PROTOCOLS && !std::mem::replace(&mut protocols_seen, true) {
            hello.alpn = protocols(&mut data)?;
        } else if kind == SERVER_NAME || kind == APPLICATION_PROTOCOLS {
            return None;
        }
    }
    body.is_empty().then_some(hello)
}

/// Decodes the extension `server_name`. `None`: malformed.
fn server_name(data: &mut Reader<'_>) -> Option<Option<Box<str>>> {
    let mut list = Reader(data.vector16()?);
    let (mut name, mut names) = (None, 0);
    while !list.is_empty() {
        let kind = list.take(1)?[0];
        let bytes = list.vector16()?;
        if kind == 0 {
            name = h1::host::dns_name(bytes).map(Into::into);
            names += 1;
        }
    }
    // A list has one name per type (RFC 6066 section 3): with two names neither is chosen.
    data.is_empty().then_some(if names == 1 { name } else { None })
}

/// Decodes the extension ALPN. `None`: malformed.
fn protocols(data: &mut Reader<'_>) -> Option<Vec<Box<[u8]>>> {
    let mut list = Reader(data.vector16()?);
    let mut protocols = Vec::new();
    while !list.is_empty() {
        let protocol = list.vector8()?;
        if protocol.is_empty() {
            return None;
        }
        if protocols.len() < ALPN {
            protocols.push(protocol.into());
        }
    }
    (data.is_empty() && !protocols.is_empty()).then_some(protocols)
}

/// The bytes that are not decoded yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number16(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A vector with a 1-byte length.
    fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.take(1)?[0];
        self.take(length.into())
    }

    /// A vector with a 2-byte length.
    fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.number16()?;
        self.take(length.into())
    }
}

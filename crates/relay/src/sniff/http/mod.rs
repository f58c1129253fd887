//! The head of an HTTP/1 request (RFC 9112): which host is it for, and where does its body end?
//!
//! The far end of a request reads the same bytes with a parser of its own. A request that two
//! parsers may understand differently is refused here, whether or not a lenient parser could make
//! sense of it: otherwise the rest of such a request would be a request of its own for another
//! host (request smuggling).
//!
//! | file | content |
//! |---|---|
//! | `opening` | the first line: HTTP/1 or another protocol |
//! | `scan` | the end of the head, over any number of pieces |
//! | `raw` | the fields of a complete head, as slices |
//! | `fault` | the reasons to refuse a request |

mod fault;
mod opening;
mod raw;
mod scan;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::rc::Rc;

pub use self::fault::Fault;
pub(crate) use self::opening::is_token;
pub(super) use self::opening::{Opened, Opening};
pub(crate) use self::raw::{FIELDS, Raw, diagnose_fields, has_token, is_clean, number};
pub(crate) use self::scan::{Scan, Scanned};

/// The largest head of a request in bytes.
pub const HEAD: usize = 32 << 10;

/// The connection preface of HTTP/2 (RFC 9113 section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The methods that change how the answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The answer has no body.
    Head,
    /// The answer may open a tunnel.
    Connect,
    /// All other methods.
    Other,
}

/// The framing of a request's body (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// No body.
    None,
    /// A body of so many bytes.
    Length(u64),
    /// A body in chunks.
    Chunked,
}

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The length of the head in bytes, with the empty line at its end.
    pub length: usize,
    /// The host that the request is for: lower case, without port and last dot; an IPv6 address in
    /// its canonical text and in brackets. `None`: a request of HTTP/1.0 without `Host`, or an
    /// empty `Host`.
    pub host: Option<Box<str>>,
    /// The method.
    pub method: Method,
    /// The framing of the body.
    pub body: Body,
    /// The visitor asks for another protocol on this connection (RFC 9110 section 7.8).
    pub upgrade: bool,
    /// The other protocol is WebSocket. Implies `upgrade`.
    pub websocket: bool,
    /// The other protocol is HTTP/2 without TLS, whose streams have a host each. Implies
    /// `upgrade`. RFC 9113 declares this way into HTTP/2 obsolete.
    pub h2c: bool,
    /// The connection ends after the answer.
    pub close: bool,
    /// The request is one of HTTP/1.0.
    pub version10: bool,
    /// The place of the path in the bytes, without the query. Empty for CONNECT, and for a target
    /// such as `http://example.com`, whose path is `/`. `OPTIONS *` has the path `*`.
    pub path: Range<usize>,
}

/// The outcome of a look at the first bytes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// More bytes are needed.
    More,
    /// The connection preface of HTTP/2.
    Http2,
    /// A complete head.
    Head(Head),
    /// A request that is refused. The connection closes after the answer.
    Bad(Fault),
    /// No HTTP/1 at all. A port for HTTP alone answers with [`Fault::NotHttp`].
    Not,
}

/// Looks for the head of the first request of a connection.
#[derive(Debug, Default)]
pub struct HeadSniffer {
    scanner: Scanner,
}

impl HeadSniffer {
    /// A sniffer. A request that has the field `route_header` is for the host that the value of
    /// this field names, instead of the host that `Host` names.
    #[must_use]
    pub fn new(route_header: Option<Rc<str>>) -> Self {
        Self { scanner: Scanner::new(route_header) }
    }

    /// Looks at `bytes`, which are all that arrived since the first byte of the connection.
    pub fn look(&mut self, bytes: &[u8]) -> Looked {
        if bytes.starts_with(PREFACE) {
            return Looked::Http2;
        }
        if PREFACE.starts_with(bytes) {
            return Looked::More;
        }
        match self.scanner.look(bytes) {
            Found::More => Looked::More,
            Found::Bad(fault) => Looked::Bad(fault),
            Found::Not => Looked::Not,
            Found::Head(raw) => match raw.host() {
                Ok(host) => Looked::Head(raw.head(host)),
                Err(fault) => Looked::Bad(fault),
            },
        }
    }
}

/// Looks for the head of any request of a connection.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    route_header: Option<Rc<str>>,
    line: Opening,
    /// The scan of the lines after the first line. `None`: the first line is not complete.
    rest: Option<Scan>,
    has_begun: bool,
}

/// The outcome of [`Scanner::look`].
#[derive(Debug)]
pub(crate) enum Found<'a> {
    More,
    Head(Raw<'a>),
    Bad(Fault),
    Not,
}

impl Scanner {
    pub(crate) fn new(route_header: Option<Rc<str>>) -> Self {
        Self { route_header, ..Self::default() }
    }

    /// Forgets the request: the next bytes are those of another request.
    pub(crate) fn reset(&mut self) {
        self.line = Opening::default();
        self.rest = None;
        self.has_begun = false;
    }

    /// Looks at `bytes`, which are all that arrived since the first byte of the request.
    pub(crate) fn look<'a>(&mut self, bytes: &'a [u8]) -> Found<'a> {
        let route_header = self.route_header.as_deref();
        if !std::mem::replace(&mut self.has_begun, true) {
            // The common case: the whole head is there. What is not a well-formed head goes the
            // long way, so that the outcome does not depend on the pieces.
            if let Some(raw) = raw::parse(bytes, route_header) {
                return raw.map_or_else(Found::Bad, Found::Head);
            }
        }
        let scan = match &mut self.rest {
            Some(scan) => scan,
            None => match self.line.look(bytes) {
                Opened::More => return Found::More,
                Opened::Not => return Found::Not,
                Opened::Bad(fault) => return Found::Bad(fault),
                Opened::Line(line) => self.rest.insert(Scan::after(line.end + 2)),
            },
        };
        match scan.look(bytes, HEAD) {
            Scanned::More => Found::More,
            Scanned::BareLf => Found::Bad(Fault::BareLf),
            Scanned::Size => Found::Bad(Fault::HeadSize),
            Scanned::End(end) => match raw::parse(&bytes[..end], route_header) {
                Some(raw) => raw.map_or_else(Found::Bad, Found::Head),
                None => Found::Bad(raw::diagnose(&bytes[..end])),
            },
        }
    }
}

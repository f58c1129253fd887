//! The head of an HTTP/1 request (RFC 9112): which host is it for, and where does its body end?
//!
//! The receiver of a request parses the same bytes with a parser of its own. A request that two
//! parsers may understand differently is refused here, whether or not a lenient parser could make
//! sense of it: otherwise the rest of such a request could be taken for a separate request for
//! another host (request smuggling).
//!
//! | file | content |
//! |---|---|
//! | `absolute` | a target that names its host |
//! | `opening` | the first line: HTTP/1 or another protocol |
//! | `parse` | the fields of a complete head, as slices |

mod absolute;
mod opening;
mod parse;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

pub use self::absolute::Absolute;
pub use self::opening::{Opened, Opening};
use self::parse::Address;
use crate::{Authority, Fault, Framing, Scan, Scanned};

/// The largest head of a request in bytes.
pub const HEAD: usize = 32 << 10;

/// The connection preface of HTTP/2 (RFC 9113 section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The methods that change how the response is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The response has no body.
    Head,
    /// The response may open a tunnel.
    Connect,
    /// All other methods.
    Other,
}

/// The head of a request, as slices of the bytes that arrived. Its host is not checked yet.
#[derive(Debug)]
pub struct Request<'a> {
    /// The length of the head in bytes, with the empty line at its end.
    pub length: usize,
    /// The method.
    pub method: Method,
    /// The framing of the body.
    pub body: Framing,
    /// The far end may change the protocol after this request, so the bytes after the request have
    /// no defined meaning before the response. Some servers do this for `Upgrade` alone, without
    /// `upgrade` in `Connection`.
    pub may_switch: bool,
    /// The visitor requests another protocol on this connection (RFC 9110 section 7.8). Implies
    /// `may_switch`.
    pub upgrade: bool,
    /// Whether the connection ends after the response.
    pub close: bool,
    host_field: Option<&'a [u8]>,
    address: Option<Address<'a>>,
    /// The value of the field that names the host instead of `Host`.
    route: Option<&'a [u8]>,
    websocket: bool,
    h2c: bool,
    version10: bool,
    path: Range<usize>,
}

impl<'a> Request<'a> {
    /// The host that the request is for: lower case, without port and last dot. Validates each part
    /// that names a host. `None`: a request of HTTP/1.0 without `Host`, or an empty `Host`.
    ///
    /// # Errors
    /// A part names no valid host, or two parts name different hosts.
    pub fn host(&self) -> Result<Option<Cow<'a, str>>, Fault> {
        let target = self.address.map(|address| (address.authority, address.port));
        let named = named(target, self.host_field)?;
        match self.route {
            Some(route) => {
                let route = Authority::parse(route).ok_or(Fault::RouteHeader)?;
                Ok(Some(route.host))
            }
            None => Ok(named),
        }
    }

    /// Whether the visitor requests HTTP/2 without TLS.
    pub(crate) const fn asks_for_h2c(&self) -> bool {
        self.h2c
    }

    /// All bytes that name a host. No part contains a line end, and a missing part means the same
    /// as an empty part.
    pub(crate) fn spelling(&self) -> [&'a [u8]; 5] {
        let part = |part: Option<&'a [u8]>| part.unwrap_or_default();
        let authority = self.address.map(|address| address.authority);
        [part(self.host_field), b"\n", part(authority), b"\n", part(self.route)]
    }

    fn head(self, host: Option<Box<str>>) -> Head {
        let Self { length, method, body, upgrade, websocket, h2c, close, version10, path, .. } =
            self;
        Head { length, host, method, body, upgrade, websocket, h2c, close, version10, path }
    }
}

/// The host that a request names in its target and in its field `Host`, which must agree (RFC 9112
/// section 3.2.2, RFC 9113 section 8.3.1). `target`: the authority of the target, and the port that
/// its scheme implies. `None`: no part names a host.
///
/// # Errors
/// [`Fault::Host`] or [`Fault::HostDiffers`].
pub fn named<'a>(
    target: Option<(&'a [u8], Option<u16>)>,
    field: Option<&'a [u8]>,
) -> Result<Option<Cow<'a, str>>, Fault> {
    let read = |bytes| Authority::parse(bytes).ok_or(Fault::Host);
    let named = field.filter(|field| !field.is_empty()).map(read).transpose()?;
    let Some((target, implied)) = target else { return Ok(named.map(|named| named.host)) };
    let target = read(target)?;
    let implied = implied.or(target.port);
    let is_same = |named: &Authority<'_>| {
        named.host == target.host && named.port.or(implied) == target.port.or(implied)
    };
    if field.is_some() && !named.as_ref().is_some_and(is_same) {
        return Err(Fault::HostDiffers);
    }
    Ok(Some(target.host))
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
    pub body: Framing,
    /// Whether the visitor requests another protocol on this connection (RFC 9110 section 7.8).
    pub upgrade: bool,
    /// Whether the requested protocol is WebSocket. Implies `upgrade`.
    pub websocket: bool,
    /// Whether the requested protocol is HTTP/2 without TLS, in which each stream names its own
    /// host. Implies `upgrade`. RFC 9113 declares this upgrade to HTTP/2 obsolete.
    pub h2c: bool,
    /// Whether the connection ends after the response.
    pub close: bool,
    /// Whether the request has version HTTP/1.0.
    pub version10: bool,
    /// The range of the path in the bytes, without the query. Empty for CONNECT, and for a target
    /// such as `http://example.com`, whose path is `/`. `OPTIONS *` has the path `*`.
    pub path: Range<usize>,
}

/// The result of examining the first bytes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// More bytes are needed.
    More,
    /// The connection preface of HTTP/2.
    Http2,
    /// A complete head.
    Head(Head),
    /// A refused request. The connection closes after the response.
    Bad(Fault),
    /// The bytes are not HTTP/1. A port that serves only HTTP answers with [`Fault::NotHttp`].
    Not,
}

/// Scans for the head of the first request of a connection.
#[derive(Debug, Default)]
pub struct HeadSniffer {
    scanner: Scanner,
}

impl HeadSniffer {
    /// A sniffer. The field `route_header` of a request, if present, names the host instead of
    /// `Host`.
    #[must_use]
    pub fn new(route_header: Option<Rc<str>>) -> Self {
        Self { scanner: Scanner::new(route_header) }
    }

    /// Scans `bytes`, which are all bytes since the start of the connection.
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
            Found::Head(request) => match request.host() {
                Ok(host) => Looked::Head(request.head(host.map(Into::into))),
                Err(fault) => Looked::Bad(fault),
            },
        }
    }
}

/// Scans for the head of any request of a connection.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    route_header: Option<Rc<str>>,
    line: Opening,
    /// The scan of the lines after the first line. `None`: the first line is incomplete.
    rest: Option<Scan>,
    has_begun: bool,
}

/// The outcome of [`Scanner::look`].
#[derive(Debug)]
pub(crate) enum Found<'a> {
    More,
    Head(Request<'a>),
    Bad(Fault),
    Not,
}

impl Scanner {
    pub(crate) fn new(route_header: Option<Rc<str>>) -> Self {
        Self { route_header, ..Self::default() }
    }

    /// Resets the scanner: the next bytes belong to another request.
    pub(crate) fn reset(&mut self) {
        self.line = Opening::default();
        self.rest = None;
        self.has_begun = false;
    }

    /// Scans `bytes`, which are all bytes since the start of the request.
    pub(crate) fn look<'a>(&mut self, bytes: &'a [u8]) -> Found<'a> {
        let route_header = self.route_header.as_deref();
        if !std::mem::replace(&mut self.has_begun, true) {
            // The common case: the whole head has arrived. Anything else than a well-formed head
            // takes the slow path, so that the outcome does not depend on how the bytes were split.
            if let Some(request) = parse::parse(bytes, route_header) {
                return request.map_or_else(Found::Bad, Found::Head);
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
            Scanned::End(end) => match parse::parse(&bytes[..end], route_header) {
                Some(request) => request.map_or_else(Found::Bad, Found::Head),
                None => Found::Bad(parse::diagnose(&bytes[..end])),
            },
        }
    }
}

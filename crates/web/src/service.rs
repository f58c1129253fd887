//! The interface to the caller: the visitor, the services, and the streams to targets.

use std::{borrow::Cow, fmt, net::SocketAddr, pin::Pin, rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName};
use hyper::{Request, Response};
use proto::{Budget, Redirect};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Candidate, Cookies, Pages, Place, Record, Rules, Wants};

/// A future that is bound to its worker.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// The settings that all visitors of a listening address share.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The request field that names the host instead of `Host`. The field is passed on. A request
    /// without the field is for the host in `Host`.
    pub route_header: Option<HeaderName>,
    /// The pages that replace those of the server.
    pub pages: Pages,
    /// The idle timeout of a connection.
    pub idle: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { route_header: None, pages: Pages::default(), idle: IDLE }
    }
}

/// The default of [`Settings::idle`], as in nginx (`keepalive_timeout`).
const IDLE: Duration = Duration::from_secs(75);

/// Connections of trusted reverse proxies stay open for at least this time. Load balancers keep a
/// connection for 240 s (Azure) to 600 s (Google), and respond with 502 to a request that races
/// with a close by the server.
const IDLE_OF_PROXIES: Duration = Duration::from_secs(650);

impl Settings {
    /// The idle timeout of a connection. `is_trusted`: it comes from a trusted reverse proxy.
    #[must_use]
    pub fn idle(&self, is_trusted: bool) -> Duration {
        if is_trusted { self.idle.max(IDLE_OF_PROXIES) } else { self.idle }
    }
}

/// One connection of a visitor.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// The address that a target gets in `X-Forwarded-For`. A visitor over a Unix socket has none.
    pub address: Option<SocketAddr>,
    /// Whether the visitor uses TLS that ends at this server.
    pub secure: bool,
    /// The protocol, if chosen by ALPN.
    pub protocol: Protocol,
    /// The maximum number of bytes that the byte stream buffers while a write is pending, as TLS
    /// does.
    pub most_unsent: u64,
}

/// The visitor that sent a request. A reverse proxy sends the requests of many visitors over one
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The visitor has this address, taken from a trusted reverse proxy or the connection. The port
    /// is 0 if a proxy does not name it.
    Known(SocketAddr),
    /// A trusted reverse proxy itself, or a program at its address: the fields name no other
    /// address.
    Proxy(SocketAddr),
    /// The connection has no address, for example over a Unix socket.
    Nameless,
    /// A trusted reverse proxy names an identifier that is not an address.
    Hidden,
    /// The fields of a trusted reverse proxy contradict each other: the visitor has added a field.
    Disputed,
}

impl Sender {
    /// The address of the visitor, if one is known.
    #[must_use]
    pub const fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Known(address) | Self::Proxy(address) => Some(address),
            Self::Nameless | Self::Hidden | Self::Disputed => None,
        }
    }
}

/// The key by which requests may share connections to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// A number that is unique over all services and all editions of this service.
    pub edition: u64,
    /// The address that the connection announces to the target, for example by the PROXY protocol.
    pub visitor: Option<SocketAddr>,
    /// The place to which the connection leads, as named by the cookies of the requests.
    /// [`Service::identity`] does not set it.
    pub place: Option<Place>,
}

/// The protocol of a visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 or HTTP/1.0.
    H1,
    /// HTTP/2.
    H2,
    /// HTTP/2 if the first bytes are its preface (RFC 9113 section 3.3), otherwise HTTP/1.1.
    Either,
}

/// The services that a visitor may reach. Each request looks its service up, so that the current
/// rules apply, also on a connection older than the rules.
pub trait Services {
    /// The settings in force.
    fn settings(&self) -> Arc<Settings>;

    /// Whether the visitor is a reverse proxy whose `X-Forwarded-*` fields are trusted.
    fn trusts(&self) -> bool {
        false
    }

    /// The visitor that sent a request with these fields over the connection of `visitor`. Only
    /// this method decides whose address counts.
    fn sender(&self, visitor: &Visitor, fields: &HeaderMap) -> Sender {
        let _ = fields;
        visitor.address.map_or(Sender::Nameless, Sender::Known)
    }

    /// The memory budget for the sender of a request over the connection of a reverse proxy.
    /// `None`: the connection is charged as before.
    fn budget_of(&self, sender: Sender) -> Option<Rc<dyn Budget>> {
        let _ = sender;
        None
    }

    /// The service for a request.
    fn find(&self, asked: &Asked<'_>) -> Found;

    /// The handler in the server itself for a request that belongs to no service. Called before
    /// [`Self::find`].
    fn own(&self, asked: &Asked<'_>) -> Option<Rc<dyn Own>> {
        let _ = asked;
        None
    }

    /// Whether [`Self::answered`] needs request headers, and which parts of them.
    fn wants(&self) -> Option<Wants> {
        None
    }

    /// Called when a request has completed. A request for a service is reported to the service
    /// instead.
    fn answered(&self, record: &Record) {
        let _ = record;
    }

    /// Whether requests for `host` may arrive over this connection. A visitor over TLS gets 421 for
    /// a host that the certificate of the connection does not cover (RFC 9110 section 15.5.20).
    fn covers(&self, host: &str) -> bool {
        let _ = host;
        true
    }
}

/// The arguments of [`Services::find`].
#[derive(Clone, Copy, Debug)]
pub struct Asked<'r> {
    /// The host, in the form of [`h1::host`].
    pub host: &'r str,
    /// The port that the request names with the host.
    pub port: Option<u16>,
    /// The path in the form of [`normal_path`](crate::normal_path), without a query.
    pub path: &'r str,
    /// The sender of the request.
    pub sender: Sender,
    /// Whether the visitor uses TLS, which ends at this server or at a trusted reverse proxy.
    pub is_secure: bool,
}

/// The result of [`Services::find`].
pub enum Found {
    /// The service takes the request.
    Service(Rc<dyn Service>),
    /// No service matches: 404.
    Unknown,
    /// The visitor is redirected to this address: 308.
    Redirect(Redirect),
    /// The server responds instead of a service: 200 with these bytes.
    Answer(Bytes),
    /// The request is refused, for example with 503 at a limit.
    Refused(Refusal),
    /// The service is known but cannot be reached: its client is disconnected or on hold.
    Unavailable(Unavailable),
    /// The result is delayed: a client that had the name may be about to reconnect.
    Later(LocalFuture<Self>),
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(service) => write!(f, "Service({:?})", service.identity()),
            Self::Unknown => f.write_str("Unknown"),
            Self::Redirect(to) => write!(f, "Redirect({})", to.as_str()),
            Self::Answer(bytes) => write!(f, "Answer({} bytes)", bytes.len()),
            Self::Refused(refusal) => write!(f, "Refused({refusal:?})"),
            Self::Unavailable(why) => write!(f, "Unavailable({why:?})"),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

/// A request handler inside the server.
pub trait Own {
    /// The maximum length of a request body, in bytes. A longer body gets 413.
    fn longest(&self) -> usize;

    /// The response to a request with its complete body. Dropping the future cancels it.
    fn answer(&self, request: Request<Bytes>) -> LocalFuture<Response<Bytes>>;
}

/// A response of the server itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status code of the response.
    pub status: u16,
    /// The reason in one sentence, for the page.
    pub reason: Cow<'static, str>,
}

/// The response for a service that is temporarily unreachable. An HTTP/1 connection is closed with
/// the response, so that its visitor holds no descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// Status (502 or 503) and reason.
    pub refusal: Refusal,
    /// The delay after which the visitor may retry, in seconds (`Retry-After`, RFC 9110 section
    /// 10.2.3).
    pub retry_after: u32,
    /// The HTML page that replaces [`Pages::unavailable`].
    pub page: Option<Arc<str>>,
}

impl Refusal {
    pub(crate) const fn new(status: u16, reason: &'static str) -> Self {
        Self { status, reason: Cow::Borrowed(reason) }
    }
}

impl From<h1::Fault> for Refusal {
    fn from(fault: h1::Fault) -> Self {
        Self::new(fault.status(), fault.reason())
    }
}

/// A service by name.
pub trait Service {
    /// Requests over one connection of a visitor share connections to the target if they have the
    /// same identity.
    fn identity(&self) -> Identity;

    /// The options of the service.
    fn rules(&self) -> &Rules;

    /// Admits a request, once and before its password is checked. Returns the delay after which its
    /// source may send the next one, in seconds, if the source sends too many: 429.
    fn excess(&self) -> Option<u32> {
        None
    }

    /// Checks a password that the request presented. The check may take long, so the caller serves
    /// other requests meanwhile.
    fn check(&self, candidate: Candidate) -> Checked {
        Checked::Now(candidate.is_right())
    }

    /// Called with the result of a password check. `is_right`: the request presented a pair of the
    /// service. Returns a future for when the request may learn the result; `None`: at once.
    fn judge(&self, is_right: bool) -> Option<LocalFuture<Verdict>> {
        let _ = is_right;
        None
    }

    /// The response instead of a target that could not be reached, if the reason is known by now:
    /// the client of the service is disconnected.
    fn away(&self) -> Option<Unavailable> {
        None
    }

    /// Called when a request for the service has completed.
    fn answered(&self, record: &Record) {
        let _ = record;
    }

    /// The affinity cookies, which bind a visitor to the place of its first request. `None`: each
    /// request is routed independently.
    fn cookies(&self) -> Option<&Cookies> {
        None
    }

    /// Opens a stream to the target. `place`: the preferred place of the visitor, if it can be
    /// served there.
    fn open(&self, place: Option<Place>) -> LocalFuture<Result<Box<dyn Stream>, OpenFailed>>;
}

/// Whether a request may learn whether its password is correct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Judged,
    /// Its source has guessed too often: 429, regardless of the password.
    Busy,
}

/// The result of [`Service::check`].
pub enum Checked {
    /// Whether the password is correct.
    Now(bool),
    /// The same result later, or the refusal of the request: too many password checks are pending.
    Later(LocalFuture<Result<bool, Refusal>>),
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(is_right) => write!(f, "Now({is_right})"),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

/// A connection to a target.
///
/// Dropping the stream resets it. Unless `write_vectored` is a single write of all slices,
/// `is_write_vectored` must return false.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// Why the target cannot be reached or broke the connection, as a sentence without a full stop
    /// ("the target refused the connection"). Called once reading has failed or ended.
    fn failure(&self) -> Option<Cow<'static, str>>;

    /// Whether the far side has become silent since the last call, while another target can serve.
    /// Called while a read is pending. The reader is woken when that happens.
    fn had_better_leave(&self) -> bool {
        false
    }

    /// The place to which the stream leads, for a service with cookies. Called once a byte was
    /// read.
    fn place(&self) -> Option<Place> {
        None
    }

    /// Carries the bytes of visitor and target after a protocol switch, until both directions have
    /// ended. Dropping the future resets the stream. The bytes `first` of the target go to the
    /// visitor before those of the stream.
    fn carry(self: Box<Self>, first: Bytes, visitor: Box<dyn ByteStream>) -> LocalFuture<()>;
}

/// The byte stream of a visitor.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> ByteStream for T {}

/// The error of a failed open of a stream to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFailed {
    /// The status code of the response: 502, 503 or 504.
    pub status: u16,
    /// The reason, as a sentence without a full stop.
    pub reason: Cow<'static, str>,
}

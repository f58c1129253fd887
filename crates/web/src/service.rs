//! The contract with the caller: who visits, which services exist, how a target is reached.

use std::{borrow::Cow, fmt, net::SocketAddr, pin::Pin, rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName};
use hyper::{Request, Response};
use proto::{Budget, Redirect};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Candidate, Cookies, Pages, Place, Record, Rules, Wants};

/// A future that stays on its worker.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// The settings that all visitors of a listening address share.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The field of a request that names the host instead of `Host`. The field stays in place. A
    /// request without the field is for the host of `Host`.
    pub route_header: Option<HeaderName>,
    /// The pages that replace those of the server.
    pub pages: Pages,
    /// How long a connection without a request stays open.
    pub idle: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { route_header: None, pages: Pages::default(), idle: IDLE }
    }
}

/// The default of [`Settings::idle`]: as nginx (`keepalive_timeout`).
const IDLE: Duration = Duration::from_secs(75);

/// Connections of trusted reverse proxies stay open for at least this time. Load balancers keep a
/// connection for 240 s (Azure) to 600 s (Google), and a request that meets the close of the server
/// is answered with 502.
const IDLE_OF_PROXIES: Duration = Duration::from_secs(650);

impl Settings {
    /// How long a connection without a request stays open. `is_trusted`: it is one of a trusted
    /// reverse proxy.
    #[must_use]
    pub fn idle(&self, is_trusted: bool) -> Duration {
        if is_trusted { self.idle.max(IDLE_OF_PROXIES) } else { self.idle }
    }
}

/// One connection of a visitor.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// The address that `X-Forwarded-For` tells to a target. A visitor of a Unix socket has none.
    pub address: Option<SocketAddr>,
    /// The visitor came over TLS that ended at this server.
    pub secure: bool,
    /// The protocol, where ALPN has chosen it.
    pub protocol: Protocol,
    /// Bytes that the byte stream keeps at most while a write waits, as TLS does.
    pub most_unsent: u64,
}

/// The visitor that sent a request. A reverse proxy sends the requests of many visitors over one
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The visitor has this address, which a trusted reverse proxy names or the connection has. The
    /// port is 0 where a proxy does not name it.
    Known(SocketAddr),
    /// A trusted reverse proxy itself, or a program at the address of one: the proxy names nobody
    /// else.
    Proxy(SocketAddr),
    /// The connection has no address, as one of a Unix socket.
    Nameless,
    /// A trusted reverse proxy names a word that is no address.
    Hidden,
    /// The fields of a trusted reverse proxy contradict each other: the visitor has added one.
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

/// Which requests may share connections to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// A number that no other service, and no other edition of this service, has at any time.
    pub edition: u64,
    /// The address that the target learns from the connection, as by the PROXY protocol.
    pub visitor: Option<SocketAddr>,
    /// Where the connection leads, as the cookies of the requests name it. [`Service::identity`]
    /// leaves it out.
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

/// The services that a visitor may reach. Each request asks anew, so that it is judged by the rules
/// of its moment, also on a connection that is older than the rules.
pub trait Services {
    /// The settings in force.
    fn settings(&self) -> Arc<Settings>;

    /// Whether the visitor is a reverse proxy whose `X-Forwarded-*` fields are believed.
    fn trusts(&self) -> bool {
        false
    }

    /// The visitor that sent a request with these fields over the connection of `visitor`. The one
    /// place that decides whose address counts.
    fn sender(&self, visitor: &Visitor, fields: &HeaderMap) -> Sender {
        let _ = fields;
        visitor.address.map_or(Sender::Nameless, Sender::Known)
    }

    /// The memory budget as the sender of a request over the connection of a reverse proxy sees it.
    /// `None`: the connection is charged as before.
    fn budget_of(&self, sender: Sender) -> Option<Rc<dyn Budget>> {
        let _ = sender;
        None
    }

    /// The service for a request.
    fn find(&self, asked: &Asked<'_>) -> Found;

    /// Who answers a request of no service, with its body: the server itself. Asked before
    /// [`Self::find`].
    fn own(&self, asked: &Asked<'_>) -> Option<Rc<dyn Own>> {
        let _ = asked;
        None
    }

    /// Whether [`Self::answered`] wants the heads of requests, and which parts of them.
    fn wants(&self) -> Option<Wants> {
        None
    }

    /// The answer to a request has ended. A request that was for a service is told to the service
    /// instead.
    fn answered(&self, record: &Record) {
        let _ = record;
    }

    /// Whether requests for `host` may come over this connection. A visitor over TLS gets 421 for
    /// a host that the certificate of the connection does not cover (RFC 9110 section 15.5.20).
    fn covers(&self, host: &str) -> bool {
        let _ = host;
        true
    }
}

/// What [`Services::find`] is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'r> {
    /// The host, in the form of [`h1::host`].
    pub host: &'r str,
    /// The port that the request names beside the host.
    pub port: Option<u16>,
    /// The path in the form of [`normal_path`](crate::normal_path), without a query.
    pub path: &'r str,
    /// Who sent the request.
    pub sender: Sender,
    /// The visitor came over TLS, which ended at this server or at a trusted reverse proxy.
    pub is_secure: bool,
}

/// The answer of [`Services::find`].
pub enum Found {
    /// The service takes the request.
    Service(Rc<dyn Service>),
    /// No service has the name: 404.
    Unknown,
    /// The visitor is sent to this address: 308.
    Redirect(Redirect),
    /// The server answers in place of a service: 200 with these bytes.
    Answer(Bytes),
    /// The request is refused, for example with 503 at a limit.
    Refused(Refusal),
    /// The service is known and cannot be reached: its client is away, or on hold.
    Unavailable(Unavailable),
    /// The answer needs time: a client that had the name may be about to return.
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

/// A part of the server that answers requests itself.
pub trait Own {
    /// The longest body of a request, bytes. A longer one gets 413.
    fn longest(&self) -> usize;

    /// The answer to a request whose body is there. Dropping the future gives the answer up.
    fn answer(&self, request: Request<Bytes>) -> LocalFuture<Response<Bytes>>;
}

/// An answer of the server itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status code of the answer.
    pub status: u16,
    /// One sentence about the reason, for the page.
    pub reason: Cow<'static, str>,
}

/// The answer in the place of a service that cannot be reached for a while. A connection of HTTP/1
/// ends with the answer, so that its visitor keeps no descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// Status (502 or 503) and reason.
    pub refusal: Refusal,
    /// The seconds after which the visitor may try again (`Retry-After`, RFC 9110 section 10.2.3).
    pub retry_after: u32,
    /// The HTML page in the place of [`Pages::unavailable`].
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

    /// Checks a password that the request gave. The check may take long, so the caller answers
    /// other requests meanwhile.
    fn check(&self, candidate: Candidate) -> Checked {
        Checked::Now(candidate.is_right())
    }

    /// The request gave a user and a password. `is_right`: one of the pairs of the service. Returns
    /// when the request may learn that; `None`: at once.
    fn judge(&self, is_right: bool) -> Option<LocalFuture<Verdict>> {
        let _ = is_right;
        None
    }

    /// The answer in the place of a target that could not be reached, if the reason is known by
    /// now: the client of the service is away.
    fn away(&self) -> Option<Unavailable> {
        None
    }

    /// The answer to a request for the service has ended.
    fn answered(&self, record: &Record) {
        let _ = record;
    }

    /// The cookies that keep a visitor where its first request went. `None`: each request is led by
    /// itself.
    fn cookies(&self) -> Option<&Cookies> {
        None
    }

    /// Opens a stream to the target. `place`: where the visitor should go, if it is served there.
    fn open(&self, place: Option<Place>) -> LocalFuture<Result<Box<dyn Stream>, OpenFailed>>;
}

/// Whether a request may learn whether its password is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Judged,
    /// Its source has guessed too often: 429, whatever the password is.
    Busy,
}

/// The answer of [`Service::check`].
pub enum Checked {
    /// The password is right, or it is not.
    Now(bool),
    /// The same later, or the refusal of the request: too many passwords wait for their check.
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
/// Dropping the stream resets it. Where `write_vectored` is not a single write of all slices,
/// `is_write_vectored` has to be false.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// Why the target cannot be reached or broke the connection, as a sentence without a full stop
    /// ("the target refused the connection"). Asked once reading has failed or ended.
    fn failure(&self) -> Option<Cow<'static, str>>;

    /// Whether the far side has fallen silent since this was asked, while another target can serve.
    /// Asked while reading waits. The reader is woken when that happens.
    fn had_better_leave(&self) -> bool {
        false
    }

    /// Where the stream leads, of a service with cookies. Asked once a byte was read.
    fn place(&self) -> Option<Place> {
        None
    }

    /// Visitor and target have switched to another protocol: carries their bytes until both
    /// directions have ended. Dropping the future resets the stream. The bytes `first` of the
    /// target go to the visitor before those of the stream.
    fn carry(self: Box<Self>, first: Bytes, visitor: Box<dyn ByteStream>) -> LocalFuture<()>;
}

/// The byte stream of a visitor.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> ByteStream for T {}

/// A stream to a target could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFailed {
    /// The status code of the answer: 502, 503 or 504.
    pub status: u16,
    /// The reason, as a sentence without a full stop.
    pub reason: Cow<'static, str>,
}

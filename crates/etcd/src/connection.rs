//! One HTTP/1.1 connection to a member. There is no task behind it: whoever waits for an answer
//! drives the connection meanwhile.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::rt::{Read, Write};

use crate::error::{Reason, Unanswered};

/// The most bytes of an answer that a connection reads ahead. The head of an answer fits.
const READ_AHEAD: usize = 64 << 10;

/// The gateway hands it to the member as `hasleader` (grpc-gateway, `MetadataHeaderPrefix`; etcd,
/// `MetadataRequireLeaderKey`).
const HAS_LEADER: &str = "grpc-metadata-hasleader";

/// An open connection to a member, TLS included.
pub trait MemberStream: Read + Write + Send + Unpin {}

impl<S: Read + Write + Send + Unpin> MemberStream for S {}

/// A connection that is being opened. The caller drops it when it takes too long.
pub type Connecting<'a> =
    Pin<Box<dyn Future<Output = io::Result<Box<dyn MemberStream>>> + Send + 'a>>;

/// Opens connections to members.
pub trait Connect: Send + Sync + fmt::Debug {
    /// Opens a connection to the member with this index in
    /// [`EtcdSettings::members`](crate::EtcdSettings::members) and with this address.
    fn connect<'a>(&'a self, member: usize, address: &'a str) -> Connecting<'a>;
}

type Driver = hyper::client::conn::http1::Connection<Box<dyn MemberStream>, Full<Bytes>>;

/// A kept connection.
pub(crate) struct GatewayConnection {
    sender: SendRequest<Full<Bytes>>,
    /// `None`: the connection has ended.
    driver: Option<Box<Driver>>,
    /// The request of the present exchange may have left.
    is_sent: bool,
}

impl fmt::Debug for GatewayConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayConnection").field("is_sent", &self.is_sent).finish_non_exhaustive()
    }
}

/// A request of the gateway: all of them are `POST`.
pub(crate) struct Post<'a> {
    pub(crate) path: &'static str,
    pub(crate) host: &'a str,
    pub(crate) token: Option<HeaderValue>,
    /// The member ends its answer with an error when it knows no leader for some time (4 s by
    /// default). Without this a watch at such a member is silent.
    pub(crate) needs_leader: bool,
    pub(crate) body: Bytes,
}

impl Post<'_> {
    fn request(self) -> Result<Request<Full<Bytes>>, Unanswered> {
        let mut request = Request::post(self.path)
            .header(HOST, self.host)
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = self.token {
            request = request.header(AUTHORIZATION, token);
        }
        if self.needs_leader {
            request = request.header(HAS_LEADER, "true");
        }
        let bad =
            |error: hyper::http::Error| Unanswered::unsent(Reason::Unreachable(error.to_string()));
        request.body(Full::new(self.body)).map_err(bad)
    }
}

impl GatewayConnection {
    /// Begins HTTP over an open connection.
    pub(crate) async fn over(stream: Box<dyn MemberStream>) -> Result<Self, Unanswered> {
        let begun = Builder::new().max_buf_size(READ_AHEAD).handshake(stream).await;
        let (sender, driver) =
            begun.map_err(|error| Unanswered::unsent(Reason::Unreachable(error.to_string())))?;
        Ok(Self { sender, driver: Some(Box::new(driver)), is_sent: false })
    }

    /// Whether the request of the last exchange may have left.
    pub(crate) const fn is_sent(&self) -> bool {
        self.is_sent
    }

    /// Sends a request and reads the whole answer: the HTTP status and at most `most` bytes.
    pub(crate) async fn exchange(
        &mut self,
        post: Post<'_>,
        most: usize,
    ) -> Result<(u16, Bytes), Unanswered> {
        let Self { sender, driver, is_sent } = self;
        *is_sent = false;
        let request = post.request()?;
        let exchange = async {
            let (status, body) = send(sender, is_sent, request).await?;
            let body = Limited::new(body, most).collect().await;
            let body = body.map_err(|why| match why.downcast::<LengthLimitError>() {
                Ok(_) => Unanswered::sent(Reason::TooLarge(most)),
                Err(why) => Unanswered::sent(Reason::Broken(why.to_string())),
            })?;
            Ok((status, body.to_bytes()))
        };
        tokio::select! { biased; never = turn(driver) => match never {}, answer = exchange => answer }
    }

    /// Sends a request and returns the HTTP status with the body, which [`Self::piece`] reads.
    pub(crate) async fn open(&mut self, post: Post<'_>) -> Result<(u16, Incoming), Unanswered> {
        let Self { sender, driver, is_sent } = self;
        *is_sent = false;
        let sending = send(sender, is_sent, post.request()?);
        tokio::select! { biased; never = turn(driver) => match never {}, answer = sending => answer }
    }

    /// The next bytes of a body. `None`: it is complete. Cancel-safe.
    pub(crate) async fn piece(&mut self, body: &mut Incoming) -> Result<Option<Bytes>, Reason> {
        let piece = async {
            loop {
                let Some(frame) = body.frame().await else { return Ok(None) };
                let frame = frame.map_err(|error| Reason::Broken(error.to_string()))?;
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
        };
        let driver = &mut self.driver;
        tokio::select! { biased; never = turn(driver) => match never {}, piece = piece => piece }
    }
}

/// Sends a request as soon as the connection accepts it.
async fn send(
    sender: &mut SendRequest<Full<Bytes>>,
    is_sent: &mut bool,
    request: Request<Full<Bytes>>,
) -> Result<(u16, Incoming), Unanswered> {
    let ended = |error: hyper::Error| Reason::Broken(error.to_string());
    sender.ready().await.map_err(|error| Unanswered::unsent(ended(error)))?;
    *is_sent = true;
    let answer = sender.try_send_request(request).await.map_err(|mut error| {
        // A request that comes back was not written.
        let is_sent = error.take_message().is_none();
        Unanswered { is_sent, reason: ended(error.into_error()) }
    })?;
    Ok((answer.status().as_u16(), answer.into_body()))
}

/// Transfers the bytes of a connection. After the end of the connection the exchange has all that
/// it will ever get, and ends by itself.
async fn turn(driver: &mut Option<Box<Driver>>) -> Infallible {
    if let Some(connection) = driver {
        let _ = connection.await;
        *driver = None;
    }
    pending().await
}

//! The server's side of the opening handshake.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use httparse::{EMPTY_HEADER, Header, Request, Status};
use net::{forwarded, pool};
use tokio::time::timeout;
use transport::{Ask, CarrierError, Lane};

use super::farewell::send_away;
use super::head::{self, FIELDS, HEAD, NoHead, has, only, values};
use super::key::{SUBPROTOCOL, accept_key};
use super::offer::{self, OfferHead};
use crate::{Offer as Offered, Pages, Proxies, Wish};

/// The page for a request to another path, which looks like that of any small web server.
const NOT_FOUND: &str = "<html><head><title>404 Not Found</title></head>\
    <body><h1>404 Not Found</h1></body></html>\n";

/// The largest number of characters of a refused path in a log line.
const PLACE: usize = 100;

/// The time limit for answering a refused client.
const FAREWELL: Duration = Duration::from_secs(2);

/// The same for a page of 200 KiB, which a slow visitor is to have as well.
const FAREWELL_OF_PAGE: Duration = Duration::from_secs(20);

/// The reason why a request is not upgraded, as a status of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Malformed,
    /// The request is for another path, or is no WebSocket request.
    NotFound,
    /// The version of the WebSocket protocol is not 13 (section 4.4).
    Version,
    TooLarge,
}

impl Refused {
    const fn status(self) -> &'static str {
        match self {
            Self::Malformed => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::Version => "426 Upgrade Required",
            Self::TooLarge => "431 Request Header Fields Too Large",
        }
    }

    /// The whole answer. HEAD gets the answer of GET without the body (RFC 9110 section 9.3.2).
    fn answer(self, is_head: bool) -> String {
        let (status, body) = (self.status(), if self == Self::NotFound { NOT_FOUND } else { "" });
        let (version, connection) = if self == Self::Version {
            ("Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n", "Upgrade, close")
        } else {
            ("", "close")
        };
        let length = body.len();
        let body = if is_head { "" } else { body };
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\
             {version}Connection: {connection}\r\n\r\n{body}"
        )
    }
}

/// What a listener has for a request.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The path of carriers; `None`: any.
    pub(crate) path: Option<&'a str>,
    /// The path of offers of WebRTC; `None`: there is none.
    pub(crate) offers: Option<&'a str>,
    pub(crate) proxies: &'a Proxies,
    pub(crate) pages: Option<&'a dyn Pages>,
}

/// A valid request.
struct Asked {
    key: String,
    has_subprotocol: bool,
}

/// A request that is taken.
pub(crate) enum Accepted {
    /// A WebSocket: the bytes that were read after the request, and the address of the client, when
    /// a proxy tells it.
    WebSocket(BytesMut, Option<SocketAddr>),
    /// A request about a connection of WebRTC, which waits for its answer, and the client.
    Offer(OfferHead, Ask, SocketAddr),
}

/// Answers the request that arrives over `lane`, which is for a WebSocket at `path` or about a
/// connection of WebRTC at `offers`. Proxies that `proxies` names tell the address of the client.
pub(crate) async fn accept(
    lane: &mut dyn Lane,
    remote: SocketAddr,
    place: Place<'_>,
) -> Result<Accepted, CarrierError> {
    let mut buf = pool::take(HEAD);
    let (path, is_proxy) = (place.path, place.proxies.include(remote.ip()));
    let look = |bytes: &[u8]| look(bytes, is_proxy, place);
    let Looked { asked, page, offer, place, is_head, client } =
        match head::read(lane, &mut buf, look).await {
            Ok(looked) => looked,
            Err(NoHead::Io(error)) => return Err(error.into()),
            Err(NoHead::TooLarge) => Looked::nothing(Refused::TooLarge),
            Err(NoHead::Malformed) => Looked::nothing(Refused::Malformed),
        };
    if let Some(page) = page {
        // As below.
        let _ = timeout(FAREWELL_OF_PAGE, send_away(lane, page)).await;
        return Err(CarrierError::Served);
    }
    match offer {
        None => {}
        Some(Ok(offer)) => match offer.body(lane, &mut buf).await? {
            Some(ask) => {
                offer::done(buf);
                return Ok(Accepted::Offer(offer, ask, offer::source(remote, client)));
            }
            None => {
                let text = format!("a request about WebRTC at {place:?} has its answer");
                return Err(CarrierError::Stranger { text, client });
            }
        },
        Some(Err(status)) => {
            // When a deadline of the caller drops this future early, the connection simply ends.
            let _ = timeout(FAREWELL, offer::reply(lane, status, &[], "")).await;
            let text = format!("a request about WebRTC at {place:?}: answered with {status}");
            return Err(CarrierError::Stranger { text, client });
        }
    }
    match asked {
        Ok(asked) => {
            let subprotocol = if asked.has_subprotocol {
                format!("Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n")
            } else {
                String::new()
            };
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: {}\r\n{subprotocol}\r\n",
                accept_key(asked.key.as_bytes())
            );
            head::write(lane, answer.into()).await?;
            Ok(Accepted::WebSocket(buf, client))
        }
        Err(refused) => {
            // When a deadline of the caller drops this future early, the connection simply ends.
            let _ = timeout(FAREWELL, send_away(lane, refused.answer(is_head).into())).await;
            let text = match refused {
                Refused::NotFound => format!(
                    "HTTP, but not our WebSocket at {place:?}: answered with 404 (this \
                     listener is for {})",
                    path.unwrap_or("any path")
                ),
                Refused::Malformed => {
                    "a broken request of HTTP, or none: answered with 400".to_owned()
                }
                Refused::Version => "a WebSocket of another version: answered with 426".to_owned(),
                Refused::TooLarge => {
                    format!(
                        "a head of more than {HEAD} bytes or {FIELDS} fields: answered with 431"
                    )
                }
            };
            Err(CarrierError::Stranger { text, client })
        }
    }
}

/// A complete request.
pub(super) struct Looked {
    asked: Result<Asked, Refused>,
    /// The request is for a page, which is this response.
    page: Option<Bytes>,
    /// `None`: the request is for another path.
    offer: Option<Result<OfferHead, &'static str>>,
    /// The path of the request.
    place: String,
    is_head: bool,
    /// The client's address as a proxy tells it.
    client: Option<SocketAddr>,
}

impl Looked {
    const fn nothing(refused: Refused) -> Self {
        Self {
            asked: Err(refused),
            page: None,
            offer: None,
            place: String::new(),
            is_head: false,
            client: None,
        }
    }
}

/// Looks for a complete head at the front of `bytes`, and decodes it.
pub(super) fn look(
    bytes: &[u8],
    is_proxy: bool,
    place: Place<'_>,
) -> httparse::Result<(Looked, usize)> {
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut request = Request::new(&mut fields);
    let Status::Complete(size) = request.parse(bytes)? else { return Ok(Status::Partial) };
    let (mut path, mut page, is_head) = (place.path, None, request.method == Some("HEAD"));
    match offered(&request, place.pages) {
        Some(Offered::Link) => path = None,
        Some(Offered::Page(response, head)) => {
            page = Some(if is_head { response.slice(..head) } else { response });
        }
        // No path is empty.
        Some(Offered::Foreign) => path = Some(""),
        None => {}
    }
    let looked = Looked {
        asked: examine(&request, path),
        page,
        offer: OfferHead::of(&request, place.offers),
        place: request.path.unwrap_or_default().chars().take(PLACE).collect(),
        is_head,
        client: if is_proxy { client(request.headers, place.proxies) } else { None },
    };
    Ok(Status::Complete((looked, size)))
}

/// What the pages have for a request.
fn offered(request: &Request<'_, '_>, pages: Option<&dyn Pages>) -> Option<Offered> {
    let (fields, pages) = (&*request.headers, pages?);
    let text = |name| only(fields, name).and_then(|value| str::from_utf8(value).ok());
    if !matches!(request.method, Some("GET" | "HEAD")) {
        return None;
    }
    let path = request.path?.split('?').next()?;
    pages.offer(Wish { host: text("host")?, path, origin: text("origin") })
}

/// The client that a proxy names.
fn client(fields: &[Header<'_>], proxies: &Proxies) -> Option<SocketAddr> {
    match forwarded::client(|name| values(fields, name), |ip| proxies.include(ip)) {
        forwarded::ForwardedClient::Client(client) => Some(client),
        forwarded::ForwardedClient::Ours(_)
        | forwarded::ForwardedClient::Hidden
        | forwarded::ForwardedClient::Disputed => None,
    }
}

/// Checks the request against section 4.2.1.
fn examine(request: &Request<'_, '_>, path: Option<&str>) -> Result<Asked, Refused> {
    let fields = &*request.headers;
    let target = request.path.unwrap_or_default();
    let is_ours = path.is_none_or(|path| path == target.split('?').next().unwrap_or_default());
    let upgrades = has(fields, "upgrade", "websocket") && has(fields, "connection", "upgrade");
    if !is_ours || !upgrades || request.method != Some("GET") {
        return Err(Refused::NotFound);
    }
    if request.version != Some(1) || only(fields, "host").is_none() {
        return Err(Refused::Malformed);
    }
    if only(fields, "sec-websocket-version") != Some(b"13") {
        return Err(Refused::Version);
    }
    let key = only(fields, "sec-websocket-key").and_then(|key| str::from_utf8(key).ok());
    let is_nonce = |key: &&str| STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16);
    let key = key.filter(is_nonce).ok_or(Refused::Malformed)?;
    let offers = values(fields, "sec-websocket-protocol").next().is_some();
    let has_subprotocol = has(fields, "sec-websocket-protocol", SUBPROTOCOL);
    if offers && !has_subprotocol {
        // The client wants another protocol than ours on this path.
        return Err(Refused::NotFound);
    }
    Ok(Asked { key: key.to_owned(), has_subprotocol })
}

//! The HTTP client of the ACME library. Each request has its own connection: an order has about ten
//! requests, and orders are months apart. The library's own client would bring a pool, HTTP/2 and a
//! second source of trusted authorities.

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use net::resolve::Lookups;
use tls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The timeout of a request, from the lookup of the host to the end of the response.
const REQUEST_MAX: Duration = Duration::from_secs(30);

/// The timeout for one address of the host, so that a second address can be tried.
const CONNECT_MAX: Duration = Duration::from_secs(8);

/// The largest number of addresses of the host that are tried.
const ADDRESSES_MAX: usize = 4;

/// The largest response, in bytes. A chain of certificates has less than 20 KB.
const ANSWER_MAX: usize = 1 << 20;

/// The key of the configuration that holds the authority of the directory's server.
const CA: &str = "tls_routes.acme.ca";

/// The client.
#[derive(Debug)]
pub(super) struct Http {
    pub(super) tls: Arc<ClientConfig>,
    pub(super) asked: Arc<Asked>,
}

/// The pause that the last refusal requested (`Retry-After`), in seconds. The library does not
/// expose the header of a refusal.
#[derive(Debug, Default)]
pub(super) struct Asked(AtomicU64);

impl Asked {
    /// Takes the pause.
    pub(super) fn take(&self) -> Option<Duration> {
        let seconds = self.0.swap(0, Ordering::Relaxed);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    fn note(&self, head: &HeaderMap) {
        let pause = head.get(RETRY_AFTER).and_then(pause_in);
        self.0.store(pause.unwrap_or(0), Ordering::Relaxed);
    }
}

/// The seconds of a `Retry-After`, which is a number or a date (RFC 9110 section 10.2.3).
pub(super) fn pause_in(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?.trim();
    text.parse().ok().or_else(|| {
        let until = httpdate::parse_http_date(text).ok()?;
        Some(until.duration_since(SystemTime::now()).ok()?.as_secs())
    })
}

impl HttpClient for Http {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (tls, asked) = (Arc::clone(&self.tls), Arc::clone(&self.asked));
        Box::pin(async move {
            let host = request.uri().host().unwrap_or("no host").to_owned();
            let answer = match timeout(REQUEST_MAX, exchange(tls, request)).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(problem)) => return Err(other(&host, &problem)),
                Err(_) => {
                    let seconds = REQUEST_MAX.as_secs();
                    return Err(other(&host, &format!("it did not answer within {seconds} s")));
                }
            };
            if answer.status().is_client_error() || answer.status().is_server_error() {
                asked.note(answer.headers());
            }
            let (parts, body) = answer.into_parts();
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

/// Sends a GET without an account.
pub(super) async fn get(tls: Arc<ClientConfig>, url: &str) -> Result<Response<Bytes>, String> {
    let request = Request::get(url).header(USER_AGENT, "tunnel");
    let request = request.body(BodyWrapper::default()).map_err(|error| error.to_string())?;
    match timeout(REQUEST_MAX, exchange(tls, request)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer within {} s", REQUEST_MAX.as_secs())),
    }
}

/// A failed request in words.
#[derive(Debug)]
struct Trouble(String);

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Trouble {}

fn other(host: &str, problem: &str) -> Error {
    Error::Other(Box::new(Trouble(format!("{host} cannot be asked: {problem}"))))
}

/// Sends a request over a new connection and reads the whole response.
async fn exchange(
    tls: Arc<ClientConfig>,
    mut request: Request<BodyWrapper<Bytes>>,
) -> Result<Response<Bytes>, String> {
    let uri = request.uri().clone();
    if uri.scheme_str() != Some("https") {
        return Err("the URL does not begin with https://".into());
    }
    let (Some(host), Some(authority)) = (uri.host(), uri.authority()) else {
        return Err("the URL has no host".into());
    };
    let authority = HeaderValue::from_str(authority.as_str()).map_err(|error| error.to_string())?;
    request.headers_mut().insert(HOST, authority);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>().map_err(|error| error.to_string())?;

    let name = tls::server_name(host).map_err(|error| error.to_string())?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let stream = connect(bare, uri.port_u16().unwrap_or(443)).await?;
    let stream = TlsConnector::from(tls)
        .connect(name, stream)
        .await
        .map_err(|error| handshake_problem(&error))?;
    send(stream, request).await
}

/// Connects to the first address that accepts.
async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let addresses = Lookups::of_servers()
        .resolve(host)
        .await
        .map_err(|error| format!("its name cannot be looked up: {error}"))?;
    let mut problem = "its name has no address".to_owned();
    for ip in addresses.into_iter().take(ADDRESSES_MAX) {
        let address = SocketAddr::new(ip, port);
        match timeout(CONNECT_MAX, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => problem = format!("connecting to {address}: {error}"),
            Err(_) => problem = format!("connecting to {address}: no answer"),
        }
    }
    Err(problem)
}

fn handshake_problem(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    tls.map_or_else(|| error.to_string(), |error| tls::of_authority(error, CA))
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<BodyWrapper<Bytes>>,
) -> Result<Response<Bytes>, String> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| in_words(&error))?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(|error| in_words(&error))?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await;
        let body = body.map_err(|error| format!("reading its answer: {error}"))?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    };
    // The connection is driven here and not by a task, so it ends with the request.
    let (mut answer, mut connection) = (pin!(answer), pin!(connection));
    tokio::select! {
        answer = &mut answer => answer,
        // The response contains everything that was read before the end, and its own error.
        _ = &mut connection => answer.await,
    }
}

/// An error of hyper with its cause, which it does not show itself.
fn in_words(error: &hyper::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_a_number_or_a_date() {
        let pause = |text: &str| pause_in(&HeaderValue::from_str(text).unwrap());
        assert_eq!(pause(" 120 "), Some(120));
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3600));
        assert!(pause(&date).is_some_and(|seconds| (3500..=3600).contains(&seconds)));
        assert_eq!(pause("Thu, 01 Jan 1970 00:00:00 GMT"), None, "the past is no pause");
        assert_eq!(pause("soon"), None);
    }

    #[tokio::test]
    async fn a_directory_without_tls_is_refused() {
        let tls = tls::client_config(&tls::Trust::Pins(Vec::new()), None, &[]).unwrap();
        let http = Http { tls, asked: Arc::default() };
        let request = Request::get("http://127.0.0.1:1/").body(BodyWrapper::default()).unwrap();
        let Err(error) = http.request(request).await else { panic!("sent") };
        let error = error.to_string();
        assert!(
            error.contains("127.0.0.1 cannot be asked") && error.contains("https://"),
            "{error}"
        );
    }
}

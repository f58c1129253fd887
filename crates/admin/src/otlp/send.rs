//! Sends one request to the collector. Each request has its own connection, because pushes are too
//! rare to keep a connection open.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};
use config::{Collector, Field};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use net::resolve::Lookups;
use tokio::net::TcpStream;

/// Longest response that is read, in bytes. A response is one line of JSON.
const ANSWER_MAX: usize = 64 << 10;

/// The largest number of characters of the collector's error message that are logged.
const WORDS_MAX: usize = 200;

/// The header fields of every request.
///
/// # Errors
/// A name or a value that HTTP does not permit. The error contains the name of the field but never
/// its value.
pub fn fields(given: &[Field]) -> Result<HeaderMap, String> {
    let mut fields = HeaderMap::new();
    for Field { name, value } in given {
        let bad = |what: &str| format!("{name:?}: its {what} cannot stand in a head of HTTP");
        let known: HeaderName = name.parse().map_err(|_| bad("name"))?;
        let mut value: HeaderValue = value.reveal().parse().map_err(|_| bad("value"))?;
        value.set_sensitive(true);
        fields.insert(known, value);
    }
    Ok(fields)
}

/// Sends a message and checks the response. A partial success is an error as well.
pub(super) async fn post(to: &Collector, fields: &HeaderMap, body: Vec<u8>) -> anyhow::Result<()> {
    let host = to.host.to_string();
    // The brackets of an IPv6 address belong to the URL, not to the address.
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let found = Lookups::of_servers().resolve(name).await;
    let found = found.with_context(|| format!("looking {name} up"))?;
    let addresses: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, to.port)).collect();
    let stream = TcpStream::connect(&addresses[..]).await.context("connecting")?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The connection ends with the response. Its errors also appear in `send_request`.
    tokio::spawn(connection);
    let mut request = Request::post(format!("{}/v1/metrics", to.path)).body(Body::from(body))?;
    let head = request.headers_mut();
    head.clone_from(fields);
    head.insert(HOST, HeaderValue::try_from(format!("{host}:{}", to.port))?);
    head.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let agent = concat!("tunnel/", env!("CARGO_PKG_VERSION"));
    head.insert(USER_AGENT, HeaderValue::from_static(agent));
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    if !status.is_success() {
        bail!("the collector answers {status}");
    }
    // A response that is too long or not JSON counts as an empty response, which means success.
    let answer = to_bytes(Body::new(answer.into_body()), ANSWER_MAX).await.unwrap_or_default();
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
    match rejected(&answer) {
        Some(why) => bail!("the collector left points out: {why}"),
        None => Ok(()),
    }
}

/// The reason for a partial success, if the collector rejected data points. The count is a number
/// or a text, because OTLP encodes 64-bit integers as text in JSON.
fn rejected(answer: &serde_json::Value) -> Option<String> {
    let partial = &answer["partialSuccess"];
    let count = &partial["rejectedDataPoints"];
    let count = count.as_u64().or_else(|| count.as_str()?.parse().ok())?;
    let words = partial["errorMessage"].as_str().unwrap_or("no reason given");
    let words: String = words.chars().take(WORDS_MAX).collect();
    (count > 0).then(|| format!("{count}, {words:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_partial_success_is_told_and_a_whole_one_is_not() {
        for whole in [json!({}), json!(null), json!({ "partialSuccess": {} })] {
            assert_eq!(rejected(&whole), None);
        }
        let partial =
            json!({ "partialSuccess": { "rejectedDataPoints": "3", "errorMessage": "a\nb" } });
        assert_eq!(rejected(&partial).unwrap(), "3, \"a\\nb\"");
    }

    #[test]
    fn a_field_that_cannot_be_sent_is_named_without_its_value() {
        let field = |name: &str, value: &str| Field {
            name: name.to_owned(),
            value: config::Secret::new(value),
        };
        let error = fields(&[field("X-Key", "secret\n")]).unwrap_err();
        assert!(error.contains("X-Key") && !error.contains("secret"), "{error}");
        assert!(fields(&[field("X Key", "v")]).unwrap_err().contains("\"X Key\": its name"));
        let good = fields(&[field("Authorization", "Basic c2VjcmV0")]).unwrap();
        assert!(!format!("{good:?}").contains("c2VjcmV0"));
    }
}

//! One request to the collector, on a connection of its own: a push is too rare to keep one.

use anyhow::{Context as _, bail};
use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};
use config::{Collector, Field};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Bytes of an answer: a line of JSON.
const ANSWER_MAX: usize = 64 << 10;

/// Characters that are shown of what a collector says.
const WORDS_MAX: usize = 200;

/// The fields of every request. The error names the field, never its value.
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

/// Sends a message and looks at the answer.
pub(super) async fn post(to: &Collector, fields: &HeaderMap, body: Vec<u8>) -> anyhow::Result<()> {
    let host = to.host.to_string();
    // Brackets are of URLs.
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((name, to.port)).await.context("connecting")?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the answer; what goes wrong with it is told there.
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
    // What is longer, or no JSON, is nothing that a collector says.
    let answer = to_bytes(Body::new(answer.into_body()), ANSWER_MAX).await.unwrap_or_default();
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
    match rejected(&answer) {
        Some(why) => bail!("the collector left points out: {why}"),
        None => Ok(()),
    }
}

/// What a partial success says: its figure is a number or, as JSON has 64 bits, a text.
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

//! Reads the JSON body of a request. Every mistake is answered in words of the API, with an example
//! of a right body: the messages of the JSON library name types of this program.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use super::routes::{BODY_MAX, problem};

/// Why a body is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The bytes are not JSON.
    #[error("{0}")]
    Syntax(String),
    /// The JSON is not what this request needs.
    #[error("{0}")]
    Data(String),
}

impl BodyError {
    pub(super) fn answer(&self) -> Response {
        match self {
            Self::Syntax(why) => problem(StatusCode::BAD_REQUEST, why),
            Self::Data(why) => problem(StatusCode::UNPROCESSABLE_ENTITY, why),
        }
    }
}

/// The form of a body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// Begins a sentence: `the body must be …`.
    pub(super) is: &'static str,
    pub(super) example: &'static str,
    /// The keys of an object, first the required key.
    pub(super) keys: &'static [&'static str],
}

impl Form {
    /// The sentence that ends each message.
    pub(super) fn must(&self) -> String {
        format!("the body must be {} such as {}", self.is, self.example)
    }

    /// Whether the bytes are JSON.
    pub(super) fn syntax(&self, body: &[u8]) -> Result<(), BodyError> {
        let why = match serde_json::from_slice::<IgnoredAny>(body) {
            Ok(_) => return Ok(()),
            Err(_) if body.trim_ascii().is_empty() => "the body is empty".to_owned(),
            Err(e) if e.is_eof() => "the body ends amid a JSON value".to_owned(),
            Err(e) => {
                format!("the body is not JSON from line {}, column {} on", e.line(), e.column())
            }
        };
        Err(BodyError::Syntax(format!("{why}; {}", self.must())))
    }

    /// Reads an object.
    pub(super) fn object<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, BodyError> {
        self.syntax(body)?;
        serde_json::from_slice(body).map_err(|error| {
            let value = serde_json::from_slice::<Value>(body).ok();
            let why = match value.as_ref().map(Value::as_object) {
                Some(None) => None,
                Some(Some(map)) => {
                    let unknown = map.keys().find(|key| !self.keys.contains(&key.as_str()));
                    let missing = self.keys.first().filter(|key| !map.contains_key(**key));
                    unknown
                        .map(|key| format!("unknown key `{}`", brief(key)))
                        .or_else(|| missing.map(|key| format!("`{key}` is missing")))
                }
                None => None,
            };
            let elsewhere =
                || format!("a wrong value at line {}, column {}", error.line(), error.column());
            let is_object = value.is_some_and(|value| value.is_object());
            match why.or_else(|| is_object.then(elsewhere)) {
                Some(why) => BodyError::Data(format!("{why}; {}", self.must())),
                None => BodyError::Data(self.must()),
            }
        })
    }
}

/// The beginning of a text of the request.
pub(super) fn brief(text: &str) -> String {
    text.chars().take(32).collect()
}

/// The bytes of a body whose header field says that they are JSON.
pub(super) async fn bytes(request: Request, form: &Form) -> Result<Bytes, Response> {
    if !is_json(request.headers()) {
        let why = format!(
            "the header field `Content-Type: application/json` is missing; {}",
            form.must()
        );
        return Err(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, &why));
    }
    Bytes::from_request(request, &()).await.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => problem(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("the body is longer than {} KiB; send the change in parts", BODY_MAX >> 10),
        ),
        status => problem(status, "the body of the request did not arrive whole"),
    })
}

/// The object of a body.
pub(super) async fn object<T: DeserializeOwned>(
    request: Request,
    form: &Form,
) -> Result<T, Response> {
    let body = bytes(request, form).await?;
    form.object(&body).map_err(|why| why.answer())
}

/// Whether the media type is `application/json`, or has the suffix `+json` (RFC 6839).
fn is_json(headers: &HeaderMap) -> bool {
    let field = headers.get(CONTENT_TYPE).and_then(|field| field.to_str().ok()).unwrap_or_default();
    let media = field.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media.strip_prefix("application/").is_some_and(|kind| kind == "json" || kind.ends_with("+json"))
}

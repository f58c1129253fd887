//! Reads the JSON body of a request, and makes the responses to malformed requests.

use std::error::Error;

use axum::body::{Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use http_body_util::LengthLimitError;
use ops::command::{ApiRoute, Form, Misread};

use super::answer::problem;

/// Largest body of a request, in bytes.
pub(super) const BODY_MAX: usize = 64 << 10;

/// Largest body with a configuration, in bytes: a file of the largest size, with escapes.
const CONFIG_MAX: usize = 2 << 20;

/// The largest body of a command, in bytes.
pub(super) fn most(route: &ApiRoute) -> usize {
    if route.path.starts_with("/config") { CONFIG_MAX } else { BODY_MAX }
}

/// The response to a malformed request.
pub(super) fn refusal(why: &Misread) -> Response {
    let status = match why {
        Misread::Unknown(_) => StatusCode::NOT_FOUND,
        Misread::Query(_) | Misread::Syntax(_) => StatusCode::BAD_REQUEST,
        Misread::Data(_) => StatusCode::UNPROCESSABLE_ENTITY,
    };
    problem(status, &why.to_string())
}

/// The bytes of a body that its header field declares to be JSON.
pub(super) async fn bytes(request: Request, form: &Form, most: usize) -> Result<Bytes, Response> {
    if !is_json(request.headers()) {
        let why = format!(
            "the header field `Content-Type: application/json` is missing; {}",
            form.must()
        );
        return Err(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, &why));
    }
    to_bytes(request.into_body(), most).await.map_err(|error| {
        // The limit's error is the source of the body's error.
        if error.source().is_some_and(<dyn Error>::is::<LengthLimitError>) {
            let why =
                format!("the body is longer than {} KiB; send the change in parts", most >> 10);
            problem(StatusCode::PAYLOAD_TOO_LARGE, &why)
        } else {
            problem(StatusCode::BAD_REQUEST, "the body of the request did not arrive whole")
        }
    })
}

/// Whether the media type is `application/json`, or has the suffix `+json` (RFC 6839).
fn is_json(headers: &HeaderMap) -> bool {
    let field = headers.get(CONTENT_TYPE).and_then(|field| field.to_str().ok()).unwrap_or_default();
    let media = field.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media.strip_prefix("application/").is_some_and(|kind| kind == "json" || kind.ends_with("+json"))
}

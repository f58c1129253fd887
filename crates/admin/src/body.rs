//! Reads the JSON body of a request, and answers what is wrong with a request.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use ops::command::{Form, Misread};

use super::answer::problem;

/// Largest body of a request, in bytes.
pub(super) const BODY_MAX: usize = 64 << 10;

/// The answer to a request that is wrong.
pub(super) fn refusal(why: &Misread) -> Response {
    let status = match why {
        Misread::Unknown(_) => StatusCode::NOT_FOUND,
        Misread::Query(_) | Misread::Syntax(_) => StatusCode::BAD_REQUEST,
        Misread::Data(_) => StatusCode::UNPROCESSABLE_ENTITY,
    };
    problem(status, &why.to_string())
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

/// Whether the media type is `application/json`, or has the suffix `+json` (RFC 6839).
fn is_json(headers: &HeaderMap) -> bool {
    let field = headers.get(CONTENT_TYPE).and_then(|field| field.to_str().ok()).unwrap_or_default();
    let media = field.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media.strip_prefix("application/").is_some_and(|kind| kind == "json" || kind.ends_with("+json"))
}

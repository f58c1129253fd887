//! The responses of the API: the outcome of a command as status code and JSON.

use axum::Json;
use axum::http::header::{CONTENT_TYPE, ETAG};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use config::edit::EditError;
use ops::WrongConfig;
use ops::command::{ApiResponse, NoAnswer, NoFilter, TooMany};
use ops::revision::Stale;
use serde_json::json;

/// An error response. All error responses of this API have this form.
pub(super) fn problem(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({ "error": why }))).into_response()
}

pub(super) fn no_answer() -> Response {
    problem(StatusCode::SERVICE_UNAVAILABLE, &NoAnswer.to_string())
}

/// The response to a failed command.
pub(super) fn failed(why: &anyhow::Error) -> Response {
    if let Some(EditError::TestFailed(why)) = why.downcast_ref() {
        return problem(StatusCode::PRECONDITION_FAILED, why);
    }
    if let Some(why) = why.downcast_ref::<Stale>() {
        return problem(StatusCode::PRECONDITION_FAILED, &why.to_string());
    }
    if why.is::<NoAnswer>() {
        return no_answer();
    }
    if let Some(why) = why.downcast_ref::<TooMany>() {
        return problem(StatusCode::SERVICE_UNAVAILABLE, &why.to_string());
    }
    if let Some(NoFilter(why)) = why.downcast_ref() {
        return problem(StatusCode::UNPROCESSABLE_ENTITY, why);
    }
    match why.downcast_ref::<WrongConfig>() {
        Some(WrongConfig(problems)) => {
            // The context of the error, if any, precedes the list of problems.
            let about = why.chain().nth(1).map(|_| why.to_string());
            let about = about.unwrap_or_else(|| "not accepted".to_owned());
            let body = json!({ "error": about, "problems": problems });
            (StatusCode::UNPROCESSABLE_ENTITY, Json(body)).into_response()
        }
        None => problem(StatusCode::CONFLICT, &format!("{why:#}")),
    }
}

/// The response to a command.
pub(super) fn outcome(done: anyhow::Result<ApiResponse>) -> Response {
    let ApiResponse { status, etag, body } = match done {
        Ok(reply) => reply,
        Err(why) => return failed(&why),
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = if body.is_empty() {
        status.into_response()
    } else {
        (status, [(CONTENT_TYPE, "application/json")], body).into_response()
    };
    if let Some(tag) = etag.and_then(|tag| HeaderValue::try_from(tag).ok()) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

//! The responses of the API: the outcome of a command as status code and JSON.

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use config::edit::EditError;
use ops::WrongConfig;
use ops::command::{Answer, NoAnswer, NoFilter, TooMany};
use ops::enrol::{GOOD_FOR, Order};
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

/// The response to a successful command. `order` is the order of an enrolment.
pub(super) fn succeeded(answer: Answer, order: Option<&Order>) -> Response {
    match answer {
        Answer::Status(status) => Json(status).into_response(),
        Answer::Reloaded(reloaded) => Json(reloaded).into_response(),
        Answer::Restarted(restarted) => Json(restarted).into_response(),
        Answer::Configuration(shown) => {
            let tag = [(ETAG, shown.etag.clone())];
            (tag, Json(shown)).into_response()
        }
        Answer::Foreseen(checked) => Json(checked).into_response(),
        Answer::Reconnected(reconnected) => Json(reconnected).into_response(),
        Answer::Allowed(allowed) => Json(allowed).into_response(),
        Answer::Requests(requests) => Json(requests).into_response(),
        Answer::Request(Some(request)) => Json(request).into_response(),
        Answer::Request(None) => problem(
            StatusCode::NOT_FOUND,
            "no such request (any more): only the last ones are kept",
        ),
        Answer::Invitation(invitation) => (StatusCode::CREATED, Json(invitation)).into_response(),
        Answer::Visitors(visitors) => Json(json!({ "visitors": visitors })).into_response(),
        Answer::Uninvited(uninvited) if uninvited.services.is_empty() => {
            problem(StatusCode::NOT_FOUND, "no visitor of this name came by a code")
        }
        Answer::Uninvited(uninvited) => Json(uninvited).into_response(),
        Answer::Limited(limits) => Json(limits).into_response(),
        Answer::Held(Some(held)) => Json(held).into_response(),
        Answer::Held(None) => StatusCode::NO_CONTENT.into_response(),
        Answer::Clients(clients) => Json(clients).into_response(),
        Answer::Client(Some(client)) => Json(client).into_response(),
        Answer::Client(None) => {
            problem(StatusCode::NOT_FOUND, "the server knows no client of this name")
        }
        Answer::Streams(streams) => Json(streams).into_response(),
        Answer::Log { filter } => Json(json!({ "filter": filter })).into_response(),
        Answer::Pong(ping) => Json(ping).into_response(),
        Answer::Nat(report) => Json(report).into_response(),
        Answer::Tested(tested) => Json(tested).into_response(),
        Answer::Speed(speed) => Json(speed).into_response(),
        Answer::Stopping { pid, now: _ } => {
            (StatusCode::ACCEPTED, Json(json!({ "pid": pid }))).into_response()
        }
        // The response contains all data that `tunnel enroll` prints.
        Answer::Opened(opened) => {
            let code = opened.code(&order.cloned().unwrap_or_default(), &[]);
            let command = code.command();
            let mut body = json!({
                "code": code.text(),
                "servers": code.urls,
                "valid_seconds": GOOD_FOR.as_secs(),
                "command": command,
            });
            if let Some(qr) = ops::qr::qr(&command) {
                body["qr"] = json!(qr);
            }
            (StatusCode::CREATED, Json(body)).into_response()
        }
        Answer::Kicked(false) => {
            problem(StatusCode::NOT_FOUND, "no client of this name is connected")
        }
        Answer::Killed(true) | Answer::Revoked(true) | Answer::Kicked(true) | Answer::Ok => {
            StatusCode::NO_CONTENT.into_response()
        }
        Answer::Killed(false) => problem(StatusCode::NOT_FOUND, "no such stream (any more)"),
        Answer::Revoked(false) => {
            problem(StatusCode::NOT_FOUND, "no client of this name has come in by a code")
        }
        // No command ends with these answers.
        Answer::Console(_)
        | Answer::Wrong(_)
        | Answer::Progress(_)
        | Answer::Event(_)
        | Answer::Shared(_)
        | Answer::Visit(_)
        | Answer::Lost(_)
        | Answer::Upgraded(_)
        | Answer::Error(_) => no_answer(),
    }
}

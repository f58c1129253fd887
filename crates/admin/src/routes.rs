//! The routes of the admin API and their answers.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router, middleware};
use config::edit::{EditError, Value as ConfigValue};
use logging::AUDIT;
use ops::enrol::Order;
use ops::measure::Ping;
use ops::shown::Shown;
use ops::status::{Status, StreamNumber};
use ops::{Daemon, WrongConfig};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::body::{self, Form};
use super::guard::{self, Guard};
use super::{metrics, page, patch};

type Source = State<Arc<dyn Daemon>>;

/// Time limit for an answer of the workers. A healthy worker answers within one turn of its event
/// loop, so the API reports an error instead of a longer wait.
const PATIENCE: Duration = Duration::from_secs(3);

/// Largest body of a request, in bytes.
pub(super) const BODY_MAX: usize = 64 << 10;

/// Default limit of listed streams.
const STREAMS: usize = 100;

/// Highest permitted limit of listed streams.
const STREAMS_MAX: usize = 1_000_000;

/// The OpenAPI 3.1 description of this API.
const OPENAPI: &str = include_str!("openapi.json");

/// Builds the router with all routes, the guard and the limit of the body.
pub(super) fn app(source: Arc<dyn Daemon>, guard: Guard) -> Router {
    let api = Router::new()
        .route("/openapi.json", get(openapi))
        .route("/status", get(status))
        .route("/streams", get(streams))
        .route("/streams/{link}/{stream}", delete(kill))
        .route("/reload", post(reload))
        .route("/config", get(configuration).patch(amend))
        .route("/clients", get(clients))
        .route("/clients/{name}", get(client))
        .route("/log", get(log).put(set_log))
        .route("/enrolments", post(enroll))
        .route("/enrolments/{name}", delete(revoke));
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/status", get(checked))
        .route("/metrics", get(metrics_page))
        .nest("/api/v1", api)
        .fallback(nothing_here)
        .method_not_allowed_fallback(other_method)
        .layer(middleware::from_fn_with_state(guard, guard::check))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(source)
}

/// An error answer. All error answers of this API have this form.
pub(super) fn problem(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({ "error": why }))).into_response()
}

fn no_answer() -> Response {
    problem(StatusCode::SERVICE_UNAVAILABLE, "a worker does not answer")
}

fn failed(why: &anyhow::Error) -> Response {
    if let Some(EditError::TestFailed(why)) = why.downcast_ref() {
        return problem(StatusCode::PRECONDITION_FAILED, why);
    }
    match why.downcast_ref::<WrongConfig>() {
        Some(WrongConfig(problems)) => {
            // The context of the error, if there is one, goes before the list of problems.
            let about = why.chain().nth(1).map(|_| why.to_string());
            let about = about.unwrap_or_else(|| "not accepted".to_owned());
            let body = json!({ "error": about, "problems": problems });
            (StatusCode::UNPROCESSABLE_ENTITY, Json(body)).into_response()
        }
        None => problem(StatusCode::CONFLICT, &format!("{why:#}")),
    }
}

async fn nothing_here(uri: Uri) -> Response {
    problem(StatusCode::NOT_FOUND, &format!("nothing at {}", uri.path()))
}

async fn other_method() -> Response {
    problem(StatusCode::METHOD_NOT_ALLOWED, "not with this method")
}

async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

async fn asked(source: &dyn Daemon) -> Option<Status> {
    timeout(PATIENCE, source.status()).await.ok()
}

async fn healthz(State(source): Source) -> Response {
    if source.alive(PATIENCE).await { "alive\n".into_response() } else { no_answer() }
}

/// Answers 200 if the daemon can serve visitors: it runs, and a client has at least one session
/// that is up.
async fn readyz(State(source): Source) -> Response {
    let Some(status) = asked(source.as_ref()).await else { return no_answer() };
    let unready = |why: &str| problem(StatusCode::SERVICE_UNAVAILABLE, why);
    if status.state != "running" {
        return unready(&status.state);
    }
    if status.role == "client" && !status.sessions.iter().any(|session| session.state == "up") {
        return unready("no link to the server");
    }
    "ready\n".into_response()
}

/// Measures one round trip over every link, up to the limit of links in one ping.
async fn checked(State(source): Source) -> Response {
    let Some(meter) = source.meter() else {
        return problem(StatusCode::SERVICE_UNAVAILABLE, "nothing to measure here");
    };
    let Ok(Ping { ok, links, omitted, .. }) = timeout(PATIENCE * 2, meter.ping(PATIENCE)).await
    else {
        return no_answer();
    };
    let code = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(json!({ "ok": ok, "links": links, "omitted": omitted }))).into_response()
}

async fn metrics_page(State(source): Source) -> Response {
    let Some(status) = asked(source.as_ref()).await else { return no_answer() };
    let page = page::page(&metrics::list(&status));
    ([(CONTENT_TYPE, page::CONTENT_TYPE)], page).into_response()
}

async fn status(State(source): Source) -> Response {
    match asked(source.as_ref()).await {
        Some(status) => Json(status).into_response(),
        None => no_answer(),
    }
}

#[derive(Debug, Deserialize)]
struct Wanted {
    service: Option<String>,
    limit: Option<usize>,
}

async fn streams(State(source): Source, wanted: Result<Query<Wanted>, QueryRejection>) -> Response {
    let Ok(Query(Wanted { service, limit })) = wanted else {
        let why = "the query must be such as service=web&limit=100, where limit is a number";
        return problem(StatusCode::BAD_REQUEST, why);
    };
    let limit = limit.unwrap_or(STREAMS);
    if limit > STREAMS_MAX {
        let why = format!("limit: at most {STREAMS_MAX}");
        return problem(StatusCode::BAD_REQUEST, &why);
    }
    match timeout(PATIENCE, source.streams(service, limit)).await {
        Ok(streams) => Json(streams).into_response(),
        Err(_) => no_answer(),
    }
}

async fn kill(
    State(source): Source,
    named: Result<Path<(String, String)>, PathRejection>,
) -> Response {
    let number = named.ok().map(|Path((link, stream))| format!("{link}/{stream}").parse());
    let Some(Ok(number)) = number else {
        let why = "no such stream: two numbers name one, with a `u` before that of a flow";
        return problem(StatusCode::NOT_FOUND, why);
    };
    match timeout(PATIENCE, source.kill(number)).await {
        Ok(true) => {
            let StreamNumber { link, kind, number: stream } = number;
            tracing::info!(
                target: AUDIT, link, stream,
                "{} {number} was reset, as asked over the admin API", kind.name()
            );
            StatusCode::NO_CONTENT.into_response()
        }
        Ok(false) => problem(StatusCode::NOT_FOUND, "no such stream (any more)"),
        Err(_) => no_answer(),
    }
}

/// Runs a change to its end, even if the client of the request disconnects.
async fn whole<T: Send + 'static>(
    work: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    tokio::spawn(work).await?
}

/// The answer of `GET /config`.
#[derive(Debug, Serialize)]
struct Configuration<'a> {
    path: PathBuf,
    writable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
    config: patch::Json<&'a ConfigValue>,
}

/// Answers with the configuration file without its secrets.
async fn configuration(State(source): Source) -> Response {
    match source.configuration() {
        Ok(Shown { path, read_only, config }) => {
            let (writable, config) = (read_only.is_none(), patch::Json(&config));
            Json(Configuration { path, writable, why_not: read_only, config }).into_response()
        }
        Err(why) => failed(&why),
    }
}

async fn amend(State(source): Source, request: Request) -> Response {
    let body = match body::bytes(request, &patch::FORM).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let operations = match patch::operations(&body) {
        Ok(operations) => operations,
        Err(why) => return why.answer(),
    };
    match whole(async move { source.amend(operations).await }).await {
        Ok(reloaded) => Json(reloaded).into_response(),
        Err(why) => failed(&why),
    }
}

async fn reload(State(source): Source) -> Response {
    match whole(async move { source.reload().await }).await {
        Ok(reloaded) => Json(reloaded).into_response(),
        Err(why) => failed(&why),
    }
}

/// The current log filter.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Logged {
    filter: String,
}

async fn log() -> Response {
    let filter = logging::current().unwrap_or_else(|| "nothing".to_owned());
    Json(Logged { filter }).into_response()
}

const LOG: Form = Form { is: "an object", example: r#"{"filter":"debug"}"#, keys: &["filter"] };

async fn set_log(request: Request) -> Response {
    let Logged { filter } = match body::object(request, &LOG).await {
        Ok(wanted) => wanted,
        Err(refusal) => return refusal,
    };
    if let Err(why) = logging::levels(&filter) {
        return problem(StatusCode::UNPROCESSABLE_ENTITY, &why);
    }
    logging::change(&filter);
    tracing::info!(target: AUDIT, "the log level is {filter} from now on, as asked over the admin API");
    log().await
}

/// Lists the clients of a server.
async fn clients(State(source): Source) -> Response {
    match timeout(PATIENCE, source.clients()).await {
        Ok(Ok(clients)) => Json(clients).into_response(),
        Ok(Err(why)) => failed(&why),
        Err(_) => no_answer(),
    }
}

/// The name of a client in a path.
type Named = Result<Path<String>, PathRejection>;

/// The answer to a segment of a path that is no text.
fn no_name() -> Response {
    problem(StatusCode::NOT_FOUND, "a client's name has only ASCII characters")
}

async fn client(State(source): Source, name: Named) -> Response {
    let Ok(Path(name)) = name else { return no_name() };
    match timeout(PATIENCE, source.client(name)).await {
        Ok(Ok(Some(client))) => Json(client).into_response(),
        Ok(Ok(None)) => problem(StatusCode::NOT_FOUND, "the server knows no client of this name"),
        Ok(Err(why)) => failed(&why),
        Err(_) => no_answer(),
    }
}
const ENROLMENT: Form = Form {
    is: "an object",
    example: r#"{"name":"office","allow_tcp":["10000-10100"]}"#,
    keys: &["name", "allow_tcp", "allow_udp", "allow_http", "allow_tls", "allow_forward", "renew"],
};

/// Makes an enrolment code. The answer contains all data that `tunnel enroll` prints.
async fn enroll(State(source): Source, request: Request) -> Response {
    let order: Order = match body::object(request, &ENROLMENT).await {
        Ok(order) => order,
        Err(refusal) => return refusal,
    };
    let asked = order.clone();
    match whole(async move { source.enroll(asked).await }).await {
        Ok(opened) => {
            let code = opened.code(&order, &[]);
            let body: Value = json!({ "code": code.text(), "servers": code.urls });
            (StatusCode::CREATED, Json(body)).into_response()
        }
        Err(why) => failed(&why),
    }
}

async fn revoke(State(source): Source, name: Named) -> Response {
    let Ok(Path(name)) = name else { return no_name() };
    match whole(async move { source.revoke(name).await }).await {
        Ok(true) => StatusCode::NO_CONTENT.into_response(),
        Ok(false) => problem(StatusCode::NOT_FOUND, "no client of this name has come in by a code"),
        Err(why) => failed(&why),
    }
}

//! The routes of the admin API. Below `/api/v1` they are those of the table of commands.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection, RawPathParamsRejection};
use axum::extract::{DefaultBodyLimit, Extension, Path, Query, RawPathParams, Request, State};
use axum::http::header::{CONTENT_TYPE, IF_MATCH};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use axum::{Json, Router, middleware};
use ops::command::{
    self, AnyCommand, ApiResponse, ApiRoute, Connect, Context, Entry, FollowEvents, Given, Method,
    News, PATIENCE,
};
use ops::measure::Ping;
use ops::status::{DaemonState, SessionState, Status};
use ops::{AUDIT, Daemon, Life, Role};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::answer::{failed, no_answer, outcome, problem};
use super::guard::{self, Guard, Remote};
use super::live::{self, Live, Topics};
use super::sessions::{By, Caller, Sessions};
use super::{body, connect, console, events, metrics, page};

/// The state that every request needs.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) daemon: Arc<dyn Daemon>,
    /// The phase of the daemon.
    pub(super) life: Life,
    /// Permits for byte streams to targets.
    pub(super) streams: Arc<Semaphore>,
    /// The permit for showing the configuration.
    pub(super) showing: Arc<Semaphore>,
    /// The sessions of the console.
    pub(super) sessions: Sessions,
    /// What moves.
    pub(super) live: Live,
}

impl Api {
    pub(super) fn new(daemon: Arc<dyn Daemon>, life: Life) -> Self {
        let [streams, showing] = [connect::STREAMS, 1].map(|most| Arc::new(Semaphore::new(most)));
        Self { daemon, life, streams, showing, sessions: Sessions::default(), live: Live::new() }
    }

    fn context(&self, news: mpsc::Sender<News>) -> Context<'_> {
        Context { daemon: self.daemon.as_ref(), over: "the admin API", life: &self.life, news }
    }
}

type ApiState = State<Api>;

/// The OpenAPI 3.1 description of this API.
const OPENAPI: &str = include_str!("openapi.json");

/// Builds the router with all routes, the guard and the body limit.
pub(super) fn app(api: Api, guard: Guard) -> Router {
    let all = command::TABLE
        .iter()
        .flat_map(|entry| entry.about.routes.iter().map(move |at| (entry, at)));
    let commands =
        all.fold(Router::new(), |router, (entry, at)| router.route(at.path, route(entry, at)));
    Router::new()
        .route("/", get(console::file))
        .route(console::ROUTE, get(console::file))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/status", get(checked))
        .route("/metrics", get(metrics_page))
        .route("/api/v1/openapi.json", get(openapi))
        .route("/api/v1/history", get(history))
        .route("/api/v1/log/lines", get(log_lines))
        .route("/api/v1/certificates", get(certificates))
        .route(guard::SESSIONS, get(all_sessions).post(begin_session).delete(end_own_session))
        .route("/api/v1/sessions/{name}", delete(end_session))
        .nest("/api/v1", commands)
        .fallback(nothing_here)
        .method_not_allowed_fallback(other_method)
        .layer(middleware::from_fn_with_state(guard, guard::check))
        .layer(DefaultBodyLimit::max(body::BODY_MAX))
        .with_state(api)
}

/// A route of a command.
fn route(entry: &'static Entry, route: &'static ApiRoute) -> MethodRouter<Api> {
    let handler = move |State(api): ApiState,
                        path: Result<RawPathParams, RawPathParamsRejection>,
                        query: Result<Query<Vec<(String, String)>>, QueryRejection>,
                        request: Request| async move {
        let Ok(path) = path else {
            return problem(StatusCode::NOT_FOUND, "a part of the path is no text");
        };
        let path = path.iter().map(|(key, text)| (key.to_owned(), text.to_owned())).collect();
        let Ok(Query(query)) = query else {
            return problem(
                StatusCode::BAD_REQUEST,
                "the query is not of the form name=text&name=text",
            );
        };
        let given = Given { route, path, query, body: &[] };
        answer(entry, &api, given, request).await
    };
    match route.method {
        Method::Get => get(handler),
        Method::Post => post(handler),
        Method::Put => put(handler),
        Method::Patch => patch(handler),
        Method::Delete => delete(handler),
    }
}

/// Reads a command, runs it, and responds.
async fn answer(entry: &Entry, api: &Api, mut given: Given<'_>, mut request: Request) -> Response {
    let is_reader = matches!(request.extensions().get::<Caller>(), Some(Caller::Reader));
    let topics = topics(&given);
    let if_match = request.headers().get(IF_MATCH).filter(|_| entry.about.has_tag);
    let tag = if_match.map(one_tag);
    if let Some(Some(tag)) = &tag {
        given.set("tag", tag);
    }
    let route = given.route;
    let (upgrade, read) = match &route.body {
        None => (connect::upgrade(&mut request), entry.read(given)),
        Some(form) => match body::bytes(request, form, body::most(route)).await {
            Ok(body) => (None, entry.read(Given { body: &body, ..given })),
            Err(refusal) => return refusal,
        },
    };
    let command = match read {
        Ok(command) => command,
        Err(why) => return body::refusal(&why),
    };
    if tag == Some(None) {
        let why = "the If-Match field must have one tag, as the ETag field of /config";
        return problem(StatusCode::BAD_REQUEST, why);
    }
    if entry.about.is_private && is_reader {
        return not_for_readers();
    }
    if let Some(command) = command.of_type::<Connect>() {
        return connect::connect(&api.daemon, &api.streams, command, upgrade).await;
    }
    // Without topics, the response is a stream of events.
    match topics.filter(|_| command.of_type::<FollowEvents>().is_some()) {
        None => {}
        Some(Ok(topics)) if is_reader && topics.has_requests() => return not_for_readers(),
        Some(Ok(topics)) => return live::answer(&api.live, &api.daemon, topics),
        Some(Err(why)) => return problem(StatusCode::BAD_REQUEST, &why),
    }
    if entry.about.is_long {
        return at_length(api, command).await;
    }
    let (news, mut inbox) = mpsc::channel(1);
    if route.method == Method::Get && !entry.about.is_endless {
        // A query ends with the connection of the request.
        return outcome(carry_out(&*command, api, news).await);
    }
    let api = api.clone();
    // A change runs to its end, even if the client of the request disconnects. A speed test and a
    // stream of events end with the inbox.
    let mut running = tokio::spawn(async move { carry_out(&*command, &api, news).await });
    tokio::select! {
        done = &mut running => outcome(done.unwrap_or_else(|panic| Err(panic.into()))),
        // From now on the daemon reports more. The progress of a speed test is not shown here.
        Some(News::Ok) = inbox.recv() => events::answer(inbox),
    }
}

async fn carry_out(
    command: &dyn AnyCommand,
    api: &Api,
    news: mpsc::Sender<News>,
) -> anyhow::Result<ApiResponse> {
    Ok(command.run(&api.context(news)).await?.response()?)
}

/// The topics of a request for events.
fn topics(given: &Given<'_>) -> Option<Result<Topics, String>> {
    let field = |name| given.query.iter().find(|(key, _)| key == name);
    let topics = Topics::parse(&field("topics")?.1);
    Some(match field("changes").map(|(_, text)| text.as_str()) {
        None | Some("false") => topics,
        Some("true") => topics.map(|topics| topics.with_changes(true)),
        Some(_) => Err("`changes` is true or false".to_owned()),
    })
}

/// Answers at length. A file may have megabytes, and the API has a single thread, so another thread
/// reads, masks and encodes the file, one file at a time.
async fn at_length(api: &Api, command: Box<dyn AnyCommand>) -> Response {
    let Ok(turn) = Arc::clone(&api.showing).acquire_owned().await else { return no_answer() };
    let (api, runtime) = (api.clone(), tokio::runtime::Handle::current());
    let shown = tokio::task::spawn_blocking(move || {
        // The permit is held as long as the work runs, even after the client has left.
        let _turn = turn;
        let (news, _inbox) = mpsc::channel(1);
        runtime.block_on(carry_out(&*command, &api, news))
    });
    outcome(shown.await.unwrap_or_else(|panic| Err(panic.into())))
}

/// The refusal of a query that the read-only token does not permit.
fn not_for_readers() -> Response {
    let text = "the token of `admin.read_token` does not read the requests of visitors: they need \
                the token of `admin.token`";
    problem(StatusCode::FORBIDDEN, text)
}

/// The strong entity tag of an `If-Match` field (RFC 9110 section 13.1.1).
fn one_tag(field: &HeaderValue) -> Option<String> {
    let text = field.to_str().ok()?.trim();
    let is_tag = text.len() > 2 && text.starts_with('"') && text.ends_with('"');
    (is_tag && text.matches('"').count() == 2).then(|| text.to_owned())
}

pub(super) async fn nothing_here(uri: Uri) -> Response {
    problem(StatusCode::NOT_FOUND, &format!("nothing at {}", uri.path()))
}

pub(super) async fn other_method() -> Response {
    problem(StatusCode::METHOD_NOT_ALLOWED, "not with this method")
}

async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

/// Numbers and a name of a query; each field occurs at most once.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Past {
    of: Option<String>,
    step: Option<u64>,
}

async fn history(State(api): ApiState, query: Result<Query<Past>, QueryRejection>) -> Response {
    let Ok(Query(Past { of, step })) = query else {
        let text = "the query must be such as of=service:web&step=10";
        return problem(StatusCode::BAD_REQUEST, text);
    };
    let Some(of) = of else { return Json(json!({ "series": api.live.names() })).into_response() };
    match api.live.past(&of, step) {
        Some(series) if series.is_empty() => {
            problem(StatusCode::BAD_REQUEST, "step: 1, 10 or 60 seconds")
        }
        Some(series) => {
            let unix_millis = live::unix_millis();
            Json(json!({ "of": of, "unix_millis": unix_millis, "series": series })).into_response()
        }
        None => problem(
            StatusCode::NOT_FOUND,
            "no such series: `total`, `service:NAME` or \
                                                `client:NAME`, as /api/v1/history lists them",
        ),
    }
}

/// The query for log lines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Newest {
    #[serde(default)]
    after: u64,
    limit: Option<usize>,
}

async fn log_lines(State(api): ApiState, query: Result<Query<Newest>, QueryRejection>) -> Response {
    let Ok(Query(Newest { after, limit })) = query else {
        let text = "the query must be such as after=0&limit=1000";
        return problem(StatusCode::BAD_REQUEST, text);
    };
    match api.daemon.log() {
        Some(log) => Json(log.lines(after, limit.unwrap_or(usize::MAX))).into_response(),
        None => problem(StatusCode::CONFLICT, "it cannot do that"),
    }
}

/// The certificates of `https://` names, and the pins of the carriers, without the rest of the
/// status.
async fn certificates(State(api): ApiState) -> Response {
    match timeout(PATIENCE, api.daemon.brief()).await.ok() {
        Some(Status { certificates, pins, .. }) => {
            Json(json!({ "certificates": certificates, "pins": pins })).into_response()
        }
        None => no_answer(),
    }
}

async fn all_sessions(State(api): ApiState, Extension(caller): Extension<Caller>) -> Response {
    let own = if let Caller::Session(own) = &caller { Some(own.as_str()) } else { None };
    Json(json!({ "sessions": api.sessions.list(own) })).into_response()
}

async fn begin_session(
    State(api): ApiState,
    Extension(caller): Extension<Caller>,
    Extension(Remote(from)): Extension<Remote>,
) -> Response {
    begin(&api.sessions, &caller, from)
}

/// Exchanges a key, or the token of the file, for a session.
pub(super) fn begin(sessions: &Sessions, caller: &Caller, from: IpAddr) -> Response {
    let by = match caller {
        Caller::Link => By::Link,
        Caller::Token => By::Token,
        Caller::Reader | Caller::Session(_) => {
            let text = "a session begins with a key of `tunnel console`, or the token of \
                        `admin.token`";
            return problem(StatusCode::FORBIDDEN, text);
        }
    };
    match sessions.begin(by, from) {
        Ok(begun) => {
            tracing::info!(target: AUDIT, source = %from, "a session of the console began");
            (StatusCode::CREATED, Json(begun)).into_response()
        }
        Err(why) => failed(&why),
    }
}

async fn end_own_session(State(api): ApiState, Extension(caller): Extension<Caller>) -> Response {
    match caller {
        Caller::Session(own) => ended(&api, &own),
        Caller::Token | Caller::Reader | Caller::Link => {
            problem(StatusCode::NOT_FOUND, "this request is of no session")
        }
    }
}

async fn end_session(State(api): ApiState, name: Result<Path<String>, PathRejection>) -> Response {
    match name {
        Ok(Path(name)) => ended(&api, &name),
        Err(_) => problem(StatusCode::NOT_FOUND, "a part of the path is no text"),
    }
}

fn ended(api: &Api, name: &str) -> Response {
    if api.sessions.end(name) {
        tracing::info!(target: AUDIT, session = name, "a session of the console was ended");
        StatusCode::NO_CONTENT.into_response()
    } else {
        problem(StatusCode::NOT_FOUND, "no session of this name")
    }
}

async fn asked(source: &dyn Daemon) -> Option<Status> {
    timeout(PATIENCE, source.status()).await.ok()
}

async fn healthz(State(api): ApiState) -> Response {
    if api.daemon.alive(PATIENCE).await { "alive\n".into_response() } else { no_answer() }
}

/// Answers 200 if the daemon can serve visitors: it runs, a client has at least one session with a
/// server that is up, and a node of a cluster hears the engine or other nodes.
async fn readyz(State(api): ApiState) -> Response {
    let Some(status) = asked(api.daemon.as_ref()).await else { return no_answer() };
    let unready = |why: &str| problem(StatusCode::SERVICE_UNAVAILABLE, why);
    match status.state.state() {
        DaemonState::Running => {}
        DaemonState::Draining | DaemonState::Unknown => {
            return unready(&status.state.to_string());
        }
    }
    let mut sessions = status.sessions.iter().filter(|session| !session.private);
    if status.role == Role::Client && !sessions.any(|session| session.state == SessionState::Up) {
        return unready("no link to the server");
    }
    if status.cluster.is_some_and(|cluster| !cluster.ready) {
        return unready("this node of the cluster cannot find the clients of other nodes");
    }
    "ready\n".into_response()
}

/// Measures one round trip over every link, up to the limit of links per ping.
async fn checked(State(api): ApiState) -> Response {
    let Some(meter) = api.daemon.meter() else {
        return problem(StatusCode::SERVICE_UNAVAILABLE, "nothing to measure here");
    };
    let Ok(Ping { ok, links, omitted, .. }) = timeout(PATIENCE * 2, meter.ping(PATIENCE)).await
    else {
        return no_answer();
    };
    let code = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(json!({ "ok": ok, "links": links, "omitted": omitted }))).into_response()
}

async fn metrics_page(State(api): ApiState) -> Response {
    let Some(status) = asked(api.daemon.as_ref()).await else { return no_answer() };
    let page = page::page(&metrics::list(&status));
    ([(CONTENT_TYPE, page::CONTENT_TYPE)], page).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use crate::tests::{READER, api, ask};

    #[test]
    fn the_token_that_only_reads_reads_the_keys_of_the_role() {
        let field = format!("Authorization: Bearer {READER}");
        let head = format!("GET /api/v1/config/keys HTTP/1.1\r\nHost: HOST\r\n{field}");
        let (status, answer) = ask(&api(), &head, "");
        assert_eq!(status, 200, "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let keys: Vec<Value> = serde_json::from_str(body).unwrap();
        assert_eq!(keys.len(), config::keys::of_role("server").len());
        let of = |path: &str| keys.iter().find(|key| key["path"] == path).expect(path);
        let drain = of("drain_timeout");
        for (name, value) in
            [("type", "duration"), ("default", "120s"), ("unit", "time"), ("change", "live")]
        {
            assert_eq!(drain[name], value, "{drain}");
        }
        assert!(drain["default_is_value"] == true && drain.get("secret").is_none(), "{drain}");
        assert!(drain["meaning"].as_str().unwrap().ends_with('.'), "{drain}");
        assert_eq!(of("clients[].token")["secret"], true);
        assert_eq!(of("clients[].allow")["type"], "map");
    }
}

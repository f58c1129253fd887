//! The set-up page of a start without parameters. It has a port of its own on loopback, which is
//! open until the file is written or the time is over, and the guard of the admin API. The key in
//! its link is valid once.

use std::net::{Ipv4Addr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Extension, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use config::Admin;
use ops::command::Form;
use ops::setup::{Facts, Plan, SetUp};
use ops::{AUDIT, Role};
use tokio::runtime::Builder;
use tokio::sync::{Mutex, oneshot};
use tokio::time::{Instant, sleep};

use super::answer::{failed, no_answer, problem};
use super::guard::{self, Guard, Remote};
use super::routes::{begin, nothing_here, other_method};
use super::sessions::{Caller, Sessions};
use super::{body, console, serve};

/// How long the page can be used.
const LASTS: Duration = Duration::from_secs(15 * 60);

/// How long the port stays open after the file was written, for the response that says so.
const GRACE: Duration = Duration::from_secs(1);

/// The OpenAPI 3.1 description of the routes.
const OPENAPI: &str = include_str!("setup.json");

/// The JSON body with the choices of the user.
const PLAN: Form = Form {
    is: "an object",
    example: r#"{"role":"client","code":"enroll1.…","target":"3000"}"#,
    required: &["role"],
    without: &[],
};

/// A running set-up page. It ends when this value is dropped.
#[derive(Debug)]
pub struct SetUpPage {
    link: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Option<Role>>>,
}

/// The state that every request needs.
#[derive(Clone)]
struct Page {
    maker: Arc<dyn SetUp>,
    sessions: Sessions,
    ends: Instant,
    /// Receives the role of the file that was written; `None`: a file was already written.
    written: Arc<Mutex<Option<oneshot::Sender<Role>>>>,
}

impl SetUpPage {
    /// Opens a free port of 127.0.0.1. `then` runs after the file was written and the response was
    /// sent.
    ///
    /// # Errors
    /// There is no free port, there are no random bytes, or there are no resources for the runtime
    /// or the thread.
    pub fn start(
        maker: Arc<dyn SetUp>,
        then: impl FnOnce() + Send + 'static,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let sessions = Sessions::default();
        let key = sessions.key_for(LASTS)?;
        let link = format!("http://{}/#k={key}", listener.local_addr()?);
        let guard = guard(sessions.clone())?;
        // A target that leads here would let visitors in.
        let guard_of_port = net::guarded::Guard::port(listener.local_addr()?);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, chosen) = oneshot::channel();
        let written = Arc::new(Mutex::new(Some(tell)));
        let serve = move || {
            let _guard = guard_of_port;
            let role = runtime.block_on(async {
                let page = Page { maker, sessions, ends: Instant::now() + LASTS, written };
                run(listener, app(page, guard), stopped, chosen).await
            });
            runtime.shutdown_background();
            if role.is_some() {
                then();
            }
            role
        };
        let thread = std::thread::Builder::new().name("tunnel-set-up".into()).spawn(serve)?;
        Ok(Self { link, stop: Some(stop), thread: Some(thread) })
    }

    /// The link to the page, with its key after `#`.
    #[must_use]
    pub fn link(&self) -> &str {
        &self.link
    }

    /// How long the page can be used, from its start.
    #[must_use]
    pub const fn lasts() -> Duration {
        LASTS
    }

    /// Waits until a file is written or the time is over. Returns the role of the file.
    #[must_use]
    pub fn wait(mut self) -> Option<Role> {
        self.join()
    }

    /// Ends the page. Returns the role of the file, if one was written.
    #[must_use]
    pub fn end(mut self) -> Option<Role> {
        drop(self.stop.take());
        self.join()
    }

    fn join(&mut self) -> Option<Role> {
        // A panic was logged by the panic hook.
        self.thread.take().and_then(|thread| thread.join().ok().flatten())
    }
}

impl Drop for SetUpPage {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.join();
    }
}

/// Serves until a file is written, the time is over or the page is stopped. The port is closed when
/// this future completes. Returns the role of the file.
async fn run(
    listener: TcpListener,
    app: Router,
    stopped: oneshot::Receiver<()>,
    chosen: oneshot::Receiver<Role>,
) -> Option<Role> {
    let mut serving = pin!(serve::serve(listener, app));
    let role = tokio::select! {
        () = &mut serving => None,
        () = sleep(LASTS) => None,
        // The sender never sends; its drop also completes this future.
        _ = stopped => None,
        chosen = chosen => chosen.ok(),
    };
    if role.is_some() {
        tokio::select! {
            () = serving => {}
            () = sleep(GRACE) => {}
        }
    }
    role
}

/// The guard of the admin API. Nobody holds the token that takes the place of `admin.token`.
fn guard(sessions: Sessions) -> anyhow::Result<Guard> {
    let token = config::Token { secret: config::Secret::new(ops::token()?), file: None };
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let (read_token, hosts, origin) = (None, Vec::new(), None);
    Guard::new(&Admin { listen, token, read_token, hosts, origin }, sessions)
}

fn app(page: Page, guard: Guard) -> Router {
    Router::new()
        .route("/", get(console::file_of_set_up))
        .route(console::ROUTE, get(console::file_of_set_up))
        .route("/api/v1/openapi.json", get(openapi))
        .route(guard::SESSIONS, post(begin_session))
        .route("/api/v1/setup", get(facts).post(write))
        .route("/api/v1/setup/check", post(check))
        .fallback(nothing_here)
        .method_not_allowed_fallback(other_method)
        .layer(middleware::from_fn_with_state(guard, guard::check))
        .layer(DefaultBodyLimit::max(body::BODY_MAX))
        .with_state(page)
}

async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

async fn begin_session(
    State(page): State<Page>,
    Extension(caller): Extension<Caller>,
    Extension(Remote(from)): Extension<Remote>,
) -> Response {
    begin(&page.sessions, &caller, from)
}

async fn facts(State(page): State<Page>) -> Response {
    let ends_seconds = page.ends.saturating_duration_since(Instant::now()).as_secs();
    Json(Facts { ends_seconds, ..page.maker.facts() }).into_response()
}

async fn check(State(page): State<Page>, request: Request) -> Response {
    let plan = match plan(request).await {
        Ok(plan) => plan,
        Err(refusal) => return refusal,
    };
    match tokio::task::spawn_blocking(move || page.maker.draft(&plan)).await {
        Ok(draft) => Json(draft).into_response(),
        Err(_) => no_answer(),
    }
}

async fn write(State(page): State<Page>, request: Request) -> Response {
    let plan = match plan(request).await {
        Ok(plan) => plan,
        Err(refusal) => return refusal,
    };
    // The code is used up even if the browser does not wait for the response.
    let written = tokio::spawn(async move {
        let mut tell = page.written.lock().await;
        if tell.is_none() {
            return problem(StatusCode::CONFLICT, "the file was written already");
        }
        let maker = Arc::clone(&page.maker);
        match tokio::task::spawn_blocking(move || maker.write(&plan)).await {
            Ok(Ok(written)) => {
                let path = written.path.display();
                tracing::info!(target: AUDIT, "the set-up page has written {path}");
                // The receiver is gone after the time limit: then nothing starts.
                tell.take().map(|tell| tell.send(written.role));
                (StatusCode::CREATED, Json(written)).into_response()
            }
            Ok(Err(why)) => failed(&why),
            Err(_) => no_answer(),
        }
    });
    written.await.unwrap_or_else(|_| no_answer())
}

async fn plan(request: Request) -> Result<Plan, Response> {
    let bytes: Bytes = body::bytes(request, &PLAN, body::BODY_MAX).await?;
    let plan: Plan = PLAN.read(&bytes, &[]).map_err(|why| body::refusal(&why))?;
    match plan.role {
        Role::Server | Role::Client => Ok(plan),
        Role::Proxy | Role::Run => {
            Err(problem(StatusCode::UNPROCESSABLE_ENTITY, "`role` must be server or client"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};
    use std::path::PathBuf;

    use axum::body::{Body, to_bytes};
    use axum::http::header::{AUTHORIZATION, HOST};
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use ops::WrongConfig;
    use ops::setup::{Draft, Written};
    use serde_json::{Value, json};

    use super::*;

    /// A maker that knows one right plan: a server.
    struct Fixed;

    impl SetUp for Fixed {
        fn facts(&self) -> Facts {
            let text = String::new;
            Facts {
                role: Role::Server,
                folder: PathBuf::from("/x"),
                taken: Vec::new(),
                listen: text(),
                client: text(),
                ports: text(),
                console: text(),
                ends_seconds: 0,
            }
        }

        fn draft(&self, plan: &Plan) -> Draft {
            Draft { ok: plan.role == Role::Server, ..Draft::default() }
        }

        fn write(&self, plan: &Plan) -> anyhow::Result<Written> {
            if plan.role != Role::Server {
                return Err(WrongConfig::one("x.yaml:1:1: a: b".to_owned()).into());
            }
            Ok(Written { role: plan.role, path: "/x".into(), elsewhere: None, console: false })
        }
    }

    struct Client {
        app: TowerToHyperService<Router>,
        key: String,
        chosen: oneshot::Receiver<Role>,
    }

    impl Client {
        fn new() -> Self {
            let sessions = Sessions::default();
            let key = sessions.key_for(LASTS).unwrap();
            let guard = guard(sessions.clone()).unwrap();
            let (tell, chosen) = oneshot::channel();
            let written = Arc::new(Mutex::new(Some(tell)));
            let page =
                Page { maker: Arc::new(Fixed), sessions, ends: Instant::now() + LASTS, written };
            Self { app: TowerToHyperService::new(app(page, guard)), key, chosen }
        }

        async fn ask(&self, line: &str, token: &str, body: Option<Value>) -> (u16, Value) {
            let (method, path) = line.split_once(' ').unwrap();
            let mut request = Request::builder().method(method).uri(path).header(HOST, "localhost");
            if !token.is_empty() {
                request = request.header(AUTHORIZATION, format!("Bearer {token}"));
            }
            if body.is_some() {
                request = request.header(CONTENT_TYPE, "application/json");
            }
            let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
            let mut request = request.body(body).unwrap();
            request.extensions_mut().insert(Remote(Ipv4Addr::LOCALHOST.into()));
            let answer = self.app.call(request).await.unwrap();
            let status = answer.status().as_u16();
            let bytes = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
            (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
        }

        async fn session(&self) -> (u16, String) {
            let (status, begun) = self.ask("POST /api/v1/sessions", &self.key, None).await;
            (status, begun["token"].as_str().unwrap_or_default().to_owned())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_key_is_good_once_and_no_route_answers_without_a_session() {
        let client = Client::new();
        for line in ["GET /api/v1/setup", "POST /api/v1/setup", "POST /api/v1/setup/check"] {
            assert_eq!(client.ask(line, "", Some(json!({"role": "server"}))).await.0, 401);
            let (status, _) = client.ask(line, &client.key, Some(json!({"role": "server"}))).await;
            assert_eq!(status, 401, "the key is for a session only");
        }
        let (status, token) = client.session().await;
        assert_eq!(status, 201);
        assert_eq!(client.session().await.0, 401, "it was used");
        let (status, facts) = client.ask("GET /api/v1/setup", &token, None).await;
        // The answers to wrong tokens have waited.
        let left = facts["ends_seconds"].as_u64();
        assert!(status == 200 && left > Some(890) && left <= Some(900), "{facts}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_key_ends_with_the_time_of_the_page() {
        let client = Client::new();
        tokio::time::advance(LASTS).await;
        assert_eq!(client.session().await.0, 401);
    }

    /// A page at a port, and what ends it: the sender of a stop, and that of a role.
    type Running = (
        SocketAddr,
        tokio::task::JoinHandle<Option<Role>>,
        oneshot::Sender<()>,
        oneshot::Sender<Role>,
    );

    fn running() -> Running {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let sessions = Sessions::default();
        let guard = guard(sessions.clone()).unwrap();
        let written = Arc::new(Mutex::new(None));
        let page = Page { maker: Arc::new(Fixed), sessions, ends: Instant::now() + LASTS, written };
        let (stop, stopped) = oneshot::channel();
        let (tell, chosen) = oneshot::channel();
        let task = tokio::spawn(run(listener, app(page, guard), stopped, chosen));
        (address, task, stop, tell)
    }

    /// The kernel completes a connection to a port that is open, whoever runs meanwhile.
    fn is_open(address: SocketAddr) -> bool {
        TcpStream::connect(address).is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn the_port_is_closed_after_fifteen_minutes() {
        assert_eq!(SetUpPage::lasts(), Duration::from_secs(15 * 60));
        let (address, task, _stop, _tell) = running();
        // The page takes its time from its first turn on.
        tokio::task::yield_now().await;
        assert!(is_open(address));
        tokio::time::advance(LASTS - Duration::from_millis(2)).await;
        tokio::task::yield_now().await;
        assert!(!task.is_finished() && is_open(address), "its time is not over");
        tokio::time::advance(Duration::from_millis(4)).await;
        assert_eq!(task.await.unwrap(), None, "nothing was written, and nothing starts");
        assert!(!is_open(address));
    }

    #[tokio::test(start_paused = true)]
    async fn the_port_is_closed_by_a_stop_at_once_and_after_a_file_with_a_pause_for_the_answer() {
        let (address, task, stop, _tell) = running();
        drop(stop);
        assert_eq!(task.await.unwrap(), None);
        assert!(!is_open(address));

        let (address, task, _stop, tell) = running();
        tokio::task::yield_now().await;
        tell.send(Role::Client).unwrap();
        tokio::time::advance(GRACE - Duration::from_millis(2)).await;
        tokio::task::yield_now().await;
        assert!(!task.is_finished() && is_open(address), "the answer may be under way");
        assert_eq!(task.await.unwrap(), Some(Role::Client));
        assert!(!is_open(address));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_written_once_and_a_wrong_plan_leaves_the_page_open() {
        let mut client = Client::new();
        let (_, token) = client.session().await;
        let order = async |plan: Value| client.ask("POST /api/v1/setup", &token, Some(plan)).await;
        let (status, said) = order(json!({"role": "client"})).await;
        assert_eq!((status, &said["problems"][0]), (422, &json!("x.yaml:1:1: a: b")));
        for wrong in [json!({"role": "proxy"}), json!({"role": "x"}), json!({}), json!([])] {
            assert_eq!(order(wrong.clone()).await.0, 422, "{wrong}");
        }
        let (status, said) = order(json!({"role": "server", "more": 1})).await;
        assert!(status == 422 && said["error"].to_string().contains("unknown key"), "{said}");
        let check = "POST /api/v1/setup/check";
        let (status, draft) = client.ask(check, &token, Some(json!({"role": "client"}))).await;
        assert_eq!((status, &draft["ok"]), (200, &json!(false)));
        assert_eq!(order(json!({"role": "server"})).await.0, 201);
        assert_eq!(order(json!({"role": "server"})).await.0, 409, "only once");
        assert_eq!(client.chosen.try_recv(), Ok(Role::Server));
    }

    /// Whatever the page can be asked stands in its description, and the other way round.
    #[tokio::test(start_paused = true)]
    async fn the_description_has_every_route() {
        let client = Client::new();
        let (_, token) = client.session().await;
        let described: Value = serde_json::from_str(OPENAPI).unwrap();
        let paths = described["paths"].as_object().unwrap();
        let mut known = Vec::new();
        for (path, methods) in paths {
            for method in methods.as_object().unwrap().keys() {
                known.push(format!("{} {path}", method.to_uppercase()));
            }
        }
        for path in paths.keys() {
            for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
                let line = format!("{method} {path}");
                let (status, _) = client.ask(&line, &token, None).await;
                assert_eq!(status != 405, known.contains(&line), "{line}: {status}");
                assert_ne!(status, 404, "{line}");
            }
        }
        assert_eq!(client.ask("GET /api/v1/status", &token, None).await.0, 404);
    }
}

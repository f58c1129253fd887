//! Decides which requests are permitted. Any web page that a user of this machine opens can make
//! the browser send requests to this API. So the host must be an address or `localhost`, because a
//! foreign name can be made to resolve to this machine (DNS rebinding). A request from another site
//! is refused regardless of its credentials.
//!
//! One token permits everything, and a second token permits only safe methods (RFC 9110 section
//! 9.2.1): `GET` reveals no secret at any path except those of the visitors' requests, which the
//! routes deny to the second token. The token of a session permits the same as the first token. The
//! guard is the outermost layer, and credentials are read nowhere else.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use config::WebOrigin;
use proto::greeting::{StoredCredential, Token};

use super::answer::problem;
use super::brake::{Brake, Wait};
use super::console;
use super::host::{Host, Origin};
use super::places::SlotHandle;
use super::sessions::{Caller, Sessions};

/// The response to a request without a token, or with a wrong token.
const WANTED: &str = "a token of `admin` is wanted: Authorization: Bearer TOKEN, or behind a proxy \
                      with a password of its own X-Tunnel-Token: TOKEN";

/// The field for the token of a request behind a reverse proxy with basic auth: the proxy needs
/// `Authorization` for its own password.
const TOKEN: &str = "x-tunnel-token";

/// The path at which a key is exchanged for a session.
pub(super) const SESSIONS: &str = "/api/v1/sessions";

/// Paths that need no token: every program on this machine may check whether the daemon is alive.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// The source address of a request; an extension of each request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote(pub(super) IpAddr);

/// The guard, with the stored forms of the tokens.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    full: StoredCredential,
    read: Option<StoredCredential>,
    sessions: Sessions,
    hosts: Arc<[String]>,
    origin: Option<WebOrigin>,
    brake: Brake,
}

/// The decision of the guard about a request.
enum Verdict {
    /// The path needs no token.
    Open,
    /// The token is valid.
    Pass(Caller),
    Refuse(Response),
    /// The token is wrong. The response is delayed.
    Wrong(Wait),
}

impl Guard {
    pub(super) fn new(settings: &config::Admin, sessions: Sessions) -> anyhow::Result<Self> {
        let stored = |token: &config::Token| StoredCredential::of(token.secret.reveal());
        let read = settings.read_token.as_ref().map(stored).transpose()?;
        let full = stored(&settings.token)?;
        let hosts = settings.hosts.iter().map(ToString::to_string).collect();
        let origin = settings.origin.clone();
        Ok(Self { full, read, sessions, hosts, origin, brake: Brake::new() })
    }

    /// A text that changes with the API token, and from which the token cannot be derived.
    pub(super) fn seal(settings: &config::Admin) -> anyhow::Result<String> {
        let full = StoredCredential::of(settings.token.secret.reveal())?;
        Ok(console::tag_of(full.text().as_bytes()))
    }

    fn judge(&self, request: &Request) -> Verdict {
        if let Some(refusal) = self.origin_refusal(request) {
            return Verdict::Refuse(refusal);
        }
        if OPEN.contains(&request.uri().path()) || console::is_file(request) {
            return Verdict::Open;
        }
        let Some(token) = token(request.headers()) else {
            return Verdict::Refuse(problem(StatusCode::UNAUTHORIZED, WANTED));
        };
        // Each connection carries its source address.
        let source = request.extensions().get::<Remote>();
        let source = source.map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |Remote(source)| *source);
        if self.brake.is_busy(source) {
            self.brake.tell(source);
            let text = "too many wrong tokens of this address at a time: wait a few seconds";
            return Verdict::Refuse(problem(StatusCode::TOO_MANY_REQUESTS, text));
        }
        let begins = request.method() == Method::POST && request.uri().path() == SESSIONS;
        match self.caller(token, begins) {
            Some(Caller::Reader) if !request.method().is_safe() => {
                let text = "the token of `admin.read_token` only reads: a change needs the token \
                            of `admin.token`";
                Verdict::Refuse(problem(StatusCode::FORBIDDEN, text))
            }
            Some(caller) => Verdict::Pass(caller),
            None => {
                self.brake.tell(source);
                Verdict::Wrong(self.brake.count(source))
            }
        }
    }

    /// The holder of this token. `begins`: the request asks for a session, which a key permits as
    /// well.
    fn caller(&self, token: &str, begins: bool) -> Option<Caller> {
        let given = Token::new(token).ok()?.stored();
        // Each comparison takes constant time (see `StoredCredential`), and all comparisons are
        // made.
        let is_full = given == self.full;
        let is_read = self.read.as_ref().is_some_and(|read| given == *read);
        let session = self.sessions.of(&given);
        let is_key = begins && self.sessions.redeem(&given);
        match session {
            _ if is_full => Some(Caller::Token),
            _ if is_read => Some(Caller::Reader),
            Some(session) => Some(Caller::Session(session)),
            None => is_key.then_some(Caller::Link),
        }
    }

    /// The refusal of a request that a page of another site may have sent, or whose host is
    /// ambiguous.
    fn origin_refusal(&self, request: &Request) -> Option<Response> {
        let headers = request.headers();
        let host = match Host::of(request.uri(), headers) {
            Ok(host) => host,
            Err(why) => return Some(problem(StatusCode::BAD_REQUEST, why)),
        };
        if !host.is_ours(&self.hosts) {
            let text = "this name is not known here: ask by address, as localhost, or by a name of \
                        `admin.hosts`";
            return Some(problem(StatusCode::FORBIDDEN, text));
        }
        match Origin::of(headers) {
            Ok(origin) if origin.as_ref().is_none_or(|origin| self.is_ours(origin, &host)) => {}
            Ok(_) => return Some(problem(StatusCode::FORBIDDEN, "a request of another site")),
            Err(why) => return Some(problem(StatusCode::BAD_REQUEST, why)),
        }
        // Browsers send this field even with requests without an origin: images, scripts, links.
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        let is_ours = site.is_none_or(|site| site == b"same-origin" || site == b"none");
        if !is_ours && !opens_page(request) {
            return Some(problem(StatusCode::FORBIDDEN, "a request of another site"));
        }
        None
    }

    /// Whether a page with this origin belongs to the console.
    fn is_ours(&self, origin: &Origin<'_>, host: &Host<'_>) -> bool {
        origin.is(host) || self.origin.as_ref().is_some_and(|own| origin.is_configured(own))
    }
}

/// The refusal of a request that the read-only token does not permit.
const READERS_BUSY: &str = "too many requests of `admin.read_token` are under way: read their \
                            answers, or close their connections";

/// Whether a browser opens a file of the console as a top-level page, from a link on another site.
/// The other site cannot read the response.
fn opens_page(request: &Request) -> bool {
    let is = |name: &str, word: &[u8]| {
        let mut fields = request.headers().get_all(name).iter();
        fields.next().is_some_and(|field| field.as_bytes() == word) && fields.next().is_none()
    };
    console::is_file(request)
        && is("sec-fetch-mode", b"navigate")
        && is("sec-fetch-dest", b"document")
}

/// The token of a request, valid or not. Two programs could each read a different one of two
/// fields, so a request with both counts as one without a token.
fn token(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(TOKEN).iter();
    let Some(field) = all.next() else { return bearer(headers) };
    all.next().is_none().then(|| field.to_str().ok())?.map(str::trim)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let field = all.next().filter(|_| all.next().is_none())?.to_str().ok()?;
    let (scheme, token) = field.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The middleware: forwards a permitted request, and adds security header fields to every response.
pub(super) async fn check(
    State(guard): State<Guard>,
    mut request: Request,
    next: Next,
) -> Response {
    let handle = request.extensions().get::<SlotHandle>().cloned();
    if let Some(handle) = &handle {
        handle.note_request();
    }
    let mut response = match guard.judge(&request) {
        Verdict::Open => next.run(request).await,
        Verdict::Pass(caller) => {
            let is_reader = matches!(caller, Caller::Reader);
            request.extensions_mut().insert(caller);
            match handle.map(|handle| handle.answer(is_reader)) {
                Some(Some(answering)) => next.run(request).await.map(|body| answering.body(body)),
                Some(None) => problem(StatusCode::SERVICE_UNAVAILABLE, READERS_BUSY),
                None => next.run(request).await,
            }
        }
        Verdict::Refuse(refusal) => refusal,
        Verdict::Wrong(wait) => {
            // The body is not read during the delay, so the rest of the request costs no memory.
            drop(request);
            wait.end().await;
            problem(StatusCode::UNAUTHORIZED, WANTED)
        }
    };
    let headers = response.headers_mut();
    // The files of the console set their own cache lifetime.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    for (name, value) in console::PROTECTION {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::header::HOST;
    use config::{Admin, Secret};
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use ops::Life;
    use tokio::time::{Instant, advance};

    use super::*;
    use crate::routes::{self, Api};
    use crate::tests::Fixed;

    const FULL: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";
    const READ: &str = "Zr5Tn8Qw1Ey6Ui3Op0AsdfGh3JeUi9Kw";
    const WRONG: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u";

    #[derive(Clone)]
    struct Client(TowerToHyperService<axum::Router>);

    impl Client {
        fn new() -> Self {
            let token = |text| config::Token { secret: Secret::new(text), file: None };
            let listen = ([127, 0, 0, 1], 0).into();
            let settings = Admin {
                listen,
                token: token(FULL),
                read_token: Some(token(READ)),
                hosts: Vec::new(),
                origin: None,
            };
            let api = Api::new(Arc::new(Fixed), Life::new());
            let guard = Guard::new(&settings, api.sessions.clone()).expect("good tokens");
            Self(TowerToHyperService::new(routes::app(api, guard)))
        }

        /// The status of the answer, and the milliseconds until it.
        async fn ask(&self, source: [u8; 4], line: &str, token: &str) -> (u16, u128) {
            let (method, path) = line.split_once(' ').expect("method and path");
            let request = Request::builder().method(method).uri(path).header(HOST, "localhost");
            let mut request = request.body(Body::empty()).expect("a request");
            let field = format!("Bearer {token}").parse().expect("a field");
            request.headers_mut().insert(AUTHORIZATION, field);
            self.send(source, request).await
        }

        /// As [`Self::ask`], with fields of its own.
        async fn send(&self, source: [u8; 4], mut request: Request<Body>) -> (u16, u128) {
            request.extensions_mut().insert(Remote(IpAddr::from(source)));
            let start = Instant::now();
            let answer = self.0.call(request).await.expect("no error");
            (answer.status().as_u16(), start.elapsed().as_millis())
        }
    }

    const HERE: [u8; 4] = [192, 0, 2, 1];
    const THERE: [u8; 4] = [192, 0, 2, 2];

    #[tokio::test(start_paused = true)]
    async fn the_second_token_reads_everything_and_changes_nothing() {
        let api = Client::new();
        for (line, with_full, with_read) in [
            ("GET /metrics", 200, 200),
            ("HEAD /metrics", 200, 200),
            ("GET /status", 503, 503),
            ("GET /api/v1/status", 200, 200),
            ("GET /api/v1/streams", 200, 200),
            ("GET /api/v1/openapi.json", 200, 200),
            ("GET /api/v1/log", 200, 200),
            ("GET /api/v1/config", 409, 409),
            ("PATCH /api/v1/config", 415, 403),
            ("PUT /api/v1/log", 415, 403),
            ("POST /api/v1/reload", 409, 403),
            ("POST /api/v1/enrolments", 415, 403),
            ("DELETE /api/v1/enrolments/a", 409, 403),
            ("DELETE /api/v1/streams/1/2", 404, 403),
            ("POST /metrics", 405, 403),
        ] {
            assert_eq!(api.ask(HERE, line, FULL).await, (with_full, 0), "{line}");
            assert_eq!(api.ask(HERE, line, READ).await, (with_read, 0), "{line}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn behind_a_proxy_with_a_password_the_token_has_a_field_of_its_own() {
        let api = Client::new();
        let ask = async |fields: &[(&'static str, &str)]| {
            let mut request = Request::builder().uri("/metrics").header(HOST, "localhost");
            for (name, value) in fields {
                request = request.header(*name, *value);
            }
            api.send(HERE, request.body(Body::empty()).expect("a request")).await.0
        };
        let basic = ("authorization", "Basic YW5uOnNlY3JldA==");
        assert_eq!(ask(&[basic, (TOKEN, FULL)]).await, 200);
        assert_eq!(ask(&[(TOKEN, READ)]).await, 200);
        assert_eq!(ask(&[basic]).await, 401);
        assert_eq!(ask(&[(TOKEN, FULL), (TOKEN, FULL)]).await, 401);
        // The field counts, whatever else the request has.
        let bearer = format!("Bearer {FULL}");
        assert_eq!(ask(&[("authorization", &bearer), (TOKEN, WRONG)]).await, 401);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_token_waits_and_a_right_one_never_does() {
        let api = Client::new();
        for milliseconds in [100, 200, 400, 800, 1600, 3200, 3200] {
            assert_eq!(api.ask(HERE, "GET /metrics", WRONG).await, (401, milliseconds));
            for (source, token) in [(HERE, FULL), (HERE, READ), (THERE, FULL)] {
                assert_eq!(api.ask(source, "GET /metrics", token).await, (200, 0));
            }
        }
        assert_eq!(api.ask(HERE, "GET /metrics", "too-short").await, (401, 3200));
        assert_eq!(api.ask(THERE, "GET /metrics", WRONG).await, (401, 100));
        assert_eq!(api.ask(HERE, "GET /healthz", WRONG).await, (200, 0), "needs no token");
    }

    #[tokio::test(start_paused = true)]
    async fn guesses_side_by_side_are_not_judged_and_another_address_is_not_concerned() {
        let api = Client::new();
        let guess = |api: Client| async move { api.ask(HERE, "GET /metrics", WRONG).await };
        // The first four wait for 100 to 800 ms. A connection that ends early shortens nothing.
        let guesses: Vec<_> = (0..4).map(|_| tokio::spawn(guess(api.clone()))).collect();
        tokio::task::yield_now().await;
        guesses.iter().for_each(tokio::task::JoinHandle::abort);
        tokio::task::yield_now().await;
        for token in [WRONG, FULL] {
            assert_eq!(api.ask(HERE, "GET /metrics", token).await, (429, 0));
        }
        assert_eq!(api.ask(THERE, "GET /metrics", FULL).await, (200, 0));
        advance(std::time::Duration::from_millis(100)).await;
        assert_eq!(api.ask(HERE, "GET /metrics", FULL).await, (200, 0));
    }
}

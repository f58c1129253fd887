//! Tests of the API over real connections. The end-to-end tests cover answers of a real daemon.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use config::{Admin, Secret, Token};
use ops::clients::{Applied, Change, Client, Clients, Details, Held, HoldOrder, Origin};
use ops::log::{Line, Lines};
use ops::requests::{
    HttpMessage, KeptBody, RequestDetail, RequestFilter, SeenRequest, SeenRequests,
};
use ops::status::{Status, StreamNumber, Streams, sample};
use ops::{
    Carried, Connector, Daemon, Life, Log, Phase, Reconnected, Requests, Role, SendFuture, Traffic,
};
use serde_json::Value;

use super::AdminApi;
use super::places::PLACES;

const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

/// The token that only reads.
pub(super) const READER: &str = "Zr5Tn8Qw1Ey6Ui3Op0AsdfGh3JeUi9Kw";

/// A daemon with a status, a log and two clients.
pub(crate) struct Fixed;

impl Daemon for Fixed {
    fn role(&self) -> Role {
        Role::Server
    }

    fn status(&self) -> SendFuture<'_, Status> {
        Box::pin(async { sample() })
    }

    fn traffic(&self) -> Option<&dyn Traffic> {
        Some(self)
    }

    fn log(&self) -> Option<&dyn Log> {
        Some(self)
    }

    fn clients(&self) -> Option<&dyn ops::Clients> {
        Some(self)
    }

    fn connector(&self) -> Option<&dyn Connector> {
        Some(self)
    }

    fn requests(&self) -> Option<&dyn Requests> {
        Some(self)
    }
}

/// The credentials of a kept request.
const VISITOR_SECRET: &str = "c2VjcmV0LW9mLWEtdmlzaXRvcg";

/// Has request 7.
impl Requests for Fixed {
    fn list(&self, filter: &RequestFilter) -> SeenRequests {
        let (id, path) = (7, "/<script>".to_owned());
        let one = SeenRequest { id, path, status: Some(404), ..SeenRequest::default() };
        let requests = Some(one).into_iter().filter(|one| filter.takes(one)).collect();
        SeenRequests { requests, ..SeenRequests::default() }
    }

    fn since(&self, revision: u64) -> (SeenRequests, u64) {
        let all = if revision < 1 { self.list(&RequestFilter::default()) } else { <_>::default() };
        (all, 1)
    }

    fn one(&self, id: u64, secrets: bool) -> Option<RequestDetail> {
        let head = format!("GET / HTTP/1.1\r\nAuthorization: Basic {VISITOR_SECRET}\r\n\r\n");
        let body = KeptBody::of(b"body", 4, false);
        let request = Some(HttpMessage::of(head.as_bytes(), b"", body, secrets));
        let seen = self.list(&RequestFilter::default()).requests.into_iter().next()?;
        (id == 7).then(|| RequestDetail { seen, request, ..RequestDetail::default() })
    }

    fn replay(&self, id: u64) -> SendFuture<'_, anyhow::Result<Option<RequestDetail>>> {
        Box::pin(std::future::ready(Ok(self.one(id, false))))
    }
}

impl Traffic for Fixed {
    fn streams(&self, _: Option<String>, _: usize) -> SendFuture<'_, Streams> {
        Box::pin(async { Streams::default() })
    }

    fn reconnect(&self, _: Option<String>) -> SendFuture<'_, Reconnected> {
        Box::pin(async { Reconnected { links: 1, looking: 0 } })
    }

    fn carried(&self) -> SendFuture<'_, Carried> {
        Box::pin(async { Carried { bytes_in: 7, bytes_out: 9 } })
    }

    fn kill(&self, _: StreamNumber) -> SendFuture<'_, bool> {
        Box::pin(async { false })
    }
}

impl Log for Fixed {
    fn filter(&self) -> String {
        "info".to_owned()
    }

    fn change(&self, filter: &str) -> Result<(), String> {
        if filter == "debug" { Ok(()) } else { Err("no filter".to_owned()) }
    }

    fn lines(&self, after: u64, limit: usize) -> Lines {
        let line = |seq| Line { seq, text: format!("<b>{seq}"), ..Line::default() };
        let mut lines: Vec<_> = (after + 1..=3).rev().take(limit).map(line).collect();
        lines.reverse();
        Lines { lost: 0, last: 3, lines }
    }
}

impl ops::Clients for Fixed {
    fn all(&self) -> SendFuture<'_, anyhow::Result<Clients>> {
        Box::pin(async {
            let list = vec![known("home")];
            Ok(Clients { uptime_seconds: 5, list, ..Clients::default() })
        })
    }

    fn one(&self, name: String) -> SendFuture<'_, anyhow::Result<Option<Details>>> {
        let client =
            (name == "home").then(|| Details { client: known(&name), ..Details::default() });
        Box::pin(async { Ok(client) })
    }

    fn change(&self, change: Change) -> SendFuture<'_, anyhow::Result<Applied>> {
        Box::pin(async move {
            let mut applied = Applied::default();
            match change {
                Change::Allow(order) | Change::Deny(order) => applied.allowed = order.rights(),
                Change::Limit(order) => {
                    applied.limits.streams = order.streams.unwrap().parse().ok()
                }
            }
            Ok(applied)
        })
    }

    fn kick(&self, name: String) -> SendFuture<'_, anyhow::Result<bool>> {
        Box::pin(async move { Ok(name == "home") })
    }

    fn hold(&self, order: HoldOrder) -> SendFuture<'_, anyhow::Result<Option<Held>>> {
        Box::pin(async move {
            let retry_after_seconds = order.retry_after()?.into();
            Ok((!order.off).then(|| Held { retry_after_seconds, ..Held::default() }))
        })
    }
}

/// Its only target echoes.
impl Connector for Fixed {
    fn connect(
        &self,
        target: config::Target,
        mut socket: UnixStream,
    ) -> SendFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            anyhow::ensure!(target.to_string() == "tcp://echo:7", "{target} refused");
            socket.set_nonblocking(false)?;
            socket.write_all(&[ops::connect::CONNECTED, b"hello "].concat())?;
            std::thread::spawn(move || {
                let mut from = socket.try_clone().unwrap();
                std::io::copy(&mut from, &mut socket).unwrap();
            });
            Ok(())
        })
    }
}

fn known(name: &str) -> Client {
    Client {
        name: name.to_owned(),
        from: Origin::Enrolled,
        away_seconds: Some(7),
        ..Client::default()
    }
}

pub(super) fn api() -> AdminApi {
    let token = Token { secret: Secret::new(TOKEN), file: None };
    let read_token = Some(Token { secret: Secret::new(READER), file: None });
    let (hosts, origin) = (Vec::new(), None);
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = Admin { listen, token, read_token, hosts, origin };
    AdminApi::start(&settings, Arc::new(Fixed), Life::new()).unwrap()
}

pub(super) fn ask(api: &AdminApi, head: &str, body: &str) -> (u16, String) {
    let address = api.url().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = head.replace("HOST", address);
    write!(stream, "{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

/// Sends a request with the token.
pub(super) fn get(api: &AdminApi, line: &str, body: &str) -> (u16, String) {
    let head = format!(
        "{line} HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json"
    );
    ask(api, &head, body)
}

#[test]
fn who_may_not_ask_is_told_why_and_health_is_for_everybody() {
    let api = api();
    let good = format!("Authorization: Bearer {TOKEN}");
    for (path, fields, expected) in [
        ("/healthz", "Host: HOST", 200),
        ("/readyz", "Host: localhost", 200),
        ("/healthz", "Host: rebound.example.com", 403),
        ("/healthz", "Host: HOST\r\nSec-Fetch-Site: cross-site", 403),
        ("/healthz", "Host: HOST\r\nSec-Fetch-Site: none", 200),
        ("/healthz", "X: y", 400),
        ("/metrics", "Host: HOST", 401),
        ("/metrics", "Host: HOST\r\nAuthorization: Bearer wrong", 401),
        ("/metrics", "Host: HOST\r\nAuthorization: Bearer Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u", 401),
        ("/metrics", &format!("Host: HOST\r\n{good}"), 200),
        ("/metrics", &format!("Host: HOST\r\nOrigin: http://HOST\r\n{good}"), 200),
        ("/metrics", &format!("Host: HOST\r\nOrigin: http://evil.example\r\n{good}"), 403),
        ("/metrics", &format!("Host: HOST\r\nOrigin: null\r\n{good}"), 403),
        ("/nowhere", "Host: HOST", 401),
        ("/nowhere", &format!("Host: HOST\r\n{good}"), 404),
    ] {
        let (status, answer) = ask(&api, &format!("GET {path} HTTP/1.1\r\n{fields}"), "");
        assert_eq!(status, expected, "{path} {fields}: {answer}");
        assert!(answer.contains("cache-control: no-store"), "{answer}");
        assert!(!answer.contains(TOKEN), "{answer}");
        let is_problem = answer.contains("{\"error\":\"");
        assert_eq!(is_problem, expected != 200, "{answer}");
    }
}

/// A connection whose answers come before an idle connection is closed for its silence.
fn connect(api: &AdminApi) -> TcpStream {
    let stream = TcpStream::connect(api.url().strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

/// Reads up to and with `end`.
fn read_to(stream: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    let mut byte = [0];
    while !read.ends_with(end.as_bytes()) {
        stream.read_exact(&mut byte).unwrap();
        read.push(byte[0]);
    }
    String::from_utf8(read).unwrap()
}

#[test]
fn connections_that_ask_nothing_make_room_for_others() {
    let api = api();
    let idle: Vec<TcpStream> = (0..PLACES).map(|_| connect(&api)).collect();
    let mut stream = connect(&api);
    write!(stream, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(read_to(&mut stream, "alive\n").starts_with("HTTP/1.1 200 "));
    // The oldest one was closed, and no other.
    let is_closed = |mut stream: &TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        matches!(stream.read(&mut [0]), Ok(0))
    };
    idle[0].set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!((&idle[0]).read(&mut [0]).unwrap(), 0);
    assert!(!idle[1..].iter().any(is_closed));
}

#[test]
fn a_connection_whose_request_was_answered_makes_room() {
    let api = api();
    let mut answered: Vec<TcpStream> = (0..PLACES).map(|_| connect(&api)).collect();
    for stream in &mut answered {
        let token = format!("Authorization: Bearer {TOKEN}");
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n{token}\r\n\r\n").unwrap();
        assert!(read_to(stream, "\r\n\r\n").contains("content-length: "));
    }
    let mut stream = connect(&api);
    write!(stream, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(read_to(&mut stream, "alive\n").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_request_with_a_token_is_finished_however_many_others_come() {
    let api = api();
    let mut busy = connect(&api);
    write!(
        busy,
        "PUT /api/v1/log HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
    )
    .unwrap();
    // The API waits for the body now.
    assert!(read_to(&mut busy, "\r\n\r\n").starts_with("HTTP/1.1 100 "));
    let others: Vec<TcpStream> = (0..2 * PLACES).map(|_| connect(&api)).collect();
    let mut health = connect(&api);
    write!(health, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(read_to(&mut health, "alive\n").starts_with("HTTP/1.1 200 "));
    drop(others);
    write!(busy, "{{").unwrap();
    assert!(read_to(&mut busy, "\r\n\r\n").starts_with("HTTP/1.1 400 "));
}

#[test]
fn a_request_has_one_host_that_can_be_read_and_that_its_target_agrees_with() {
    let api = api();
    for (target, fields, expected, why) in [
        ("/healthz", "Host: HOST", 200, ""),
        ("/healthz", "Host: LocalHost:1", 200, ""),
        ("/healthz", "Host: [::1]", 200, ""),
        ("/healthz", "X: y", 400, "no Host"),
        ("http://HOST/healthz", "X: y", 400, "no Host"),
        ("/healthz", "Host: HOST\r\nHost: HOST", 400, "more than one Host"),
        ("/healthz", "Host: HOST\r\nHost: example.com", 400, "more than one Host"),
        ("/healthz", "Host:", 400, "cannot be read"),
        ("/healthz", "Host: 127.0.0.1:", 400, "cannot be read"),
        ("/healthz", "Host: me@127.0.0.1", 400, "cannot be read"),
        ("/healthz", "Host: 127.0.0.1:80:evil.example", 400, "cannot be read"),
        ("/healthz", "Host: 127.0.0.1 evil.example", 400, "cannot be read"),
        ("/healthz", "Host: [::1]evil.example", 400, "cannot be read"),
        ("/healthz", "Host: 127.0.0.1, 127.0.0.1", 400, "cannot be read"),
        ("/healthz", "Host: evil.example", 403, "ask by address"),
        ("http://HOST/healthz", "Host: HOST", 200, ""),
        ("http://LocalHost/healthz", "Host: localhost:80", 200, ""),
        ("http://localhost/healthz", "Host: 127.0.0.1", 400, "differ"),
        ("http://127.0.0.1:1/healthz", "Host: 127.0.0.1:2", 400, "differ"),
        ("http://127.0.0.1/healthz", "Host: evil.example", 400, "differ"),
        ("http://me@127.0.0.1/healthz", "Host: 127.0.0.1", 400, "cannot be read"),
        ("/healthz", "Host: HOST\r\nOrigin: http://HOST", 200, ""),
        ("/healthz", "Host: localhost\r\nOrigin: http://localhost", 200, ""),
        ("/healthz", "Host: HOST\r\nOrigin: https://HOST", 403, "another site"),
        ("/healthz", "Host: HOST\r\nOrigin: http://localhost", 403, "another site"),
        ("/healthz", "Host: HOST\r\nOrigin: null", 403, "another site"),
        (
            "/healthz",
            "Host: HOST\r\nOrigin: http://HOST\r\nOrigin: http://HOST",
            400,
            "more than one Origin",
        ),
        (
            "/healthz",
            "Host: HOST\r\nOrigin: http://HOST http://HOST",
            400,
            "Origin field cannot be read",
        ),
        ("/healthz", "Host: HOST\r\nOrigin: http://HOST/", 400, "Origin field cannot be read"),
        ("/healthz", "Host: HOST\r\nOrigin:", 400, "Origin field cannot be read"),
    ] {
        let (status, answer) = ask(&api, &format!("GET {target} HTTP/1.1\r\n{fields}"), "");
        assert_eq!(status, expected, "{target} {fields}: {answer}");
        assert!(answer.contains(why), "{target} {fields}: {answer}");
    }
}

#[test]
fn what_is_asked_for_wrongly_is_told_in_json() {
    let api = api();
    let long = "x".repeat(70_000);
    for (line, body, expected) in [
        ("GET /api/v1/status", "", 200),
        ("POST /api/v1/status", "", 405),
        ("GET /api/v1/streams?limit=x", "", 400),
        ("GET /api/v1/streams?limit=1", "", 200),
        ("DELETE /api/v1/streams/1/x", "", 404),
        ("DELETE /api/v1/streams/1/2", "", 404),
        ("PUT /api/v1/log", "{", 400),
        ("PUT /api/v1/log", "{\"filter\":1}", 422),
        ("PUT /api/v1/log", "{\"filter\":\"loud\"}", 422),
        ("PUT /api/v1/log", &long, 413),
        ("POST /api/v1/reload", "", 409),
        ("POST /api/v1/enrolments", "{\"name\":\"a\",\"b\":1}", 422),
        ("GET /api/v1/clients", "", 200),
        ("GET /api/v1/clients/home", "", 200),
        ("GET /api/v1/clients/nobody", "", 404),
        ("POST /api/v1/enrolments", "{\"name\":\"a\"}", 409),
        ("POST /api/v1/enrolments", "{\"name\":\"a\",\"renew\":true}", 409),
        ("DELETE /api/v1/enrolments/a", "", 409),
        ("GET /api/v1/config", "", 409),
        ("PATCH /api/v1/config", "[]", 409),
        ("PATCH /api/v1/config", "{\"text\":\"workers: 2\"}", 409),
        ("PATCH /api/v1/config", "{\"text\":2}", 422),
        ("POST /api/v1/config/check", "[]", 409),
        ("POST /api/v1/config/check", "{\"text\":\"\"}", 409),
        ("POST /api/v1/config/check", "{}", 422),
        ("POST /api/v1/config/undo", "", 409),
        ("PATCH /api/v1/config", "{}", 422),
        ("PATCH /api/v1/config", "[{\"op\":\"add\",\"path\":\"/a\"}]", 422),
        ("PATCH /api/v1/lists", "{\"publish\":[\"80\"]}", 409),
        ("PATCH /api/v1/lists", "{\"publish\":80}", 422),
        ("POST /api/v1/clients/home/rights", "{\"name\":\"other\"}", 422),
        ("PATCH /api/v1/clients/home/limits", "{\"streams\":7}", 422),
        ("GET /api/v1/ping", "", 409),
        ("GET /api/v1/ping?timeout_millis=soon", "", 400),
        ("GET /api/v1/nat", "", 409),
        ("DELETE /api/v1/clients/nobody/session", "", 404),
        ("GET /api/v1/events?topics=", "", 400),
        ("GET /api/v1/events?topics=totals,other", "", 400),
        ("GET /api/v1/history?of=service:none", "", 404),
        ("GET /api/v1/history?of=total&step=1&x=2", "", 400),
        ("GET /api/v1/history?step=soon", "", 400),
        ("GET /api/v1/log/lines", "", 200),
        ("GET /api/v1/certificates", "", 200),
        ("GET /api/v1/log/lines?limit=many", "", 400),
        ("POST /api/v1/speedtest", "{\"millis\":1}", 409),
        ("POST /api/v1/connect", "", 400),
        ("POST /api/v1/connect?target=echo:7", "", 426),
        ("GET /status", "", 503),
    ] {
        let (status, answer) = get(&api, line, body);
        assert_eq!(status, expected, "{line}: {answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let json: Value = serde_json::from_str(body).unwrap();
        assert_eq!(json["error"].is_string(), expected != 200, "{line}: {body}");
    }
    let (_, answer) = get(&api, "GET /api/v1/status", "");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(serde_json::from_str::<Status>(body).unwrap(), sample());
}

#[test]
fn clients_are_listed_with_what_is_known_of_them() {
    let api = api();
    let json = |line: &str| -> Value {
        let (_, answer) = get(&api, line, "");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let (all, home) = (json("GET /api/v1/clients"), json("GET /api/v1/clients/home"));
    assert_eq!((&all["uptime_seconds"], &all["list"][0]["name"]), (&5.into(), &"home".into()));
    for client in [&all["list"][0], &home] {
        assert_eq!((&client["from"], &client["away_seconds"]), (&"enrolled".into(), &7.into()));
        assert!(client.get("refused").is_none(), "{client}");
    }
    assert!(home["limits"]["streams"].is_null() && home["sessions"].is_array(), "{home}");
}

#[test]
fn a_client_gets_rights_and_limits_by_its_path() {
    let api = api();
    for (line, body, part) in [
        ("POST /api/v1/clients/home/rights", r#"{"allow_tcp":["7"]}"#, r#""tcp":["7"]"#),
        ("POST /api/v1/clients/home/rights", r#"{"allow_shared":true}"#, r#""shared":true"#),
        ("DELETE /api/v1/clients/home/rights", r#"{"allow_shared":true}"#, r#""shared":true"#),
        ("PATCH /api/v1/clients/home/limits", r#"{"streams":"9"}"#, r#""streams":9"#),
    ] {
        let (status, answer) = get(&api, line, body);
        assert!(status == 200 && answer.contains(part), "{line}: {answer}");
    }
}

#[test]
fn a_daemon_is_stopped_by_a_request() {
    let token = Token { secret: Secret::new(TOKEN), file: None };
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let life = Life::new();
    let (hosts, origin) = (Vec::new(), None);
    let settings = Admin { listen, token, read_token: None, hosts, origin };
    let api = AdminApi::start(&settings, Arc::new(Fixed), life.clone()).unwrap();
    let (status, answer) = get(&api, "POST /api/v1/stop", "");
    assert!(status == 202 && answer.contains(&std::process::id().to_string()), "{answer}");
    assert_eq!(life.phase(), Phase::Draining);
    assert_eq!(get(&api, "POST /api/v1/stop?now=maybe", "").0, 400);
    assert_eq!(life.phase(), Phase::Draining);
    assert_eq!(get(&api, "POST /api/v1/stop", "").0, 202);
    assert_eq!(life.phase(), Phase::Ending);
}

#[test]
fn a_request_becomes_the_stream_to_a_target_or_has_the_reason() {
    let api = api();
    let connect = |target: &str| {
        let mut stream = connect(&api);
        write!(
            stream,
            "POST /api/v1/connect?target={target} HTTP/1.1\r\nHost: localhost\r\n\
             Authorization: Bearer {TOKEN}\r\nConnection: upgrade\r\nUpgrade: tunnel\r\n\r\n"
        )
        .unwrap();
        let head = read_to(&mut stream, "\r\n\r\n");
        (stream, head)
    };
    for (target, status) in [("other:7", "409 "), ("udp://echo:7", "422 ")] {
        let (_, head) = connect(target);
        assert!(head.contains(status), "{target}: {head}");
    }
    let (mut stream, head) = connect("echo:7");
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("upgrade: tunnel"), "{head}");
    stream.write_all(b"world").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut read = String::new();
    stream.read_to_string(&mut read).unwrap();
    assert_eq!(read, "hello world", "no byte is lost at the hand-over");
}

/// Reads a chunk of a body (RFC 9112 section 7.1) as JSON: a line of the stream.
fn read_line(stream: &mut TcpStream) -> Value {
    let length = usize::from_str_radix(read_to(stream, "\r\n").trim(), 16).unwrap();
    let mut chunk = vec![0; length + 2];
    stream.read_exact(&mut chunk).unwrap();
    assert!(chunk.ends_with(b"\n\r\n"), "a chunk is a line");
    serde_json::from_slice(&chunk).unwrap()
}

/// Asks for lines, and reads the head of the answer.
fn watch(api: &AdminApi, topics: &str) -> (TcpStream, String) {
    let mut stream = connect(api);
    write!(
        stream,
        "GET /api/v1/events?topics={topics} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \
         {TOKEN}\r\n\r\n"
    )
    .unwrap();
    let head = read_to(&mut stream, "\r\n\r\n");
    (stream, head)
}

#[test]
fn a_viewer_gets_a_line_for_each_topic_with_the_figures_of_the_daemon() {
    let api = api();
    let (mut stream, head) = watch(&api, "totals,services,clients,streams:5,log");
    assert!(head.contains("application/x-ndjson") && head.contains("no-store"), "{head}");
    let lines: Vec<Value> = (0..5).map(|_| read_line(&mut stream)).collect();
    let topics: Vec<_> = lines.iter().map(|line| line["topic"].as_str().unwrap()).collect();
    assert_eq!(topics, ["totals", "services", "clients", "streams", "log"]);
    assert!(lines.iter().all(|line| line["unix_millis"].as_u64() > Some(1_700_000_000_000)));
    let [totals, services, clients, streams, log] = &lines[..] else { panic!("five lines") };
    assert_eq!((&totals["bytes_in"], &totals["bytes_out"]), (&7.into(), &9.into()));
    assert_eq!((&totals["state"], &totals["peers"]), (&"running".into(), &1.into()));
    assert!(totals["in_bytes_per_second"] == 0 && totals["memory_budget_bytes"].is_u64());
    let status = sample();
    let all = status.sessions.iter().flat_map(|one| one.services.iter().chain(&one.forwards));
    let others = status.proxies.len() + status.default_targets.len();
    assert_eq!(services["total"], all.count() + others);
    let service = &services["list"][0];
    assert!(service["kind"].is_string() && service["peer"].is_string(), "{service}");
    assert!(service["state_text"].is_string() && service["out_bytes_per_second"].is_u64());
    assert_eq!((&clients["total"], &clients["list"][0]["name"]), (&1.into(), &"home".into()));
    assert_eq!(clients["list"][0]["state"], "never_seen", "{clients}");
    assert_eq!((&streams["total"], &streams["list"]), (&0.into(), &Value::Array(Vec::new())));
    // A name or a line of a peer is a text of JSON, and nothing else.
    assert_eq!(log["lines"][2]["text"], "<b>3");
    // The next second has no line of the log, because none was added.
    let next: Vec<_> = (0..5).map(|_| read_line(&mut stream)["topic"].clone()).collect();
    assert_eq!(next[4], "totals", "{next:?}");
}

#[test]
fn a_viewer_of_changes_gets_whole_lists_first_and_then_what_has_changed() {
    let api = api();
    let (mut stream, _) = watch(&api, "services,clients,needs,busiest,streams:5&changes=true");
    let lines: Vec<Value> = (0..5).map(|_| read_line(&mut stream)).collect();
    let topics: Vec<_> = lines.iter().map(|line| line["topic"].as_str().unwrap()).collect();
    assert_eq!(topics, ["services", "clients", "needs", "busiest", "streams"]);
    for list in [&lines[0], &lines[1], &lines[4]] {
        assert!(list["whole"] == true && list.get("after").is_none(), "{list}");
        assert_eq!(list["list"].as_array().unwrap().len(), list["total"]);
    }
    assert!(lines[0]["list"].as_array().unwrap().iter().all(|row| row["id"].is_string()));
    let is_troubled = |row: &&Value| {
        ["refused", "denied", "target_down"].iter().any(|state| row["state"] == *state)
    };
    let troubled = lines[0]["list"].as_array().unwrap().iter().filter(is_troubled).count();
    assert_eq!(lines[2]["troubled_services_total"], troubled);
    assert_eq!(lines[2]["troubled_services"].as_array().unwrap().len(), troubled);
    // The status is a fixed one: the next lines have no row, and `needs` has no news.
    let next: Vec<Value> = (0..4).map(|_| read_line(&mut stream)).collect();
    let topics: Vec<_> = next.iter().map(|line| line["topic"].as_str().unwrap()).collect();
    assert_eq!(topics, ["services", "clients", "busiest", "streams"]);
    for (list, before) in [(&next[0], &lines[0]), (&next[1], &lines[1]), (&next[3], &lines[4])] {
        assert_eq!((&list["whole"], &list["list"]), (&false.into(), &Value::Array(Vec::new())));
        assert_eq!((&list["after"], &list["total"]), (&before["revision"], &before["total"]));
        assert!(list["revision"].as_u64() > before["revision"].as_u64(), "{list}");
    }
    let (status, answer) = get(&api, "GET /api/v1/events?topics=totals&changes=yes", "");
    assert_eq!(status, 400, "{answer}");
}

#[test]
fn viewers_with_other_topics_and_of_whole_lists_share_a_look() {
    let api = api();
    let (mut whole, _) = watch(&api, "totals,services");
    let (mut changes, _) = watch(&api, "clients&changes=true");
    for second in 0..3 {
        let [totals, services] = [read_line(&mut whole), read_line(&mut whole)];
        assert_eq!((&totals["topic"], &services["topic"]), (&"totals".into(), &"services".into()));
        assert_eq!(services["list"].as_array().unwrap().len(), services["total"], "each time");
        assert!(services.get("whole").is_none() && services.get("revision").is_none());
        let clients = read_line(&mut changes);
        assert_eq!(clients["whole"], second == 0);
        assert_eq!(clients["list"].as_array().unwrap().len(), usize::from(second == 0));
    }
}

#[test]
fn eight_viewers_look_at_a_time_and_the_past_has_the_total() {
    let api = api();
    let mut all: Vec<_> = (0..8).map(|_| watch(&api, "totals")).collect();
    assert!(all.iter().all(|(_, head)| head.starts_with("HTTP/1.1 200 ")));
    assert!(watch(&api, "totals").1.starts_with("HTTP/1.1 503 "));
    // Two figures are a second apart, so the past has one rate by then.
    for _ in 0..3 {
        read_line(&mut all[0].0);
    }
    drop(all);
    let (status, answer) = get(&api, "GET /api/v1/history?of=total&step=1", "");
    assert_eq!(status, 200, "{answer}");
    let past: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let [series] = &past["series"].as_array().unwrap()[..] else { panic!("{past}") };
    assert!(series["step_seconds"] == 1 && series["in"][0] == 0.0, "{series}");
    let (_, answer) = get(&api, "GET /api/v1/history", "");
    assert!(answer.contains("\"total\""), "{answer}");
}

/// Method and path of every route, with a name in place of each segment that has one.
fn routes(api: &AdminApi) -> Vec<(String, String)> {
    let (_, answer) = get(api, "GET /api/v1/openapi.json", "");
    let document: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let each = paths.iter().flat_map(|(path, operations)| {
        let path = path.replace("{link}", "1").replace("{stream}", "2").replace("{name}", "a");
        let path = path.replace("{id}", "7");
        let path = path.replace("{path}", "none.js");
        let methods = operations.as_object().unwrap().keys();
        methods.map(move |method| (method.to_uppercase(), path.clone()))
    });
    each.collect()
}

/// The rows of attacks that need no browser, against every route.
#[test]
fn no_route_answers_another_site_or_a_name_or_somebody_without_a_token() {
    let api = api();
    let token = format!("Authorization: Bearer {TOKEN}");
    let json = "Content-Type: application/json";
    let all = routes(&api);
    assert!(all.len() > 30, "{all:?}");
    for (method, path) in all {
        let is_page = path == "/" || path.starts_with("/console/");
        let is_open = is_page || path == "/healthz" || path == "/readyz";
        for (fields, expected) in [
            // Rebinding of DNS: the name of another site leads to this machine.
            (format!("Host: rebound.example\r\n{token}"), 403),
            (format!("Host: rebound.example:7070\r\n{token}"), 403),
            // A page of another site, of another port, and a page whose origin is hidden.
            (format!("Host: HOST\r\nOrigin: http://evil.example\r\n{token}"), 403),
            (format!("Host: HOST\r\nOrigin: http://127.0.0.1:1\r\n{token}"), 403),
            (format!("Host: HOST\r\nOrigin: null\r\n{token}"), 403),
            (format!("Host: HOST\r\nSec-Fetch-Site: cross-site\r\n{token}"), 403),
            (format!("Host: HOST\r\nSec-Fetch-Site: same-site\r\n{token}"), 403),
            // Nothing that a browser adds by itself lets a request in.
            ("Host: HOST".to_owned(), 401),
            (format!("Host: HOST\r\nCookie: token={TOKEN}"), 401),
            ("Host: HOST\r\nAuthorization: Basic YWRtaW46YWRtaW4=".to_owned(), 401),
            (format!("Host: HOST\r\nX-Api-Key: {TOKEN}"), 401),
            // Two programs could read another one of two fields each.
            (format!("Host: HOST\r\n{token}\r\nAuthorization: Bearer x"), 401),
            // An upgrade leads past no check.
            (
                "Host: HOST\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
                 HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"
                    .to_owned(),
                401,
            ),
        ] {
            let head = format!("{method} {path} HTTP/1.1\r\n{fields}\r\n{json}");
            let (status, answer) = ask(&api, &head, "");
            let expected = if expected == 401 && is_open { vec![200, 404] } else { vec![expected] };
            // A daemon without a link is not ready.
            let is_expected = expected.contains(&status) || path == "/readyz" && status == 503;
            assert!(is_expected, "{method} {path} {fields}: {answer}");
            assert!(!answer.contains(TOKEN) && !answer.to_lowercase().contains("set-cookie"));
            assert!(answer.contains("content-security-policy: default-src 'none';"), "{answer}");
            assert!(answer.contains("cross-origin-resource-policy: same-origin"), "{answer}");
        }
    }
}

#[test]
fn the_page_may_be_opened_by_a_link_of_another_site_and_by_nothing_else() {
    let api = api();
    for (path, fields, expected) in [
        ("/", "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document", 200),
        ("/", "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe", 403),
        ("/", "Sec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script", 403),
        ("/", "X: y", 403),
        ("/healthz", "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document", 403),
        ("/api/v1/status", "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document", 403),
    ] {
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: HOST\r\nSec-Fetch-Site: cross-site\r\n{fields}");
        assert_eq!(ask(&api, &head, "").0, expected, "{path} {fields}");
    }
}

#[test]
fn the_files_of_the_console_have_their_types_tags_and_protection() {
    let api = api();
    let (status, page) = ask(&api, "GET / HTTP/1.1\r\nHost: HOST", "");
    assert!(status == 200 && page.contains("content-type: text/html; charset=utf-8"), "{page}");
    for field in [
        "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src \
         'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors \
         'none'; require-trusted-types-for 'script'; trusted-types 'none'\r\n",
        "referrer-policy: no-referrer\r\n",
        "cross-origin-opener-policy: same-origin\r\n",
        "cross-origin-resource-policy: same-origin\r\n",
        "x-content-type-options: nosniff\r\n",
        "cache-control: no-cache\r\n",
    ] {
        assert!(page.contains(field), "{field}: {page}");
    }
    let tag = page.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let again = format!("GET / HTTP/1.1\r\nHost: HOST\r\nIf-None-Match: {tag}");
    let (status, answer) = ask(&api, &again, "");
    assert!(status == 304 && !answer.contains("<html"), "{answer}");
    for path in ["/console/", "/console/none.js", "/console/index.html", "/console/../Cargo.toml"] {
        assert_eq!(ask(&api, &format!("GET {path} HTTP/1.1\r\nHost: HOST"), "").0, 404, "{path}");
    }
    assert_eq!(ask(&api, "POST / HTTP/1.1\r\nHost: HOST", "").0, 401);
}

#[test]
fn behind_a_reverse_proxy_the_configured_names_and_origin_are_ours() {
    let token = Token { secret: Secret::new(TOKEN), file: None };
    let hosts = vec!["Console.example.com".parse().unwrap()];
    let origin = Some("https://console.example.com".parse().unwrap());
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = Admin { listen, token, read_token: None, hosts, origin };
    let api = AdminApi::start(&settings, Arc::new(Fixed), Life::new()).unwrap();
    let far = "Origin: https://console.example.com";
    for (fields, expected) in [
        (format!("Host: console.example.com\r\n{far}"), 200),
        (format!("Host: CONSOLE.example.com:8443\r\n{far}\r\nSec-Fetch-Site: same-origin"), 200),
        (format!("Host: HOST\r\n{far}"), 200),
        ("Host: HOST\r\nOrigin: https://console.example.com:443".to_owned(), 200),
        ("Host: HOST\r\nOrigin: http://HOST".to_owned(), 200),
        ("Host: console.example.com\r\nOrigin: http://console.example.com".to_owned(), 200),
        ("Host: HOST\r\nOrigin: http://console.example.com".to_owned(), 403),
        ("Host: HOST\r\nOrigin: https://console.example.com:8443".to_owned(), 403),
        ("Host: HOST\r\nOrigin: https://evil.console.example.com".to_owned(), 403),
        ("Host: evil.console.example.com".to_owned(), 403),
        (format!("Host: example.com\r\n{far}"), 403),
        (format!("Host: console.example.com\r\n{far}\r\nSec-Fetch-Site: cross-site"), 403),
    ] {
        let head = format!("GET /healthz HTTP/1.1\r\n{fields}");
        assert_eq!(ask(&api, &head, "").0, expected, "{fields}");
    }
}

#[test]
fn a_link_lets_one_page_in_and_its_session_does_what_the_token_does() {
    let api = api();
    let with = |token: &str, line: &str| {
        let head = format!("{line} HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer {token}");
        let (status, answer) = ask(&api, &head, "");
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        (status, serde_json::from_str::<Value>(body).unwrap_or_default())
    };
    let link = api.console().link().unwrap();
    let (place, key) = link.url.split_once("/#k=").unwrap();
    assert!(place == api.url() && link.valid_seconds == 60, "{place}");
    assert_eq!(with(key, "GET /api/v1/status").0, 401, "a key is good for a session alone");
    let (status, begun) = with(key, "POST /api/v1/sessions");
    assert_eq!(status, 201);
    assert_eq!(with(key, "POST /api/v1/sessions").0, 401, "it was used");
    let token = begun["token"].as_str().unwrap();
    assert!(token.len() >= 22 && token != key, "at least 128 bits");
    assert_eq!(begun["expires_seconds"], 43_200);
    assert_eq!(with(token, "GET /api/v1/status").0, 200);
    assert_eq!(with(token, "POST /api/v1/reload").0, 409, "it may change things");
    assert_eq!(with(token, "POST /api/v1/sessions").0, 403, "a session makes no other");
    assert_eq!(with(READER, "POST /api/v1/sessions").0, 403);
    let (_, other) = with(TOKEN, "POST /api/v1/sessions");
    let (status, all) = with(READER, "GET /api/v1/sessions");
    let texts = all.to_string();
    assert!(status == 200 && !texts.contains(token) && !texts.contains(key), "{texts}");
    let list = all["sessions"].as_array().unwrap();
    assert_eq!(list.len(), 2);
    assert_eq!((&list[0]["by"], &list[1]["by"]), (&"link".into(), &"token".into()));
    assert!(list[0]["from"] == "127.0.0.1" && list.iter().all(|one| one.get("own").is_none()));
    assert_eq!(with(token, "GET /api/v1/sessions").1["sessions"][0]["own"], true);
    // It ends itself, and another one by its id.
    let id = other["id"].as_str().unwrap();
    assert_eq!(with(TOKEN, "DELETE /api/v1/sessions").0, 404);
    assert_eq!(with(token, &format!("DELETE /api/v1/sessions/{id}")).0, 204);
    assert_eq!(with(token, &format!("DELETE /api/v1/sessions/{id}")).0, 404);
    assert_eq!(with(other["token"].as_str().unwrap(), "GET /api/v1/status").0, 401);
    assert_eq!(with(token, "DELETE /api/v1/sessions").0, 204);
    assert_eq!(with(token, "GET /api/v1/status").0, 401);
}

#[test]
fn requests_of_visitors_need_the_right_to_change_and_secrets_the_word_for_them() {
    let api = api();
    let with = |token: &str, line: &str| {
        let head = format!("{line} HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer {token}");
        ask(&api, &head, "")
    };
    for line in [
        "GET /api/v1/requests",
        "GET /api/v1/requests/7",
        "GET /api/v1/requests/7?secrets=1",
        "POST /api/v1/requests/7/replay",
        "GET /api/v1/events?topics=totals,requests",
    ] {
        let (status, answer) = with(READER, line);
        assert!(status == 403 && !answer.contains("<script>"), "{line}: {answer}");
    }
    for (line, expected, has_secret) in [
        ("GET /api/v1/requests", 200, false),
        ("GET /api/v1/requests?status=4xx&since=6&path=SCRIPT", 200, false),
        ("GET /api/v1/requests?status=4", 400, false),
        ("GET /api/v1/requests?status=9xx", 400, false),
        ("GET /api/v1/requests?since=x", 400, false),
        ("GET /api/v1/requests/7", 200, false),
        ("GET /api/v1/requests/7?secrets=0", 200, false),
        ("GET /api/v1/requests/7?secrets=1", 200, true),
        ("GET /api/v1/requests/7?secrets=yes", 400, false),
        ("GET /api/v1/requests/8", 404, false),
        ("GET /api/v1/requests/x", 404, false),
        ("POST /api/v1/requests/7/replay", 200, false),
        ("POST /api/v1/requests/8/replay", 404, false),
    ] {
        let (status, answer) = with(TOKEN, line);
        assert_eq!(status, expected, "{line}: {answer}");
        assert_eq!(answer.contains(VISITOR_SECRET), has_secret, "{line}: {answer}");
    }
    let (_, none) = with(TOKEN, "GET /api/v1/requests?method=PUT");
    assert!(none.contains("\"requests\":[]"), "{none}");
}

/// The OpenAPI document and the routes agree.
#[test]
fn every_path_of_the_document_is_served_and_with_its_methods_only() {
    let api = api();
    let (_, answer) = get(&api, "GET /api/v1/openapi.json", "");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let document: Value = serde_json::from_str(body).unwrap();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 10);
    for (path, operations) in paths {
        let path = path.replace("{link}", "1").replace("{stream}", "2").replace("{name}", "a");
        let path = path.replace("{id}", "7");
        for method in ["get", "put", "post", "patch", "delete"] {
            let (status, answer) = get(&api, &format!("{} {path}", method.to_uppercase()), "");
            let is_told = operations.get(method).is_some();
            assert_eq!(status != 405, is_told, "{method} {path}: {answer}");
            if is_told {
                let responses = operations[method]["responses"].as_object().unwrap();
                assert!(responses.contains_key(&status.to_string()), "{method} {path}: {answer}");
            }
        }
    }
}

#[test]
fn its_port_is_free_when_it_has_ended_and_a_taken_one_is_named() {
    let first = api();
    let at: SocketAddr = first.url().strip_prefix("http://").unwrap().parse().unwrap();
    let settings = || {
        let token = Token { secret: Secret::new(TOKEN), file: None };
        Admin { listen: at, token, read_token: None, hosts: Vec::new(), origin: None }
    };
    let error = AdminApi::start(&settings(), Arc::new(Fixed), Life::new()).unwrap_err();
    assert!(format!("{error:#}").contains(&at.to_string()), "{error:#}");
    drop(first);
    AdminApi::start(&settings(), Arc::new(Fixed), Life::new()).unwrap();
}

#[test]
fn a_wrong_body_is_answered_with_what_is_right() {
    let api = api();
    let ask = |line: &str, kind: &str, body: &str| {
        let head = format!("{line} HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer {TOKEN}{kind}");
        let (status, answer) = ask(&api, &head, body);
        let (_, json) = answer.split_once("\r\n\r\n").unwrap();
        let json: Value = serde_json::from_str(json).unwrap();
        (status, json["error"].as_str().unwrap().to_owned())
    };
    let json = "\r\nContent-Type: application/json";
    let patch = r#"the body must be a JSON Patch (RFC 6902): a list such as [{"op":"replace","path":"/log/level","value":"debug"}]"#;
    let log = r#"the body must be an object such as {"filter":"debug"}"#;
    let enrolment =
        r#"the body must be an object such as {"name":"office","allow_tcp":["10000-10100"]}"#;
    let (config, level, enrol) =
        ("PATCH /api/v1/config", "PUT /api/v1/log", "POST /api/v1/enrolments");
    let kind = "the header field `Content-Type: application/json` is missing";
    let empty = "the body is empty";
    for (line, must) in [(config, patch), (level, log), (enrol, enrolment)] {
        let other = "\r\nContent-Type: text/plain";
        for field in ["", other, "\r\nContent-Type: application/x-www-form-urlencoded"] {
            assert_eq!(ask(line, field, "[]"), (415, format!("{kind}; {must}")), "{line} {field}");
        }
        assert_eq!(ask(line, json, ""), (400, format!("{empty}; {must}")));
        let bad = "the body is not JSON from line 1, column 2 on";
        assert_eq!(ask(line, json, "{op: 1}"), (400, format!("{bad}; {must}")));
        assert_eq!(ask(line, json, "\"x\""), (422, must.to_owned()));
        let most = if line == config { 2 << 20 } else { 64 << 10 };
        let long = format!("the body is longer than {} KiB; send the change in parts", most >> 10);
        assert_eq!(ask(line, json, &" ".repeat(most + 1)), (413, long));
    }
    let extended = "\r\nContent-Type: application/json-patch+json; charset=utf-8";
    let why = "an object without a list around it";
    assert_eq!(ask(config, extended, "{}"), (422, format!("{why}; {patch}")));
    for (line, body, why, must) in [
        (level, "{}", "`filter` is missing", log),
        (level, r#"{"level":"debug"}"#, "unknown key `level`", log),
        (level, r#"{"filter":1}"#, "a wrong value at line 1, column 11", log),
        (level, r#"{"filter":"a","filter":"b"}"#, "a wrong value at line 1, column 22", log),
        (enrol, "{}", "`name` is missing", enrolment),
        (enrol, r#"{"name":"a","tcp":["1"]}"#, "unknown key `tcp`", enrolment),
        (enrol, r#"{"name":"a","allow_tcp":"1"}"#, "a wrong value at line 1, column 27", enrolment),
    ] {
        assert_eq!(ask(line, json, body), (422, format!("{why}; {must}")), "{body}");
    }
    let (status, said) = ask("GET /api/v1/streams?limit=many", json, "");
    assert_eq!(status, 400);
    assert!(said.ends_with("where limit is a number"), "{said}");
    assert_eq!(ask("DELETE /api/v1/streams/%ff/1", json, "").0, 404);
    for (number, why) in [
        ("3/17", "(any more)"),
        ("3/u17", "(any more)"),
        ("3/x17", "two numbers name one, with a `u` before that of a flow"),
        ("3/u4294967296", "two numbers name one"),
    ] {
        let (status, said) = ask(&format!("DELETE /api/v1/streams/{number}"), json, "");
        assert!(status == 404 && said.contains(why), "{number}: {said}");
    }
    assert_eq!(ask("DELETE /api/v1/enrolments/%ff", json, "").0, 404);
    // `ask` reads the answer in the one form of errors.
    for (line, status) in [
        ("GET /api/v1/clients/%ff", 404),
        ("GET /api/v1/clients/%C3%28", 404),
        ("GET /api/v1/clients/", 404),
        ("GET /api/v1/clients/a/b", 404),
        ("PUT /api/v1/clients/%ff", 405),
        ("GET /api/v1/streams/%ff/%ff", 405),
        ("GET /api/v1/enrolments/%ff", 405),
        ("GET /api/v1/streams?limit=%ff", 400),
        ("GET /api/v1/%ff", 404),
        ("GET /%ff/%2e%2e/%00", 404),
        ("BREW /api/v1/status", 405),
        ("OPTIONS /api/v1/config", 405),
    ] {
        let (found, said) = ask(line, json, "");
        assert!(found == status && !said.is_empty(), "{line}: {found} {said}");
    }
}

#[test]
fn each_state_of_an_answer_has_its_text_beside_it() {
    let api = api();
    for line in ["GET /api/v1/status", "GET /api/v1/clients", "GET /api/v1/clients/home"] {
        let (_, answer) = get(&api, line, "");
        let mut rest =
            vec![serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()];
        let mut states = 0;
        while let Some(value) = rest.pop() {
            match value {
                Value::Object(object) => {
                    states += usize::from(object.contains_key("state"));
                    assert_eq!(object.contains_key("state"), object.contains_key("state_text"));
                    rest.extend(object.into_iter().map(|(_, value)| value));
                }
                Value::Array(list) => rest.extend(list),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        assert!(states > 0, "{line}: {answer}");
    }
}

//! Tests of the API over real connections. The end-to-end tests cover answers of a real daemon.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use config::{Admin, Secret, Token};
use ops::status::{Status, sample};
use ops::{Daemon, SendFuture};

use super::AdminApi;

const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

/// The token that only reads.
const READER: &str = "Zr5Tn8Qw1Ey6Ui3Op0AsdfGh3JeUi9Kw";

struct Fixed;

impl Daemon for Fixed {
    fn status(&self) -> SendFuture<'_, Status> {
        Box::pin(async { sample() })
    }
}

fn api() -> AdminApi {
    let token = Token { secret: Secret::new(TOKEN), file: None };
    let read_token = Some(Token { secret: Secret::new(READER), file: None });
    let settings = Admin { listen: SocketAddr::from(([127, 0, 0, 1], 0)), token, read_token };
    AdminApi::start(&settings, Arc::new(Fixed)).unwrap()
}

fn ask(api: &AdminApi, head: &str, body: &str) -> (u16, String) {
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
fn get(api: &AdminApi, line: &str, body: &str) -> (u16, String) {
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
        ("POST /api/v1/enrolments", "{\"name\":\"a\"}", 409),
        ("DELETE /api/v1/enrolments/a", "", 409),
        ("GET /api/v1/config", "", 409),
        ("PATCH /api/v1/config", "[]", 409),
        ("PATCH /api/v1/config", "{}", 422),
        ("PATCH /api/v1/config", "[{\"op\":\"add\",\"path\":\"/a\"}]", 422),
        ("GET /status", "", 503),
    ] {
        let (status, answer) = get(&api, line, body);
        assert_eq!(status, expected, "{line}: {answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let json: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(json["error"].is_string(), expected != 200, "{line}: {body}");
    }
    let (_, answer) = get(&api, "GET /api/v1/status", "");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(serde_json::from_str::<Status>(body).unwrap(), sample());
}

/// The OpenAPI document and the routes agree.
#[test]
fn every_path_of_the_document_is_served_and_with_its_methods_only() {
    let api = api();
    let (_, answer) = get(&api, "GET /api/v1/openapi.json", "");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let document: serde_json::Value = serde_json::from_str(body).unwrap();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 10);
    for (path, operations) in paths {
        let path = path.replace("{link}", "1").replace("{stream}", "2").replace("{name}", "a");
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
        Admin { listen: at, token, read_token: None }
    };
    let error = AdminApi::start(&settings(), Arc::new(Fixed)).unwrap_err();
    assert!(format!("{error:#}").contains(&at.to_string()), "{error:#}");
    drop(first);
    AdminApi::start(&settings(), Arc::new(Fixed)).unwrap();
}

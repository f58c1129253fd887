//! Every command of the control socket over the admin API, and what changes as events.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::{Value, json};

use crate::admin::{Api, TOKEN, started};
use crate::harness::{Origin, SOON, Scheme, Setup, binary, free_port};

/// A connection on which a request with the full token was sent.
fn request(api: &Api, head: &str, fields: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", api.0)).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let head = format!(
        "{head} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n{fields}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    BufReader::new(stream)
}

/// The head of an answer.
fn head(from: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(from.read_line(&mut head).unwrap() > 0, "{head}");
    }
    head
}

#[test]
fn what_the_control_socket_does_the_api_does() {
    let origin = Origin::echo();
    let (mut running, server, client) =
        started(Setup::new(Scheme::TLS).service("echo", origin.port()));
    running.wait_echo(running.public("echo"));

    let ping = client.get("/api/v1/ping");
    assert_eq!(ping["links"][0]["peer"], "127.0.0.1", "{ping}");
    let (status, speed) = client.send("POST", "/api/v1/speedtest", &json!({ "millis": 50 }));
    assert!(status == 200 && speed["up"]["bytes"].as_u64() > Some(0), "{speed}");

    // A service is tested where its target is dialled; a server asks the client.
    for (api, client) in [(&client, Value::Null), (&server, json!("home"))] {
        let (status, tested) = api.send("POST", "/api/v1/services/echo/test", &Value::Null);
        assert_eq!((status, &tested["ok"], &tested["client"]), (200, &json!(true), &client));
        assert_eq!(tested["link_micros"].as_u64() > Some(0), !client.is_null(), "{tested}");
        let target = &tested["targets"][0];
        assert_eq!(target["steps"][0]["step"], "connect", "{tested}");
        let found = target["steps"][0]["found"].as_str().unwrap();
        assert!(found.ends_with(&format!("127.0.0.1:{}", origin.port())), "{tested}");
        let (status, why) = api.send("POST", "/api/v1/services/nothing/test", &Value::Null);
        assert!(status == 409 && why["error"].to_string().contains("nothing"), "{why}");
    }
    let (status, why) =
        server.send("POST", "/api/v1/services/echo/test?client=other", &Value::Null);
    assert_eq!(status, 409, "{why}");

    // Targets are drained where they are dialled.
    for (off, state) in [(false, "draining"), (true, "up")] {
        let order = json!({ "name": "echo", "off": off });
        let (status, drained) = client.send("POST", "/api/v1/drain", &order);
        assert!(status == 200 && drained["targets"][0]["draining"] == !off, "{drained}");
        let now = client.get("/api/v1/status");
        assert_eq!(now["sessions"][0]["services"][0]["state"], state, "{now}");
        let (status, why) = server.send("POST", "/api/v1/drain", &order);
        assert!(status == 409 && why["error"].to_string().contains("tunnel proxy"), "{why}");
    }

    let (status, limits) =
        server.send("PATCH", "/api/v1/clients/home/limits", &json!({ "streams": "77" }));
    assert!(status == 200 && limits["streams"] == 77, "{limits}");
    let forward = format!("127.0.0.1:{}", origin.port());
    let rights = json!({ "allow_forward": [forward] });
    let (status, rights) = server.send("POST", "/api/v1/clients/home/rights", &rights);
    let given = rights["forward"][0].as_str().unwrap_or_default();
    assert!(status == 200 && given.ends_with(&format!(":{}", origin.port())), "{rights}");

    let port = free_port();
    let (status, body) = client.send(
        "PATCH",
        "/api/v1/lists",
        &json!({ "forward": [format!("{port}={forward}")], "save": true }),
    );
    assert_eq!(status, 200, "{body}");
    running.wait_echo(port);

    let mut stream = request(
        &client,
        &format!("POST /api/v1/connect?target={forward}"),
        "Connection: upgrade\r\nUpgrade: tunnel\r\n",
    );
    assert!(head(&mut stream).starts_with("HTTP/1.1 101 "));
    stream.get_ref().write_all(b"through the tunnel").unwrap();
    stream.get_ref().shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "through the tunnel");

    // A command of the other role is refused with the reason.
    for (api, method, path) in [
        (&server, "PATCH", "/api/v1/lists"),
        (&client, "PATCH", "/api/v1/clients/home/limits"),
        (&server, "POST", "/api/v1/speedtest"),
    ] {
        let body = if path.ends_with("speedtest") { json!({ "millis": 1 }) } else { json!({}) };
        let (status, why) = api.send(method, path, &body);
        assert!(status == 409 && why["error"].as_str().unwrap().contains("this is a"), "{why}");
    }

    assert_eq!(client.send("POST", "/api/v1/stop", &Value::Null).0, 202);
    assert!(running.client().wait_end(SOON).success());
}

/// `tunnel events` of a daemon.
struct Watched(Child, Receiver<Value>);

impl Watched {
    fn start(socket: &std::path::Path) -> Self {
        let mut command = Command::new(binary());
        command.args(["events", "--control"]).arg(socket).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, events) = channel();
        thread::spawn(move || {
            for line in lines {
                let _ = sender.send(serde_json::from_str(&line.unwrap()).unwrap());
            }
        });
        Self(child, events)
    }

    /// Waits for an event with these fields.
    fn wait(&self, fields: &[(&str, &str)]) {
        loop {
            let event = self.1.recv_timeout(SOON).unwrap_or_else(|_| panic!("{fields:?}"));
            assert!(event["unix_millis"].as_u64() > Some(0), "{event}");
            if fields.iter().all(|(key, text)| event[key] == *text) {
                return;
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn links_services_clients_and_refusals_are_events_of_socket_and_api() {
    let origin = Origin::echo();
    let (mut running, server, _) = started(Setup::new(Scheme::TLS).service("echo", origin.port()));
    running.wait_echo(running.public("echo"));
    let mut stream = request(&server, "GET /api/v1/events", "");
    assert!(head(&mut stream).contains("content-type: text/event-stream"));
    let watched =
        ["server", "client"].map(|role| Watched::start(&running.file(&format!("{role}.sock"))));
    // Both listen once they are told of a change that comes again and again.
    let limits = |n: u32| {
        let order = json!({ "streams": n.to_string() });
        assert_eq!(server.send("PATCH", "/api/v1/clients/home/limits", &order).0, 200);
    };
    for n in 100.. {
        limits(n);
        if watched[0].1.recv_timeout(std::time::Duration::from_millis(100)).is_ok() {
            break;
        }
    }
    running.client().kill();
    running.client().wait_end(SOON);
    running.start_client();
    running.wait_echo(running.public("echo"));
    for fields in [
        &[("kind", "link"), ("peer", "home"), ("state", "up")][..],
        &[("kind", "service"), ("service", "echo"), ("state", "published")],
    ] {
        watched[0].wait(fields);
    }
    // The stream of the API has the same.
    let mut text = String::new();
    while !(text.contains("event: client\ndata: {") && text.contains("\"state\":\"published\"")) {
        assert!(stream.read_line(&mut text).unwrap() > 0, "{text}");
        text.retain(|c| c != '\r');
    }
    assert!(text.contains("event: link\ndata: {\"unix_millis\":"), "{text}");
}

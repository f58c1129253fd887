//! The admin API as users call it with curl, and a daemon of a client whose server is missing.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::stage::{Daemon, Running};

use crate::harness::{
    LONG, Origin, Over, SOON, Scheme, Setup, bytes, connect, free_port, program, run, try_connect,
    tunnel, wait,
};
use crate::reload::{echo, outcome};

pub(crate) const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

/// The API of one daemon.
pub(crate) struct Api(pub(crate) u16);

impl Api {
    /// Lines of a configuration that open one.
    pub(crate) fn lines(&self) -> String {
        format!("admin: {{ listen: 127.0.0.1:{}, token: {TOKEN} }}\n", self.0)
    }

    /// Status and body.
    pub(crate) fn ask(&self, args: &[&str], path: &str) -> (u16, String) {
        let mut curl = Command::new(program("curl"));
        curl.args([
            "--silent",
            "--show-error",
            "--max-time",
            "20",
            "--write-out",
            "\n%{http_code}",
        ]);
        curl.args(["--header", &format!("Authorization: Bearer {TOKEN}")]).args(args);
        let output = run(curl.arg(format!("http://127.0.0.1:{}{path}", self.0)));
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), body.to_owned())
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask(&[], path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let text = body.to_string();
        let json =
            ["--request", method, "--header", "Content-Type: application/json", "--data", &text];
        let (status, body) = self.ask(&json, path);
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    /// The series of a page by name and labels.
    fn metrics(&self) -> HashMap<String, f64> {
        let (status, page) = self.ask(&[], "/metrics");
        assert_eq!(status, 200);
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let series = |line: &str| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        };
        lines.map(series).collect()
    }
}

pub(crate) fn started(setup: Setup) -> (Running, Api, Api) {
    let (server, client) = (Api(free_port()), Api(free_port()));
    let mut setup = setup;
    setup.server_lines.push_str(&server.lines());
    setup.client_lines.push_str(&client.lines());
    (setup.start(), server, client)
}

#[test]
fn both_roles_tell_what_they_do_and_what_they_have_refused() {
    const BYTES: u64 = 100_000;
    let origin = Origin::echo();
    let setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    let (running, server, client) = started(setup.service("closed", free_port()));
    let visitor = connect(running.public("echo"));
    bytes::send(&visitor, BYTES);
    bytes::expect(&visitor, BYTES);
    bytes::expect_refused(try_connect(running.public("closed")));
    for (api, peer) in [(&server, "home"), (&client, "127.0.0.1")] {
        let at = |name: &str, found: &HashMap<String, f64>| -> f64 {
            let of = |series: &&String| {
                series.starts_with(name)
                    && (!series.contains("service=") || series.contains("\"echo\""))
            };
            found.keys().filter(of).map(|series| found[series]).sum()
        };
        wait("all is counted", SOON, || {
            let found = api.metrics();
            let refused = found.iter().find(|(series, _)| {
                series.starts_with("tunnel_service_refused_total{")
                    && series.contains("service=\"closed\"")
                    && series.contains("reason=\"refused\"")
            });
            let streams = at("tunnel_service_streams{", &found);
            let moved =
                ["in", "out"].map(|way| at(&format!("tunnel_service_{way}_bytes_total{{"), &found));
            let all = refused.is_some_and(|(_, count)| *count == 1.0)
                && streams == 1.0
                && moved == [BYTES as f64; 2];
            all.then_some(())
        });
        let found = api.metrics();
        assert!(found.keys().any(|series| series.contains(&format!("peer=\"{peer}\""))));
        for name in ["tunnel_links_up{", "tunnel_carriers{", "tunnel_link_sent_bytes_total{"] {
            assert!(at(name, &found) >= 1.0, "{name}: {found:?}");
        }
        assert_eq!(api.ask(&[], "/healthz"), (200, "alive\n".to_owned()));
        assert_eq!(api.ask(&[], "/readyz"), (200, "ready\n".to_owned()));
        let checked = api.get("/status");
        assert_eq!((&checked["ok"], &checked["omitted"]), (&json!(true), &json!(0)), "{checked}");
        let links = checked["links"].as_array().unwrap();
        assert!(!links.is_empty());
        for link in links {
            assert!(link["micros"].as_u64().is_some() && link["peer"] == *peer, "{checked}");
        }
        assert_eq!(api.get("/api/v1/status")["sessions"].as_array().unwrap().len(), 1);
    }
    assert!(server.metrics()["tunnel_logins_total{outcome=\"accepted\"}"] >= 1.0);
    // Without its server a client is alive and not ready, and says that nothing comes back.
    let mut running = running;
    running.server.kill();
    running.server.wait_end(SOON);
    wait("it notices", SOON, || (client.ask(&[], "/readyz").0 == 503).then_some(()));
    assert_eq!(client.ask(&[], "/healthz").0, 200);
    assert_eq!(client.ask(&[], "/status").0, 503);
    running.start_server_again();
    wait("it is ready again", SOON, || (client.ask(&[], "/readyz").0 == 200).then_some(()));
}

#[test]
fn a_server_s_check_is_failed_by_a_client_that_stands_still() {
    let (mut running, server, _client) = started(Setup::new(Scheme::TLS));
    running.wait_links(2);
    assert_eq!(server.get("/status")["links"][0]["peer"], "home");
    running.client().signal(Signal::STOP);
    let begin = Instant::now();
    let (status, body) = server.ask(&[], "/status");
    running.client().signal(Signal::CONT);
    println!("{status} after {:?}: {body}", begin.elapsed());
    assert_eq!(status, 503);
    let status: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status["ok"], false);
    for link in status["links"].as_array().unwrap() {
        assert_eq!((&link["micros"], &link["peer"]), (&Value::Null, &json!("home")), "{body}");
        assert_eq!(link["error"], "no answer within 3000 ms", "{body}");
    }
    wait("it answers again", SOON, || (server.ask(&[], "/status").0 == 200).then_some(()));
}

/// What there is of a metric, over all series.
fn sum(api: &Api, name: &str) -> f64 {
    let found = api.metrics();
    let of = found.iter().filter(|(series, _)| series.starts_with(&format!("{name}{{")));
    of.map(|(_, value)| value).sum()
}

const SENT: &str = "tunnel_carrier_sent_segments_total";

#[test]
fn what_the_kernel_knows_of_each_carrier_is_told() {
    const BYTES: u64 = 400_000;
    // No segment of loopback carries more.
    const SEGMENTS: u64 = BYTES / 65_536;
    // Of datagrams the kernel knows nothing but that they were sent.
    for scheme in Scheme::over(Over::Tcp) {
        let origin = Origin::echo();
        let mut setup = Setup::new(scheme).service("echo", origin.port());
        if scheme == Scheme::WS {
            // As a reverse proxy would say it: the kernel knows of no such connection.
            setup.server_lines.push_str("trusted_proxies: [ 127.0.0.1 ]\n");
            setup.client_lines.push_str("headers: { X-Forwarded-For: 192.0.2.9 }\n");
        }
        let (running, server, client) = started(setup);
        let visitor = connect(running.public("echo"));
        for _ in 0..4 {
            bytes::send(&visitor, BYTES / 4);
            bytes::expect(&visitor, BYTES / 4);
        }
        for (api, peer) in [(&server, "home"), (&client, "127.0.0.1")] {
            let status = api.get("/api/v1/status");
            let session = &status["sessions"][0];
            let links = session["links"].as_array().unwrap();
            let carriers: Vec<&Value> =
                links.iter().flat_map(|link| link["carriers"].as_array().unwrap()).collect();
            assert!(!carriers.is_empty(), "{status}");
            let mut segments = 0;
            for carrier in carriers {
                let is_told = scheme == Scheme::WS && peer == "home";
                assert_eq!(carrier["peer"] == "192.0.2.9", is_told, "{carrier}");
                let has_tls = [Scheme::TLS, Scheme::WSS].contains(&scheme);
                assert_eq!(carrier["cipher"].is_string(), has_tls, "{carrier}");
                assert_eq!(carrier["backend"].is_string(), has_tls, "{carrier}");
                let of = |name: &str| carrier["tcp"][name].as_u64();
                let (sent, again) = (of("sent_segments"), of("retransmitted_segments"));
                assert!(sent > Some(0) && again.is_some() && again <= sent, "{carrier}");
                assert!(of("retransmitted_bytes").is_some(), "{carrier}");
                assert!(
                    of("queue_bytes").is_some() && of("window_segments") > Some(0),
                    "{carrier}"
                );
                assert!(of("rtt_micros").is_some_and(|micros| micros < 10_000_000), "{carrier}");
                segments += sent.unwrap();
            }
            let of = &session["sent"][scheme.name];
            assert!(segments >= SEGMENTS, "{status}");
            assert!(of["segments"].as_u64() >= Some(segments), "{of}: {segments}");
            assert!(of["retransmitted_segments"].as_u64().is_some(), "{status}");
            let found = api.metrics();
            let labels = format!("{{peer=\"{peer}\",transport=\"{}\"}}", scheme.name);
            assert!(found[&format!("{SENT}{labels}")] >= segments as f64, "{found:?}");
            for name in ["retransmitted_segments_total", "queue_bytes", "lost_segments"] {
                let series = format!("tunnel_carrier_{name}{labels}");
                assert!(found.contains_key(&series), "{series}: {found:?}");
            }
        }
        let output = run(tunnel(&["status", "--control"]).arg(running.file("server.sock")));
        let text = String::from_utf8(output.stdout).unwrap();
        let row = text.lines().find(|line| line.contains(&format!(" {} ", scheme.name)));
        assert!(row.is_some_and(|row| row.contains(" %  ")), "{text}");
    }
}

/// What the kernel tells of TCP, QUIC tells itself; and what the kernel granted.
#[test]
fn what_quic_knows_of_each_carrier_and_the_granted_buffers_are_told() {
    let origin = Origin::echo();
    let (running, server, client) =
        started(Setup::new(Scheme::QUIC).service("echo", origin.port()).wired());
    running.wire().lose(100);
    let visitor = connect(running.public("echo"));
    echo_both_ways(&visitor, 4_000_000);
    for (api, peer) in [(&server, "home"), (&client, "127.0.0.1")] {
        let status = api.get("/api/v1/status");
        let carrier = &status["sessions"][0]["links"][0]["carriers"][0];
        assert!(
            carrier["cipher"].as_str().is_some_and(|suite| suite.starts_with("TLS_")),
            "{status}"
        );
        assert!(sum(api, "tunnel_carrier_ciphers") >= 1.0, "{status}");
        let quic = &carrier["quic"];
        let of = |name: &str| quic[name].as_u64().unwrap();
        let (sent, lost) = (of("sent_packets"), of("lost_packets"));
        // A tenth is lost on the way.
        assert!(lost > 0 && lost < sent / 2 && of("lost_bytes") > lost, "{quic}");
        // Two packets are the least (RFC 9002 section 7.2), and CUBIC is near them at such a loss.
        assert!(of("window_bytes") >= 2 * of("mtu") && of("mtu") >= 1_200, "{quic}");
        assert!((1..10_000_000).contains(&of("rtt_micros")), "{quic}");
        let found = api.metrics();
        let labels = format!("{{peer=\"{peer}\",transport=\"quic\"}}");
        assert!(found[&format!("{SENT}{labels}")] >= sent as f64, "{found:?}");
        let again = format!("tunnel_carrier_retransmitted_segments_total{labels}");
        assert!(found[&again] >= lost as f64, "{found:?}");
        for (direction, name) in
            [("receive", "receive_buffer_bytes"), ("send", "send_buffer_bytes")]
        {
            let granted = status["udp"][name].as_u64().unwrap();
            let series = format!("tunnel_udp_buffer_bytes{{direction=\"{direction}\"}}");
            assert!(granted > 0 && found[&series] == granted as f64, "{found:?}");
        }
    }
}

/// Sends bytes to an echo and reads them meanwhile: the path buffers less than all of them.
fn echo_both_ways(visitor: &TcpStream, total: u64) {
    thread::scope(|scope| {
        scope.spawn(|| bytes::send(visitor, total));
        bytes::expect(visitor, total);
    });
}

/// A lossy path shows what was lost, what was sent again, and what parity rebuilt.
#[test]
fn what_kcp_repairs_on_a_lossy_path_is_told() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::KCP).service("echo", origin.port()).wired();
    for lines in [&mut setup.server_lines, &mut setup.client_lines] {
        lines.push_str("kcp: { fec: 10/3 }\n");
    }
    let (running, server, client) = started(setup);
    running.wire().lose(50);
    let visitor = connect(running.public("echo"));
    echo_both_ways(&visitor, 4_000_000);
    for (api, peer) in [(&server, "home"), (&client, "127.0.0.1")] {
        let status = api.get("/api/v1/status");
        let carrier = &status["sessions"][0]["links"][0]["carriers"][0];
        let kcp = &carrier["kcp"];
        assert!(carrier["quic"].is_null() && kcp.is_object(), "{carrier}");
        let of = |name: &str| kcp[name].as_u64().unwrap();
        let (sent, lost) = (of("sent_packets"), of("lost_packets"));
        // A twentieth is lost on the way.
        assert!(lost > 0 && lost < sent / 2, "{kcp}");
        assert!(of("parity_packets") > sent / 10 && of("recovered_packets") > 0, "{kcp}");
        assert!(of("retransmitted_packets") < lost, "parity repairs most: {kcp}");
        assert!(of("mtu") >= 1_200 && (1..10_000_000).contains(&of("rtt_micros")), "{kcp}");
        let found = api.metrics();
        for (name, least) in [
            ("sent_segments", sent),
            ("lost_packets", lost),
            ("parity_packets", of("parity_packets")),
            ("recovered_packets", of("recovered_packets")),
        ] {
            let series =
                format!("tunnel_carrier_{name}_total{{peer=\"{peer}\",transport=\"kcp\"}}");
            assert!(found[&series] >= least as f64, "{series}: {found:?}");
        }
    }
}

#[test]
fn counters_of_carriers_do_not_fall_when_carriers_die() {
    let origin = Origin::echo();
    let setup = Setup::new(Scheme::TLS).service("echo", origin.port()).wired();
    let (running, server, client) = started(setup);
    let visitor = connect(running.public("echo"));
    let mut before = [0.0; 2];
    for round in 0..5 {
        for _ in 0..10 {
            echo(&visitor, round);
        }
        let now = [&server, &client].map(|api| sum(api, SENT));
        println!("round {round}: {now:?}");
        assert!(now[0] > before[0] && now[1] > before[1], "{now:?} after {before:?}");
        before = now;
        running.wire().kill();
        echo(&visitor, round);
    }
}

#[test]
fn what_the_command_line_can_do_the_api_can_too() {
    let origin = Origin::echo();
    let (running, server, client) = started(Setup::new(Scheme::TLS).service("echo", origin.port()));
    let (first, second) = (connect(running.public("echo")), connect(running.public("echo")));
    echo(&first, 1);
    echo(&second, 1);
    let list = server.get("/api/v1/streams?service=echo");
    assert_eq!(list["total"], 2);
    let mine = first.local_addr().unwrap().to_string();
    let streams = list["list"].as_array().unwrap();
    let id = streams.iter().find(|stream| stream["socket"] == mine.as_str()).unwrap()["id"].clone();
    let path = format!("/api/v1/streams/{}", id.as_str().unwrap());
    assert_eq!(server.ask(&["--request", "DELETE"], &path).0, 204);
    bytes::expect_reset(&first);
    echo(&second, 2);

    let (status, body) = server.send("PUT", "/api/v1/log", &json!({ "filter": "debug" }));
    assert_eq!((status, body), (200, json!({ "filter": "debug" })));
    assert_eq!(server.get("/api/v1/log")["filter"], "debug");
    assert_eq!(client.get("/api/v1/log")["filter"], "info");

    running.edit_server(|text| text.replace("clients:\n", "drain_timeout: 7s\nclients:\n"));
    let (status, body) = server.send("POST", "/api/v1/reload", &Value::Null);
    assert_eq!((status, &body["applied"]), (200, &json!(["drain_timeout changed"])));
    running.edit_server(|text| text.replace("drain_timeout: 7s", "drain_timeout: soon"));
    let (status, body) = server.send("POST", "/api/v1/reload", &Value::Null);
    assert_eq!(status, 422);
    assert!(body["problems"][0].as_str().unwrap().contains("drain_timeout"), "{body}");
    assert_eq!(server.metrics()["tunnel_reload_failed"], 1.0);

    // A client comes in and goes.
    let public = free_port();
    let order = json!({ "name": "away", "allow_tcp": [public.to_string()] });
    let (status, body) = server.send("POST", "/api/v1/enrolments", &order);
    assert_eq!(status, 201, "{body}");
    let dir = TempDir::new().unwrap();
    let mut command = tunnel(&["client", "--enroll", body["code"].as_str().unwrap(), "--config"]);
    command.arg(dir.path().join("away.yaml")).arg("--control").arg(dir.path().join("c.sock"));
    command.args(["--publish", &format!("tcp://:{public}=tcp://127.0.0.1:{}", origin.port())]);
    let away = Daemon::start("away", dir.path(), &mut command);
    wait("the service", SOON, || try_connect(public).ok());
    assert_eq!(server.ask(&["--request", "DELETE"], "/api/v1/enrolments/away").0, 204);
    wait("the end of the service", SOON, || try_connect(public).err());
    away.wait_line(&["wrong token"], SOON);
    assert_eq!(client.send("POST", "/api/v1/enrolments", &order).0, 409);
    echo(&second, 3);
}

/// Wrong tokens are one line of the log, and the file with the token that only reads is named where
/// other users may read it.
#[test]
fn a_second_token_only_reads_and_wrong_tokens_are_logged_once() {
    const READER: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u";
    let mut setup = Setup::new(Scheme::TLS);
    let api = Api(free_port());
    std::fs::write(setup.dir().join("read.token"), READER).unwrap();
    setup.server_lines.push_str(&format!(
        "admin: {{ listen: 127.0.0.1:{}, token: {TOKEN}, read_token_file: read.token }}\n",
        api.0
    ));
    let running = setup.start_server();
    running.server.wait_line(&["read.token", "chmod 600"], SOON);
    running.server.wait_line(&["admin API on"], SOON);
    let reader = ["--header", &format!("Authorization: Bearer {READER}")];
    let ask = |args: &[&str], path: &str| {
        let mut curl = Command::new(program("curl"));
        curl.args(["--silent", "--max-time", "20", "--write-out", "\n%{http_code}"]).args(args);
        let output = run(curl.arg(format!("http://127.0.0.1:{}{path}", api.0)));
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse::<u16>().unwrap(), body.to_owned())
    };
    for path in ["/metrics", "/api/v1/status", "/api/v1/streams", "/api/v1/config"] {
        let (status, body) = ask(&reader, path);
        assert_eq!(status, 200, "{path}: {body}");
        assert!(!body.contains(READER) && !body.contains(TOKEN), "{path}: {body}");
    }
    for (method, path) in [
        ("POST", "/api/v1/reload"),
        ("PATCH", "/api/v1/config"),
        ("DELETE", "/api/v1/streams/1/1"),
        ("POST", "/api/v1/enrolments"),
    ] {
        let (status, body) = ask(&[&reader[..], &["--request", method]].concat(), path);
        assert_eq!(status, 403, "{method} {path}: {body}");
        assert!(body.contains("`admin.read_token` only reads"), "{body}");
    }
    let wrong = ["--header", "Authorization: Bearer Zr5Tn8Qw1Ey6Ui3Op0AsdfGh3JeUi9Kw"];
    for _ in 0..3 {
        assert_eq!(ask(&wrong, "/metrics").0, 401);
    }
    let words = ["WARN admin API: 127.0.0.1 showed a wrong token"];
    running.server.wait_one_line(&words, SOON);
    assert_eq!(api.send("POST", "/api/v1/reload", &json!({})).0, 200);
}

#[test]
fn what_was_asked_for_is_done_also_when_whoever_asked_goes_away() {
    let (running, server, _client) = started(Setup::new(Scheme::TLS));
    let mut done = 0;
    for n in 0..20 {
        let order = json!({ "name": format!("away{n}") });
        let (status, body) = server.send("POST", "/api/v1/enrolments", &order);
        assert_eq!(status, 201, "{body}");
        let dir = TempDir::new().unwrap();
        let mut command = tunnel(&["client", "--enroll", body["code"].as_str().unwrap()]);
        command.arg("--config").arg(dir.path().join("away.yaml"));
        command.arg("--control").arg(dir.path().join("c.sock"));
        let mut away = Daemon::start("away", dir.path(), &mut command);
        away.wait_line(&["connected to"], SOON);
        let mut asker = connect(server.0);
        write!(
            asker,
            "DELETE /api/v1/enrolments/away{n} HTTP/1.1\r\nHost: localhost\r\n\
             Authorization: Bearer {TOKEN}\r\n\r\n"
        )
        .unwrap();
        drop(asker);
        // Out at once, or not begun with: but not half of it.
        let kept = running.file(&format!("state/clients/away{n}.yaml"));
        let patience = Instant::now() + Duration::from_millis(500);
        while kept.exists() && Instant::now() < patience {
            thread::sleep(Duration::from_millis(5));
        }
        if !kept.exists() {
            // Of two links one may still be on its way in.
            wait("it is out", SOON, || {
                let status = server.get("/api/v1/status");
                let sessions = status["sessions"].as_array().unwrap();
                let name = format!("away{n}");
                let is_in = |s: &Value| s["peer"] == *name && s["links"] != json!([]);
                (!sessions.iter().any(is_in)).then_some(())
            });
            done += 1;
        }
        away.kill();
        away.wait_end(SOON);
    }
    assert!(done > 0);
}

#[test]
fn a_flood_of_askers_and_those_who_say_nothing_cost_the_streams_nothing() {
    let origin = Origin::echo();
    let (running, server, _client) =
        started(Setup::new(Scheme::TLS).service("echo", origin.port()));
    let visitor = connect(running.public("echo"));
    // More than it serves at a time; none says a word, and so none keeps its place for long.
    let silent: Vec<_> = (0..40).map(|_| connect(server.0)).collect();
    for byte in 0..100 {
        echo(&visitor, byte);
    }
    wait("it answers again", LONG, || (server.ask(&[], "/healthz").0 == 200).then_some(()));
    drop(silent);
}

#[test]
fn a_port_that_is_taken_is_a_reason_not_to_start() {
    let taken = Origin::echo();
    let mut running = Setup::new(Scheme::TCP).start_server();
    running.server.kill();
    running.server.wait_end(SOON);
    running.edit_server(|text| text + &Api(taken.port()).lines());
    let file = running.file("server.yaml");
    let (exit, _, complaint) = outcome(run(tunnel(&["server", "--config"]).arg(file)));
    assert_eq!(exit, Some(1), "{complaint}");
    assert!(
        complaint.contains("admin API on 127.0.0.1") && complaint.contains("in use"),
        "{complaint}"
    );
}

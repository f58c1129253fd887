//! What the web console asks of a real daemon: a link, a session, figures of each second, and
//! changes of the configuration that are looked at first.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::stage::Running;

use crate::admin::{Api, TOKEN, started};
use crate::harness::{Origin, SOON, Scheme, Setup, connect, program, run, tunnel, wait};
use crate::reload::{echo, outcome};

/// The headers and the body of an answer.
fn head_of(api: &Api, path: &str) -> (String, String) {
    let (status, text) = api.ask(&["--include"], path);
    assert_eq!(status, 200, "{text}");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn a_link_of_the_command_line_is_good_once() {
    let (running, api, _) = started(Setup::new(Scheme::TLS));
    let control = running.file("server.sock");
    let link = || {
        let mut command = tunnel(&["console", "--json", "--control"]);
        let (exit, said, complaint) = outcome(run(command.arg(&control)));
        assert_eq!(exit, Some(0), "{complaint}");
        let link: Value = serde_json::from_str(&said).unwrap();
        let url = link["url"].as_str().unwrap().to_owned();
        assert!(url.starts_with(&format!("http://127.0.0.1:{}/#k=", api.0)), "{url}");
        url.split_once("#k=").unwrap().1.to_owned()
    };
    let key = link();
    assert_ne!(key, link());
    let begin = |key: &str| {
        let field = format!("Authorization: Bearer {key}");
        let mut curl = Command::new(program("curl"));
        curl.args(["--silent", "--write-out", "\n%{http_code}", "--request", "POST"]);
        curl.args(["--header", &field]);
        let output = run(curl.arg(format!("http://127.0.0.1:{}/api/v1/sessions", api.0)));
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse::<u16>().unwrap(), body.to_owned())
    };
    let (status, begun) = begin(&key);
    assert_eq!(status, 201, "{begun}");
    assert_eq!(begin(&key).0, 401, "it was used");
    let log = running.server.log();
    assert!(!log.contains(&key) && log.contains("a session of the console began"), "{log}");
    // A daemon without an API says what its file needs.
    let running = Setup::new(Scheme::TLS).start();
    let control = running.file("server.sock");
    let (exit, _, complaint) = outcome(run(tunnel(&["console", "--control"]).arg(control)));
    assert_eq!(exit, Some(1));
    assert!(complaint.contains("token_file: admin.token"), "{complaint}");
}

#[test]
fn a_change_is_looked_at_made_and_undone_and_shows_no_secret() {
    let origin = Origin::echo();
    let (running, api, _) = started(Setup::new(Scheme::TLS).service("echo", origin.port()));
    running.edit_server(|text| format!("# Ours, by hand.\n{text}"));
    let file = running.file("server.yaml");
    let before = fs::read_to_string(&file).unwrap();
    let (head, body) = head_of(&api, "/api/v1/config");
    let shown: Value = serde_json::from_str(&body).unwrap();
    let etag = shown["etag"].as_str().unwrap();
    assert!(head.to_lowercase().contains(&format!("etag: {etag}")), "{head}");
    let text = shown["text"].as_str().unwrap();
    assert!(text.contains("# Ours, by hand.") && text.contains("(secret)"), "{text}");
    assert!(!body.contains(TOKEN) && shown.get("undo").is_none(), "{body}");

    // What is wrong has its place, and nothing changes.
    let wrong = json!({ "text": format!("{text}drain_timeout: soon\n") });
    let (status, checked) = api.send("POST", "/api/v1/config/check", &wrong);
    assert_eq!((status, &checked["ok"]), (200, &json!(false)), "{checked}");
    let problem = &checked["problems"][0];
    assert_eq!((&problem["key"], &problem["column"]), (&json!("drain_timeout"), &json!(16)));
    assert_eq!(problem["line"], text.lines().count() + 1, "{checked}");

    // A change of the text keeps secrets and comments.
    let right = json!({ "text": format!("{text}drain_timeout: 7s\nworkers: 1\n") });
    let (status, checked) = api.send("POST", "/api/v1/config/check", &right);
    assert_eq!((status, &checked["ok"]), (200, &json!(true)), "{checked}");
    assert_eq!((&checked["live"], &checked["etag"]), (&json!(["drain_timeout"]), &json!(etag)));
    assert_eq!(checked["restart"], json!(["workers"]));
    let added: Vec<_> = checked["diff"].as_array().unwrap().iter().collect();
    assert_eq!(added[added.len() - 1], &json!({ "op": "add", "line": "workers: 1" }));
    assert!(!checked.to_string().contains(TOKEN), "{checked}");
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    let data = right.to_string();
    let patch = |tag: &str| {
        let field = format!("If-Match: {tag}");
        let kind = "Content-Type: application/json";
        let args = ["--request", "PATCH", "--header", kind, "--header", &field, "--data", &data];
        api.ask(&args, "/api/v1/config")
    };
    assert_eq!(patch("\"other\"").0, 412);
    assert_eq!(patch("other").0, 400);
    let (status, said) = patch(etag);
    assert_eq!(status, 200, "{said}");
    let after = fs::read_to_string(&file).unwrap();
    assert_eq!(after, format!("{before}drain_timeout: 7s\nworkers: 1\n"));
    assert_eq!(patch(etag).0, 412, "the second window");

    // It is undone, once, and only while nobody else has changed the file.
    assert_eq!(api.get("/api/v1/config")["undo"], true);
    fs::write(&file, format!("{after}# by hand\n")).unwrap();
    assert_eq!(api.send("POST", "/api/v1/config/undo", &Value::Null).0, 409);
    fs::write(&file, after).unwrap();
    let (status, said) = api.send("POST", "/api/v1/config/undo", &Value::Null);
    assert_eq!(status, 200, "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    assert_eq!(api.send("POST", "/api/v1/config/undo", &Value::Null).0, 409);
}

/// A reader of changes has the same rows as a reader of whole lists.
fn changes_make_what_a_whole_list_has(running: &Running, api: &Api, visitor: &TcpStream) {
    let mut curl = Command::new(program("curl"));
    let field = format!("Authorization: Bearer {TOKEN}");
    let port = api.0;
    let path = "api/v1/events?topics=services,clients,streams:5&changes=true";
    curl.args(["--silent", "--no-buffer", "--header", &field]);
    let mut curl =
        curl.arg(format!("http://127.0.0.1:{port}/{path}")).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(curl.stdout.take().unwrap()).lines();
    let mut rows: BTreeMap<(String, String), Value> = BTreeMap::new();
    let mut revisions: BTreeMap<String, u64> = BTreeMap::new();
    let mut second = |rows: &mut BTreeMap<(String, String), Value>| -> usize {
        let mut events = 0;
        for _ in 0..3 {
            let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            let topic = line["topic"].as_str().unwrap().to_owned();
            let revision = line["revision"].as_u64().unwrap();
            let before = revisions.insert(topic.clone(), revision);
            assert_eq!(line["whole"], before.is_none());
            assert_eq!(line["after"].as_u64(), before, "no line is missing");
            for id in line["gone"].as_array().into_iter().flatten() {
                let key = (topic.clone(), id.as_str().unwrap().to_owned());
                assert!(rows.remove(&key).is_some(), "{key:?}");
            }
            for row in line["list"].as_array().unwrap() {
                let id = if topic == "clients" { &row["name"] } else { &row["id"] };
                rows.insert((topic.clone(), id.as_str().unwrap().to_owned()), row.clone());
                events += 1;
            }
        }
        events
    };
    assert!(second(&mut rows) >= 3, "a service, its client and a stream");
    let bytes_in = |rows: &BTreeMap<(String, String), Value>, topic: &str| {
        let row = rows.iter().find(|((of, _), _)| of == topic).unwrap().1;
        row["bytes_in"].as_u64().unwrap()
    };
    let before = ["services", "clients", "streams"].map(|topic| bytes_in(&rows, topic));
    echo(visitor, 2);
    wait("the change is told", SOON, || {
        second(&mut rows);
        let now = ["services", "clients", "streams"].map(|topic| bytes_in(&rows, topic));
        before.iter().zip(now).all(|(before, now)| now > *before).then_some(())
    });
    // Without a change there are lines without rows.
    wait("no row is told", SOON, || (second(&mut rows) == 0).then_some(()));
    let other = connect(running.public("echo"));
    echo(&other, 1);
    let streams = |rows: &BTreeMap<(String, String), Value>| {
        rows.keys().filter(|(topic, _)| topic == "streams").count()
    };
    wait("a stream comes", SOON, || {
        second(&mut rows);
        (streams(&rows) == 2).then_some(())
    });
    drop(other);
    wait("a stream goes", SOON, || {
        second(&mut rows);
        (streams(&rows) == 1).then_some(())
    });
    wait("the rows rest", SOON, || (second(&mut rows) == 0).then_some(()));
    curl.kill().unwrap();
    curl.wait().unwrap();
    let (_, text) = api.ask(&["--max-time", "2"], "/api/v1/events?topics=services,clients");
    let whole: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for topic in ["services", "clients"] {
        let list = whole.iter().find(|line| line["topic"] == topic).unwrap();
        let ours: Vec<_> =
            rows.iter().filter(|((of, _), _)| of == topic).map(|(_, row)| row).collect();
        let moving = ["carriers", "rtt_micros"];
        let bare = |row: &Value| {
            let mut row = row.as_object().unwrap().clone();
            moving.iter().for_each(|key| drop(row.remove(*key)));
            row
        };
        let all = list["list"].as_array().unwrap().iter();
        assert!(all.map(bare).eq(ours.into_iter().map(bare)), "{topic}: {list}");
    }
}

#[test]
fn the_figures_of_visitors_arrive_and_a_client_is_disconnected() {
    let origin = Origin::echo();
    let (running, server, client) = started(Setup::new(Scheme::TLS).service("echo", origin.port()));
    running.wait_echo(running.public("echo"));
    let visitor = connect(running.public("echo"));
    echo(&visitor, 1);
    for (api, kind) in [(&server, "service"), (&client, "service")] {
        let path = "/api/v1/events?topics=totals,services,clients,streams:5,log";
        wait("the bytes are told", SOON, || {
            echo(&visitor, 2);
            // The lines of one second.
            let (_, text) = api.ask(&["--max-time", "1"], path);
            let lines: Vec<Value> =
                text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            let of = |topic: &str| lines.iter().find(|line| line["topic"] == topic);
            let (totals, services) = (of("totals")?, of("services")?);
            let echoed = services["list"].as_array()?.iter().find(|one| one["name"] == "echo")?;
            assert_eq!(echoed["kind"], kind);
            assert!(!text.contains(TOKEN), "{text}");
            let is_there = totals["bytes_in"].as_u64() > Some(0)
                && echoed["bytes_out"].as_u64() > Some(0)
                && of("streams")?["total"] == 1
                && of("clients")?["list"][0]["carriers"].is_array()
                && of("log").is_some();
            is_there.then_some(())
        });
    }
    changes_make_what_a_whole_list_has(&running, &server, &visitor);
    let lines = server.get("/api/v1/log/lines?limit=5");
    assert!(lines["lines"].as_array().unwrap().len() <= 5 && lines["last"].as_u64() > Some(0));
    wait("the past", SOON, || {
        let series = server.get("/api/v1/history")["series"].to_string();
        (series.contains("service:echo") && series.contains("client:home")).then_some(())
    });

    let control = running.file("server.sock");
    let kick =
        |name: &str| outcome(run(tunnel(&["clients", "kick", name, "--control"]).arg(&control)));
    assert_eq!(kick("nobody").0, Some(1));
    let (exit, said, complaint) = kick("home");
    assert_eq!(
        (exit, said.trim()),
        (Some(0), "client home is disconnected, and may log in again"),
        "{complaint}"
    );
    crate::harness::bytes::expect_reset(&visitor);
    wait("it comes again", SOON, || {
        (server.get("/api/v1/clients/home")["state"] == "connected").then_some(())
    });
    running.wait_echo(running.public("echo"));

    let order = json!({ "name": "office" });
    let (status, body) = server.send("POST", "/api/v1/enrolments", &order);
    let command = body["command"].as_str().unwrap();
    assert!(status == 201 && command.starts_with("tunnel client --enroll enroll1."), "{body}");
    assert!(body["qr"]["size"].as_u64() > Some(20) && body["valid_seconds"] == 600, "{body}");
    let (exit, said, _) =
        outcome(run(tunnel(&["enroll", "garage", "--qr", "--control"]).arg(&control)));
    assert!(exit == Some(0) && said.contains('█'), "{said}");
}

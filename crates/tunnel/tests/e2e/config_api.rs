//! `/api/v1/config`: a change over the admin API takes effect immediately, and the rest of the file
//! stays as its owner wrote it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::thread;

use serde_json::{Value, json};
use testkit::stage::Running;

use crate::admin::{Api, started};
use crate::harness::{Origin, SOON, Scheme, Setup, bytes, connect, free_port, try_connect, wait};
use crate::reload::{echo, token};

fn patch(api: &Api, operations: &Value) -> (u16, Value) {
    let text = operations.to_string();
    let kind = "Content-Type: application/json-patch+json";
    let args = ["--request", "PATCH", "--header", kind, "--data", &text];
    let (status, body) = api.ask(&args, "/api/v1/config");
    (status, serde_json::from_str(&body).unwrap())
}

fn file(running: &Running, role: &str) -> (PathBuf, String, u32) {
    let path = running.file(&format!("{role}.yaml"));
    let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    (path.clone(), fs::read_to_string(path).unwrap(), mode)
}

#[test]
fn a_client_that_is_added_can_log_in_at_once_and_every_comment_stays() {
    let origin = Origin::echo();
    let (running, api, _) = started(Setup::new(Scheme::TLS).service("echo", origin.port()));
    running.edit_server(|text| format!("# Ours, by hand.\n{text}# The end.\n"));
    let (path, before, _) = file(&running, "server");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let visitor = connect(running.public("echo"));
    echo(&visitor, 1);

    let (token, port) = (token(), free_port());
    let allow = json!({ "tcp": [port.to_string()] });
    let guest = json!({ "name": "guest", "token": token, "allow": allow });
    let (status, said) =
        patch(&api, &json!([{ "op": "add", "path": "/clients/-", "value": guest }]));
    assert_eq!((status, &said["applied"]), (200, &json!(["client guest added"])), "{said}");
    let (_, after, mode) = file(&running, "server");
    assert_eq!(mode, 0o600);
    let lines: Vec<_> = after.lines().collect();
    let first = before.lines().zip(&lines).take_while(|(a, b)| a == *b).count();
    let added = lines.len() - before.lines().count();
    let rest = lines[first + added..].join("\n");
    assert!(before.trim_end().ends_with(&rest) && rest.ends_with("# The end."), "{after}");
    running.server.wait_line(&["the configuration was changed: add /clients/-"], SOON);
    assert!(!running.server.log().contains(&token));

    let client = running.start_another_client(|text| {
        let lines =
            text.lines().filter(|line| !line.starts_with("admin:")).map(|line| match line {
                _ if line.starts_with("token:") => format!("token: \"{token}\""),
                _ => line
                    .replace("name: home", "name: guest")
                    .replace(&running.public("echo").to_string(), &port.to_string()),
            });
        lines.collect::<Vec<_>>().join("\n")
    });
    client.wait_line(&["service echo is published at "], SOON);
    echo(&connect(port), 2);

    let shown = api.get("/api/v1/config");
    assert_eq!((&shown["path"], &shown["writable"]), (&json!(path), &json!(true)));
    let clients = shown["config"]["clients"].as_array().unwrap();
    assert_eq!((&clients[1]["name"], &clients[1]["token"]), (&json!("guest"), &json!("(secret)")));
    assert!(!shown.to_string().contains(&token));

    let (status, said) = patch(&api, &json!([{ "op": "remove", "path": "/clients/guest" }]));
    assert_eq!(status, 200, "{said}");
    assert_eq!(file(&running, "server").1, before);
    wait("the guest is out", SOON, || try_connect(port).err());
    echo(&visitor, 3);
}

#[test]
fn a_service_leads_to_its_new_target_and_what_takes_a_restart_is_named() {
    let (old, new) = (Origin::echo(), Origin::echo());
    let (running, _, api) = started(Setup::new(Scheme::TLS).service("echo", old.port()));
    let (path, before, mode) = file(&running, "client");
    let link = path.with_extension("real");
    fs::rename(&path, &link).unwrap();
    std::os::unix::fs::symlink(&link, &path).unwrap();
    let target = format!("tcp://127.0.0.1:{}", new.port());
    let (status, said) = patch(
        &api,
        &json!([
            { "op": "test", "path": "/services/echo/target", "value": format!("tcp://127.0.0.1:{}", old.port()) },
            { "op": "replace", "path": "/services/echo/target", "value": target },
            { "op": "add", "path": "/workers", "value": 3 },
        ]),
    );
    assert_eq!(status, 200, "{said}");
    assert_eq!(said["restart"], json!(["workers"]));
    let applied = said["applied"].to_string();
    assert!(applied.starts_with("[\"echo -> tcp://"), "{applied}");
    let (_, after, mode_after) = file(&running, "client");
    assert_eq!(mode_after, mode);
    let expected = before.replace(&format!(":{}", old.port()), &format!(":{}", new.port()));
    assert!(after.contains("workers: 3"), "{after}");
    assert_eq!(after.replace("workers: 3\n", "").trim_end(), expected.trim_end());
    assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
    drop(old);
    wait("visitors reach the new one", SOON, || {
        let visitor = try_connect(running.public("echo")).ok()?;
        bytes::send(&visitor, 10);
        bytes::expect(&visitor, 10);
        Some(())
    });
}

#[test]
fn what_is_wrong_changes_neither_the_file_nor_the_daemon() {
    let origin = Origin::echo();
    let (running, server, client) = started(Setup::new(Scheme::TLS).service("echo", origin.port()));
    let taken = Origin::echo();
    let busy = json!({ "listen": format!("tcp://127.0.0.1:{}", taken.port()), "target": "tcp://127.0.0.1:1" });
    let both = [("server", &server), ("client", &client)];
    let before = both.map(|(role, _)| file(&running, role).1);
    for (api, operation, expected, why) in [
        (
            &server,
            json!({ "op": "add", "path": "/drain_timeout", "value": "soon" }),
            422,
            "server.yaml:",
        ),
        (&server, json!({ "op": "add", "path": "/colour", "value": "red" }), 422, "colour"),
        (
            &server,
            json!({ "op": "remove", "path": "/clients/nobody" }),
            422,
            "operation 0 (/clients/nobody)",
        ),
        (
            &server,
            json!({ "op": "replace", "path": "/clients/home/token", "value": "(secret)" }),
            422,
            "leave it out",
        ),
        (
            &server,
            json!({ "op": "test", "path": "/clients/home/name", "value": "x" }),
            412,
            "something else",
        ),
        (
            &client,
            json!({ "op": "add", "path": "/tls/ca", "value": "none.pem" }),
            422,
            "client.yaml:",
        ),
        // What shows only when it is tried.
        (&client, json!({ "op": "add", "path": "/forwards", "value": [busy] }), 409, "in use"),
        (&client, json!({ "op": "replace", "path": "/token", "value": token() }), 409, "token"),
    ] {
        let (status, said) = patch(api, &json!([operation]));
        assert_eq!(status, expected, "{operation}: {said}");
        assert!(said.to_string().contains(why), "{operation}: {said}");
        println!("{said}");
    }
    for ((role, api), before) in both.iter().zip(&before) {
        assert_eq!(&file(&running, role).1, before);
        assert_eq!(api.get("/api/v1/status").get("reload_error"), None);
    }
    echo(&connect(running.public("echo")), 1);

    let path = running.file("server.yaml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    let (status, said) = patch(&server, &json!([{ "op": "add", "path": "/workers", "value": 2 }]));
    assert_eq!(status, 409, "{said}");
    assert!(said["error"].as_str().unwrap().contains("only read"), "{said}");
    assert_eq!(server.get("/api/v1/config")["writable"], false);
}

#[test]
fn changes_at_the_same_time_take_turns_and_none_is_lost() {
    const CHANGES: usize = 8;
    let (running, api, _) = started(Setup::new(Scheme::TLS));
    running.edit_server(|text| text + "watch: true\n");
    assert_eq!(api.send("POST", "/api/v1/reload", &Value::Null).0, 200);
    thread::scope(|scope| {
        for n in 0..CHANGES {
            let api = &api;
            scope.spawn(move || {
                let guest = json!({ "name": format!("guest{n}"), "token": token() });
                let operation = json!({ "op": "add", "path": "/clients/-", "value": guest });
                let (status, said) = patch(api, &json!([operation]));
                assert_eq!(status, 200, "{said}");
            });
        }
    });
    let shown = api.get("/api/v1/config");
    let clients = shown["config"]["clients"].as_array().unwrap();
    let names: Vec<_> = clients.iter().map(|client| client["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), CHANGES + 1);
    assert!((0..CHANGES).all(|n| names.contains(&&*format!("guest{n}"))), "{names:?}");
    assert_eq!(api.get("/api/v1/status").get("reload_error"), None);
}

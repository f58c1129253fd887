//! Names and certificates in the status and in the log, and reloads of their settings.

use std::fs;

use serde_json::Value;
use testkit::stage::Running;

use super::origin::Web;
use super::{Doors, certificate, curl, fetch};
use crate::harness::{SOON, Scheme, run, tunnel};
use crate::reload::outcome;

/// What a command says about the server.
pub(super) fn said(running: &Running, words: &[&str]) -> String {
    let control = running.file("server.sock");
    let (code, said, complaint) = outcome(run(tunnel(words).arg("--control").arg(control)));
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{words:?}");
    said
}

/// The certificate of a host in the status of the server.
fn shown(running: &Running, host: &str) -> Value {
    let status = running.status("server").unwrap();
    let all = status["certificates"].as_array().unwrap();
    all.iter().find(|one| one["host"] == host).cloned().unwrap_or_default()
}

fn reload(running: &Running) {
    let (code, said, complaint) = outcome(running.reload("server"));
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
    assert!(!said.contains("restart"), "{said}");
}

#[test]
fn certificates_are_shown_and_a_name_outlives_its_certificate() {
    const KEYS: &str = ", certificates: [{ cert: one.crt, key: one.key }]";
    let doors = Doors::with(Scheme::TLS, "", KEYS);
    let (http, tls, dir) = (doors.http, doors.tls, doors.setup.dir().to_owned());
    certificate(&dir, "one", "DNS:a.example.com,DNS:*.wild.example.com");
    let web = Web::start(&dir, "web");
    let running = doors
        .start(&[("https://a.example.com", web.port, ""), ("http://b.example.com", web.port, "")]);
    let ca = dir.join("one.crt");
    let url = "https://a.example.com/";
    let serves = || fetch(tls, &["--cacert", ca.to_str().unwrap(), url]).contains("\"web\"");
    assert!(serves());

    let (one, other) =
        (format!("https://a.example.com:{tls}"), format!("http://b.example.com:{http}"));
    for words in [&["status"][..], &["clients", "show", "home"]] {
        let said = said(&running, words);
        assert!(said.contains(&one) && said.contains(&other), "{said}");
    }
    let text = said(&running, &["status"]);
    let row = |host: &str| text.lines().find(|line| line.trim_start().starts_with(host)).unwrap();
    for host in ["a.example.com", "*.wild.example.com"] {
        let row = row(host);
        // openssl made it for 30 days, a moment ago.
        assert!(row.ends_with("  file    in 29 days") || row.ends_with(" in 30 days"), "{text}");
        let left = shown(&running, host)["expires_seconds"].as_i64().unwrap();
        assert!((29 * 86_400..=30 * 86_400).contains(&left), "{left}");
    }
    let audit = |what: &str| format!("service s0 of client home {what}");
    running.server.wait_line(&[&audit(&format!("is published at {one}"))], SOON);

    running.edit_server(|text| text.replacen(KEYS, "", 1));
    reload(&running);
    let lost = shown(&running, "a.example.com");
    let why = "no certificate of this server is for a.example.com";
    assert_eq!(lost["source"], "none");
    assert!(lost["error"].as_str().unwrap().starts_with(why), "{lost}");
    let text = said(&running, &["status"]);
    assert!(text.contains(&format!("a.example.com has no certificate: {why}")), "{text}");
    assert!(text.contains(&one), "the name stays published: {text}");
    assert!(!curl(tls, &["--insecure", url]).status.success());
    reload(&running);
    running.server.wait_one_line(&["WARN", "a.example.com stays published", why], SOON);
    assert!(!running.server.log().contains(&audit("is published no more")));

    running.edit_server(|text| {
        text.replacen("tls_routes: {", &format!("tls_routes: {{ {},", &KEYS[2..]), 1)
    });
    reload(&running);
    assert!(serves());
    assert_eq!(shown(&running, "a.example.com")["error"], Value::Null);
}

#[test]
fn settings_of_doors_are_live() {
    let http_keys = ", domain: example.org, route_header: X-Way";
    let tls_keys = ", certificates: [{ cert: one.crt, key: one.key }]";
    let doors = Doors::with(Scheme::TLS, http_keys, tls_keys);
    let (http, tls, dir) = (doors.http, doors.tls, doors.setup.dir().to_owned());
    certificate(&dir, "one", "DNS:a.example.com");
    let web = Web::start(&dir, "web");
    let running = doors
        .start(&[("https://a.example.com", web.port, ""), ("http://b.example.com", web.port, "")]);
    let code = ["--output", "/dev/null", "--write-out", "%{http_code}"];
    let by = |field: &str| {
        let field = format!("{field}: b.example.com");
        fetch(http, &[&code[..], &["--header", &field, "http://x.example.com/"]].concat())
    };
    let old = ["--insecure", "--tls-max", "1.2", "https://a.example.com/"];
    assert!(curl(tls, &old).status.success());
    assert_eq!((by("X-Way"), by("X-Else")), ("200".to_owned(), "404".to_owned()));

    fs::write(dir.join("lost.html"), "nobody here").unwrap();
    running.edit_server(|text| {
        text.replacen(http_keys, ", domain: example.net, route_header: X-Else", 1)
            .replacen("X-Else", "X-Else, pages: { not_found: lost.html }", 1)
            .replacen(tls_keys, &format!("{tls_keys}, min_version: \"1.3\""), 1)
    });
    reload(&running);
    assert_eq!((by("X-Way"), by("X-Else")), ("404".to_owned(), "200".to_owned()));
    assert_eq!(fetch(http, &["http://x.example.com/"]), "nobody here");
    assert!(!curl(tls, &old).status.success());
    let control = running.file("client.sock");
    let publish = format!("http://{{name}}={}", web.port);
    let (code, said, complaint) =
        outcome(run(tunnel(&["publish", &publish, "--control"]).arg(control)));
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
    running.server.wait_line(&["is published at http://home.example.net"], SOON);
}

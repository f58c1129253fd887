//! `requests: true`: what visitors have asked, over the command line, and sent again.

use std::fs;

use serde_json::Value;
use testkit::stage::Running;

use super::origin::Web;
use super::{Doors, curl, fetch};
use crate::harness::{SOON, Scheme, run, tunnel, wait};

const HOST: &str = "http://app.example.com";

/// The outcome of `tunnel requests` with these words beside the client: code, standard output and
/// standard error.
fn requests(running: &Running, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = tunnel(&["requests", "--control"]);
    command.arg(running.file("client.sock")).args(words);
    let output = run(&mut command);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn json(running: &Running, words: &[&str]) -> Value {
    let (code, text, why) = requests(running, &[words, &["--json"]].concat());
    assert_eq!(code, Some(0), "{why}");
    serde_json::from_str(&text).unwrap()
}

/// Waits until so many requests are complete, and returns them.
fn complete(running: &Running, count: usize) -> Vec<Value> {
    wait("the requests are kept", SOON, || {
        let all = json(running, &[])["requests"].as_array().unwrap().clone();
        let done = all.iter().filter(|one| one["progress"] == "complete").count();
        (done >= count).then_some(all)
    })
}

#[test]
fn requests_are_kept_masked_and_sent_again_and_the_bytes_pass_unchanged() {
    let doors = Doors::new(Scheme::TLS);
    let (http, dir) = (doors.http, doors.setup.dir().to_owned());
    let web = Web::start(&dir, "a");
    let site = dir.join("site");
    fs::create_dir(&site).unwrap();
    // Longer than what is kept, and no text.
    let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    fs::write(site.join("large.bin"), &large).unwrap();
    let mut running = doors.start(&[
        ("http://app.example.com", web.port, ", requests: true"),
        ("http://quiet.example.com", web.port, ""),
    ]);
    running.edit_client(|text| {
        let files = format!(
            "  - {{ name: files, target: \"file://{}\", public: \"http://files.example.com\", \
             requests: true }}\n",
            site.display()
        );
        text.replacen("  - { name: s0", &format!("{files}  - {{ name: s0"), 1)
    });
    let mut reload = tunnel(&["reload", "--control"]);
    assert!(run(reload.arg(running.file("client.sock"))).status.success());

    fetch(http, &["http://quiet.example.com/"]);
    fetch(http, &["--user", "ann:key", "--cookie", "sid=7", &format!("{HOST}/one?x=1")]);
    fetch(http, &["--data", "a=b", &format!("{HOST}/two")]);
    assert_eq!(fetch(http, &[&format!("{HOST}/chunked")]), "one two a");
    let got = curl(http, &["http://files.example.com/large.bin"]).stdout;
    assert!(got == large, "{} bytes", got.len());

    let all = complete(&running, 4);
    let line = |one: &Value| {
        let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
        format!("{} {} {} {}", text("service"), text("method"), text("path"), one["status"])
    };
    let lines: Vec<_> = all.iter().map(line).collect();
    let expected = [
        "s0 GET /one?x=1 200",
        "s0 POST /two 200",
        "s0 GET /chunked 200",
        "files GET /large.bin 200",
    ];
    assert_eq!(lines, expected);
    assert_eq!(all[0]["visitor"], "127.0.0.1");
    assert!(all[0]["first_byte_micros"].as_u64() <= all[0]["whole_micros"].as_u64());
    assert_eq!(all[3]["response_bytes"], large.len());
    let filtered = json(&running, &["--service", "s0", "--method", "post", "--path", "TWO"]);
    assert_eq!(filtered["requests"].as_array().unwrap().len(), 1);
    assert_eq!(json(&running, &["--status", "4xx"])["requests"], Value::Array(Vec::new()));

    // In full, without the secrets and with them.
    let id = all[0]["id"].to_string();
    let basic = "YW5uOmtleQ==";
    let text = requests(&running, &[&id]).1;
    assert!(
        text.contains("Authorization: (secret)") && text.contains("Cookie: (secret)"),
        "{text}"
    );
    // The target tells the fields of the request in its body, where no secret is known as one.
    let request = |words: &[&str]| json(&running, words)["request"].to_string();
    let masked = request(&[&id]);
    assert!(!masked.contains(basic) && !masked.contains("sid=7"), "{masked}");
    let shown = request(&[&id, "--secrets"]);
    assert!(shown.contains(basic) && shown.contains("sid=7"), "{shown}");
    running.client().wait_line(&["asked for the secrets of request"], SOON);
    assert!(!running.client().log().contains(basic));
    let chunked = json(&running, &[&all[2]["id"].to_string()]);
    assert_eq!(chunked["response"]["body"]["text"], "one two a");
    let large = json(&running, &[&all[3]["id"].to_string()]);
    let body = &large["response"]["body"];
    assert_eq!((&body["cut"], &body["bytes"]), (&Value::Bool(true), &3_000_000.into()));
    assert!(body["base64"].as_str().unwrap().len() > 80_000, "{body}");

    // Sent again, with its body and its secrets, and to files as well.
    for (one, said) in [(&all[1], "a got 3"), (&all[0], basic)] {
        let again = json(&running, &[&one["id"].to_string(), "--replay"]);
        assert_eq!((&again["replay_of"], &again["status"]), (&one["id"], &200.into()), "{again}");
        assert!(again["response"]["body"]["text"].as_str().unwrap().contains(said), "{again}");
    }
    let again = json(&running, &[&all[3]["id"].to_string(), "--replay"]);
    assert_eq!(again["response_bytes"], 3_000_000);
    assert_eq!(complete(&running, 7).len(), 7);
    let (code, _, why) = requests(&running, &["99", "--replay"]);
    assert!(code == Some(1) && why.contains("no such request"), "{why}");

    // A server keeps none, and a service takes its requests with it.
    let mut server = tunnel(&["requests", "--control"]);
    let refused = run(server.arg(running.file("server.sock")));
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("this is a server"), "{why}");
    running.edit_client(|text| text.replace(", requests: true", ""));
    let mut reload = tunnel(&["reload", "--control"]);
    assert!(run(reload.arg(running.file("client.sock"))).status.success());
    fetch(http, &[&format!("{HOST}/later")]);
    assert_eq!(json(&running, &[])["requests"], Value::Array(Vec::new()));
}

#[test]
fn what_is_shared_keeps_requests_until_its_end_unless_it_is_told_not_to() {
    let doors = Doors::with(Scheme::TLS, ", domain: own.example", "");
    let (http, dir) = (doors.http, doors.setup.dir().to_owned());
    let web = Web::start(&dir, "a");
    let running = doors.start(&[("http://other.example.com", web.port, "")]);
    let port = web.port.to_string();
    let shared = super::share::share(&running, "kept", &[&port, "--at", "one"]);
    shared.wait_line(&["requests: tunnel requests"], SOON);
    let silent = super::share::share(&running, "silent", &[&port, "--at", "two", "--no-requests"]);
    silent.wait_line(&["shared until"], SOON);
    fetch(http, &["http://one-home.own.example/seen"]);
    fetch(http, &["http://two-home.own.example/unseen"]);
    silent.wait_line(&["GET /unseen"], SOON);
    let all = complete(&running, 1);
    assert_eq!((all.len(), &all[0]["path"]), (1, &"/seen".into()));
    assert!(!silent.log().contains("requests:"), "{}", silent.log());
    drop(shared);
    wait("its requests are gone", SOON, || {
        json(&running, &[])["requests"].as_array().unwrap().is_empty().then_some(())
    });
}

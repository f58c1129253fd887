//! A service with several public addresses of which the server refuses one: each place that tells
//! about the service tells about each address.

use std::fs;
use std::net::TcpListener;

use super::origin::Web;
use super::{Doors, certificate, curl, fetch};
use crate::harness::{SOON, Scheme, free_port, run, tunnel, wait};
use crate::reload::outcome;

#[test]
fn a_refused_address_does_not_hide_the_others_anywhere() {
    let keys = ", certificates: [{ cert: one.crt, key: one.key }]";
    let mut doors = Doors::with(Scheme::TLS, "", keys);
    let (http, tls, dir) = (doors.http, doors.tls, doors.setup.dir().to_owned());
    certificate(&dir, "one", "DNS:other.example.com");
    let web = Web::start(&dir, "web");
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let (taken, free) = (listener.local_addr().unwrap().port(), free_port());
    doors.setup.allow.extend([taken, free]);
    let running = doors.start(&[("http://x.example.com", web.port, "")]);
    let control = |side: &str| running.file(&format!("{side}.sock"));
    let tell = |side: &str, words: &[&str]| {
        outcome(run(tunnel(words).arg("--control").arg(control(side))))
    };
    let (up, down) = ("http://a.example.com", "https://a.example.com");
    let line = format!(
        "  - {{ name: both, target: {}, public: [\"{down}\", \"{up}\"] }}\n\
         \x20 - {{ name: ports, target: {}, public: [\"tcp://:{taken}\", \"tcp://:{free}\"] }}\n",
        web.port, web.port
    );
    running.edit_client(|text| text.replacen("services:\n", &format!("services:\n{line}"), 1));

    // The outcome of the reload: what is up is applied, what is refused makes it fail.
    let (code, said, complaint) = tell("client", &["reload"]);
    assert_eq!(code, Some(1), "{said} {complaint}");
    assert!(said.contains(&format!("both -> {up}:{http}\n")), "{said}");
    let reached = said.lines().find(|line| line.starts_with("ports -> ")).unwrap().to_owned();
    assert!(reached.ends_with(&format!(":{free}")) && !reached.contains(&taken.to_string()));
    let why = format!("both is not published at {down}: {down}: no certificate");
    for part in [why.as_str(), &format!("ports is not published at tcp://:{taken}: ")] {
        assert!(complaint.contains(part), "{complaint}");
    }
    assert!(!complaint.contains(&format!("both is not published at {up}")), "{complaint}");

    // Visitors agree.
    assert!(fetch(http, &[&format!("{up}/")]).contains("\"name\": \"web\""));
    assert!(fetch(free, &["http://127.0.0.1/"]).contains("\"name\": \"web\""));
    assert!(!curl(tls, &["--insecure", &format!("{down}/")]).status.success());

    // Logs and statuses of both sides.
    for (log, line) in [
        ("server", format!("service both of client home is published at {up}")),
        ("server", format!("service both of client home is not published at {down}")),
        ("client", format!("service both is published at {up}")),
        ("client", format!("service {why}")),
    ] {
        let log = fs::read_to_string(dir.join(format!("{log}.log"))).unwrap();
        assert!(log.contains(&line), "{line}: {log}");
    }
    for side in ["client", "server"] {
        let status = running.status(side).unwrap();
        let services = status["sessions"][0]["services"].as_array().unwrap();
        for (at, is_up) in
            [(up, true), (down, false), (&format!(":{free}"), true), (&format!(":{taken}"), false)]
        {
            let one = services.iter().find(|one| one["address"].as_str().unwrap().contains(at));
            let one = one.unwrap_or_else(|| panic!("{side}: {at}: {status}"));
            assert_eq!(one["state"] == "up", is_up, "{side}: {one}");
        }
        let (code, text, _) = tell(side, &["status"]);
        assert!(code == Some(0) && text.contains(&format!("both is not published at {down}: ")));
    }

    // What the server can do by itself: the port becomes free, and the client asks again.
    drop(listener);
    wait("the port is published", 3 * SOON, || {
        let (_, text, _) = tell("client", &["status"]);
        (!text.contains("ports is not published")).then_some(())
    });
    assert!(fetch(taken, &["http://127.0.0.1/"]).contains("\"name\": \"web\""));
    let (_, text, _) = tell("client", &["status"]);
    assert!(text.contains(&why), "{text}");
}

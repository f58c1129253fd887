//! HTTP by name.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;

use super::origin::Web;
use super::{Doors, certificate, connect, fetch, published, status, talk};
use crate::harness::{Origin, SOON, Scheme, bytes, run, side_by_side, tunnel, wait};
use crate::reload::outcome;

#[test]
fn each_request_reaches_the_service_of_its_host() {
    let doors = Doors::with(Scheme::TLS, ", domain: own.example", "");
    let (http, dir) = (doors.http, doors.setup.dir().to_owned());
    let (a, b) = (Web::start(&dir, "a"), Web::start(&dir, "b"));
    let _running = doors.start(&[
        ("http://a.example.com", a.port, ""),
        ("http://*.b.example.com", b.port, ""),
        ("http://*", a.port, ", headers: { set: { X-Default: \"yes\" } }"),
        ("http://{name}", b.port, ""),
    ]);
    let name = |url: &str| {
        let body: serde_json::Value = serde_json::from_str(&fetch(http, &[url])).unwrap();
        let is_default = body["fields"]["X-Default"] == "yes";
        (body["name"].as_str().unwrap().to_owned(), is_default)
    };
    for (url, wanted, is_default) in [
        ("http://a.example.com/", "a", false),
        ("http://A.Example.COM./x", "a", false),
        ("http://x.b.example.com/", "b", false),
        ("http://x.y.b.example.com/", "b", false),
        ("http://home.own.example/", "b", false),
        ("http://b.example.com/", "a", true),
        ("http://localhost/", "a", true),
        ("http://[::1]/", "a", true),
    ] {
        assert_eq!(name(url), (wanted.to_owned(), is_default), "{url}");
    }
    // One connection, requests for three services, the last of which needs the proxy.
    let get = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let last = "GET / HTTP/1.1\r\nHost: c.example\r\nConnection: close\r\n\r\n";
    let answer = talk(
        http,
        format!("{}{}{}{last}", get("a.example.com"), get("x.b.example.com"), get("a.example.com"))
            .as_bytes(),
    );
    let names: Vec<_> = answer.split("\"name\": \"").skip(1).map(|rest| &rest[..1]).collect();
    assert_eq!(names, ["a", "b", "a", "a"], "{answer}");
    // HTTP/2 without TLS.
    let args =
        ["--http2-prior-knowledge", "http://a.example.com/two", "http://x.b.example.com/two"];
    let said = fetch(http, &args);
    assert!(said.contains("\"name\": \"a\"") && said.contains("\"name\": \"b\""), "{said}");
    for path in ["chunked", "close"] {
        let body = fetch(http, &[&format!("http://a.example.com/{path}")]);
        assert!(body == "one two a" || body == "until the end", "{body}");
    }
    assert!(fetch(http, &["--head", "http://a.example.com/"]).starts_with("HTTP/1.1 200 OK"));
}

#[test]
fn bodies_pass_unchanged_over_every_transport_and_half_close_is_kept() {
    side_by_side(Scheme::ALL, |scheme| {
        let doors = Doors::new(scheme);
        let (http, dir) = (doors.http, doors.setup.dir().to_owned());
        // It answers when the visitor has ended its direction.
        let files = Origin::start(|mut socket| {
            let _ = socket.read_to_end(&mut Vec::new());
            let _ = write!(socket, "HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n");
            bytes::send(&socket, 10_000_000);
        });
        fs::write(dir.join("big"), vec![b'x'; 10_000_000]).unwrap();
        let web = Web::start(&dir, "web");
        let _running = doors.start(&[
            ("http://files.example.com", files.port(), ""),
            ("http://web.example.com", web.port, ""),
        ]);
        let mut socket = connect(http);
        let request = "GET /big HTTP/1.1\r\nHost: files.example.com\r\nConnection: close\r\n\r\n";
        socket.write_all(request.as_bytes()).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        socket.read_to_end(&mut all).unwrap();
        let body = all.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(all.len() - body, 10_000_000);

        let file = dir.join("big");
        let upload = format!("@{}", file.display());
        let args = ["--data-binary", &upload, "http://web.example.com/", "http://web.example.com/"];
        assert_eq!(fetch(http, &args), "web got 10000000".repeat(2));
    });
}

#[test]
fn a_reset_arrives_as_a_reset_and_a_service_that_is_down_is_a_page() {
    side_by_side(Scheme::ALL, |scheme| {
        let doors = Doors::new(scheme);
        let http = doors.http;
        // The service resets in the middle of its response, once the visitor has the begin.
        let (has_begun, begun) = std::sync::mpsc::channel::<()>();
        let begun = std::sync::Mutex::new(begun);
        let origin = Origin::start(move |mut socket| {
            let _ = socket.read(&mut [0; 1000]);
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart";
            let _ = socket.write_all(head.as_bytes());
            let _ = begun.lock().unwrap().recv();
            crate::harness::reset_on_drop(&socket);
        });
        let down = crate::harness::free_port();
        let running = doors.start(&[
            ("http://resets.example.com", origin.port(), ""),
            ("http://down.example.com", down, ""),
            ("http://down-proxied.example.com", down, ", forwarded: true"),
        ]);
        // A worker without a link passes the visitor to another worker, which does not tell why.
        let links = std::thread::available_parallelism().map_or(1, usize::from);
        wait("a link of each worker", SOON, || {
            let log = running.server.log();
            (log.matches(" has connected with link ").count() >= links).then_some(())
        });
        let mut socket = connect(http);
        write!(socket, "GET / HTTP/1.1\r\nHost: resets.example.com\r\n\r\n").unwrap();
        let mut all = vec![0; "HTTP/1.1 200 OK".len()];
        socket.read_exact(&mut all).unwrap();
        has_begun.send(()).unwrap();
        let end = socket.read_to_end(&mut all);
        assert!(end.is_err(), "{}", String::from_utf8_lossy(&all));
        for host in ["down.example.com", "down-proxied.example.com"] {
            let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let answer = talk(http, request.as_bytes());
            assert!(status(&answer) == "502" && answer.contains("refused"), "{answer}");
        }
    });
}

#[test]
fn requests_that_two_servers_may_read_differently_are_refused() {
    let doors = Doors::new(Scheme::TLS);
    let (http, dir) = (doors.http, doors.setup.dir().to_owned());
    let web = Web::start(&dir, "web");
    let _running = doors.start(&[
        ("http://a.example.com", web.port, ""),
        ("http://proxied.example.com", web.port, ", forwarded: true"),
    ]);
    for host in ["a.example.com", "proxied.example.com"] {
        let lines = [
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            "Content-Length: 3\r\nContent-Length: 4",
            "Transfer-Encoding: gzip",
            "X-A : b",
            "X-A: b\r\n c",
            "X-A: b\nX-B: c",
            "Host: other.example",
        ];
        for lines in lines {
            let request = format!("POST / HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n\r\n0\r\n\r\n");
            let answer = talk(http, request.as_bytes());
            assert_eq!(status(&answer), "400", "{host} {lines:?}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
        }
        let absolute = |host_field: &str| {
            let head = format!("GET http://{host}/abs HTTP/1.1\r\nHost: {host_field}\r\n");
            talk(http, format!("{head}Connection: close\r\n\r\n").as_bytes())
        };
        assert_eq!(status(&absolute(host)), "200");
        assert_eq!(status(&absolute("other.example")), "400");
        let long = "x".repeat(33 << 10);
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nX-Long: {long}\r\n\r\n");
        assert_eq!(status(&talk(http, request.as_bytes())), "431");
    }
}

#[test]
fn options_of_a_service_are_applied() {
    let doors = Doors::with(Scheme::TLS, ", route_header: X-Target", "");
    let (http, dir) = (doors.http, doors.setup.dir().to_owned());
    let (web, api) = (Web::start(&dir, "web"), Web::start(&dir, "api"));
    let options = ", basic_auth: \"user:pass\", host_rewrite: inner.example, forwarded: true, \
                   headers: { set: { X-Set: \"1\" }, remove: [User-Agent] }, \
                   response_headers: { set: { X-Answer: \"2\" }, remove: [Server-Secret] }";
    let running = doors.start(&[
        ("http://a.example.com", web.port, options),
        ("http://p.example.com", web.port, ""),
        ("http://p.example.com", api.port, ", path: /api"),
    ]);
    let code = |args: &[&str]| {
        let args = [&["--output", "/dev/null", "--write-out", "%{http_code}"], args].concat();
        fetch(http, &args)
    };
    assert_eq!(code(&["http://a.example.com/"]), "401");
    assert_eq!(code(&["--user", "user:wrong", "http://a.example.com/"]), "401");
    let said = fetch(http, &["--include", "--user", "user:pass", "http://a.example.com/x"]);
    assert!(said.contains("x-answer: 2") || said.contains("X-Answer: 2"), "{said}");
    assert!(!said.contains("Secret"), "{said}");
    let body: serde_json::Value =
        serde_json::from_str(said.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let fields: Vec<_> = body["fields"].as_object().unwrap().iter().collect();
    let field = |name: &str| {
        let found = fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str().unwrap().to_owned())
    };
    assert_eq!(field("Host").as_deref(), Some("inner.example"), "{said}");
    assert_eq!(field("X-Set").as_deref(), Some("1"));
    assert_eq!(field("X-Forwarded-For").as_deref(), Some("127.0.0.1"));
    assert_eq!(field("X-Forwarded-Host").as_deref(), Some("a.example.com"));
    assert_eq!((field("Authorization"), field("User-Agent")), (None, None));
    for (path, name) in [("/api", "api"), ("/api/v1", "api"), ("/apis", "web"), ("/", "web")] {
        let said = fetch(http, &[&format!("http://p.example.com{path}")]);
        assert!(said.contains(&format!("\"name\": \"{name}\"")), "{path}: {said}");
    }
    // Another field than Host names the target.
    let said = fetch(http, &["--header", "X-Target: p.example.com", "http://any.example/api"]);
    assert!(said.contains("\"name\": \"api\""), "{said}");
    let log = format!(
        "{}{}",
        running.server.log(),
        fs::read_to_string(running.file("client.log")).unwrap_or_default()
    );
    assert!(!log.contains("pass\"") && !log.contains("user:pass"), "{log}");
}

#[test]
fn a_name_belongs_to_one_client_and_needs_a_right() {
    let mut doors = Doors::new(Scheme::TLS);
    let (http, dir) = (doors.http, doors.setup.dir().to_owned());
    let web = Web::start(&dir, "web");
    let token = String::from_utf8(run(&mut tunnel(&["generate", "token"])).stdout).unwrap();
    let token = token.trim();
    doors.setup.server_lines = doors.setup.server_lines.replacen(
        "http:",
        &format!(
            "  - {{ name: other, token: \"{token}\", allow: {{ http: a.example.com }} }}\nhttp:"
        ),
        1,
    );
    let running = doors.start(&[("http://a.example.com", web.port, "")]);
    let other = running.start_another_client(|text| {
        let text = text.replace("name: home", "name: other");
        let line = |key: &str| {
            let line = text.lines().find(|line| line.starts_with(key));
            line.unwrap_or_default().to_owned()
        };
        let text = text.replace(&line("token:"), &format!("token: \"{token}\""));
        let (before, after) = text.split_once("services:\n").unwrap();
        let after: Vec<_> = after.lines().filter(|line| !line.starts_with("  -")).collect();
        let (port, after) = (web.port, after.join("\n"));
        format!(
            "{before}services: [\"http://a.example.com={port}\", \
             \"http://b.example.com={port}\"]\n{after}\n"
        )
    });
    other.wait_line(&["http://a.example.com is taken: another client publishes this name"], SOON);
    other.wait_line(&["tunnel allow other --http b.example.com"], SOON);
    let audit = running.server.log();
    assert!(
        audit.contains("service http-b.example.com of client other is not published"),
        "{audit}"
    );
    assert!(fetch(http, &["http://a.example.com/"]).contains("\"name\": \"web\""));
    // The client leaves, and the name is free for the other one.
    drop(other);
}

#[test]
fn a_visitor_of_a_name_that_is_just_coming_back_waits_for_it() {
    let doors = Doors::new(Scheme::TLS);
    let (http, dir) = (doors.http, doors.setup.dir().to_owned());
    let web = Web::start(&dir, "web");
    let mut running = doors.start(&[("http://a.example.com", web.port, "")]);
    running.server.kill();
    running.start_server_again();
    // The client is not back yet.
    let said = fetch(http, &["--retry-connrefused", "--retry", "20", "http://a.example.com/"]);
    assert!(said.contains("\"name\": \"web\""), "{said}");
}

#[test]
fn pages_are_replaced_and_a_reload_replaces_them_again() {
    let doors =
        Doors::with(Scheme::TLS, ", pages: { not_found: lost.html, unavailable: down.html }", "");
    let (http, dir) = (doors.http, doors.setup.dir().to_owned());
    fs::write(dir.join("lost.html"), "nobody here: {status}").unwrap();
    fs::write(dir.join("down.html"), "down: {reason}").unwrap();
    let down = crate::harness::free_port();
    let running = doors.start(&[("http://down.example.com", down, "")]);
    let body = |host: &str| fetch(http, &[&format!("http://{host}/")]);
    assert!(body("down.example.com").starts_with("down: "));
    // For a moment after its start the server waits for clients that may have the name.
    assert_eq!(body("lost.example.com"), "nobody here: 404");
    fs::write(dir.join("lost.html"), "still nobody").unwrap();
    let (code, said, complaint) = outcome(running.reload("server"));
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
    assert_eq!(body("lost.example.com"), "still nobody");
    fs::remove_file(dir.join("lost.html")).unwrap();
    let (code, _, complaint) = outcome(running.reload("server"));
    assert!(code == Some(2) && complaint.contains("lost.html"), "{code:?} {complaint}");
    assert_eq!(body("lost.example.com"), "still nobody");
}

#[test]
fn lists_and_limits_hold_for_names() {
    let mut doors = Doors::new(Scheme::TLS);
    let http = doors.http;
    doors.setup.server_lines =
        doors.setup.server_lines.replacen("http:", "    limits: { streams: 2 }\nhttp:", 1);
    // It answers at once, and holds the connection until the visitor leaves.
    let origin = Origin::start(|mut socket| {
        let _ = socket.read(&mut [0; 1000]);
        let _ = write!(socket, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
        let _ = socket.read(&mut [0; 1]);
    });
    let running = doors.start(&[
        ("http://few.example.com", origin.port(), ", deny_from: 127.0.0.1"),
        ("http://open.example.com", origin.port(), ""),
    ]);
    let ask = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    assert_eq!(status(&talk(http, ask("few.example.com").as_bytes())), "403");
    let enter = || {
        let mut socket = connect(http);
        socket.write_all(ask("open.example.com").as_bytes()).unwrap();
        let mut line = [0; "HTTP/1.1 200".len()];
        socket.read_exact(&mut line).unwrap();
        (String::from_utf8_lossy(&line[9..]).into_owned(), socket)
    };
    let held = [enter(), enter()];
    assert!(held.iter().all(|(status, _)| status == "200"));
    assert_eq!(enter().0, "503");
    let shown = running.status("server").unwrap();
    let services = shown["sessions"][0]["services"].as_array().unwrap();
    let few = services.iter().find(|one| one["name"] == "s0").unwrap();
    assert_eq!(few["refused"]["visitor_denied"], 1, "{shown}");
    drop(held);
    wait("the places are free", SOON, || (enter().0 == "200").then_some(()));
}

#[test]
fn a_source_has_so_many_requests_per_second() {
    let keys = ", certificates: [{ cert: one.crt, key: one.key }]";
    let doors = Doors::with(Scheme::TLS, "", keys);
    let (http, tls, dir) = (doors.http, doors.tls, doors.setup.dir().to_owned());
    certificate(&dir, "one", "DNS:*.example.com");
    let web = Web::start(&dir, "web");
    let limit = ", limits: { source: { requests_per_second: 3 } }";
    let running = doors.start(&[
        ("http://a.example.com", web.port, limit),
        ("https://b.example.com", web.port, limit),
    ]);
    // The statuses of 30 requests over one connection, and the delays that were told.
    let ask = |port: u16, source: &str, version: &str, url: &str| -> Vec<(String, String)> {
        let format = "%{http_code} %{num_connects} %header{retry-after}\\n";
        let url = format!("{url}.example.com/[1-30]");
        let args = ["-o", "/dev/null", "--insecure", "--interface", source, version, "-w", format];
        let said = fetch(port, &[&args[..], &[&url]].concat());
        let lines: Vec<Vec<_>> = said.lines().map(|line| line.split(' ').collect()).collect();
        assert_eq!(lines.len(), 30, "{said}");
        for (nth, line) in lines.iter().enumerate() {
            assert_eq!(line[1], if nth == 0 { "1" } else { "0" }, "{said}");
        }
        lines.iter().map(|line| (line[0].to_owned(), line[2].to_owned())).collect()
    };
    let (served, refused) = (("200".into(), String::new()), ("429".into(), "1".into()));
    let mut counts = [0, 0];
    for (nth, port, source, version, url) in [
        (0, http, "127.0.0.1", "--http1.1", "http://a"),
        (0, http, "127.0.0.2", "--http1.1", "http://a"),
        (1, tls, "127.0.0.1", "--http1.1", "https://b"),
        (1, tls, "127.0.0.2", "--http2", "https://b"),
    ] {
        let all = ask(port, source, version, url);
        assert_eq!(all[..3], [(); 3].map(|()| served.clone()), "{source} {url}");
        // A slow machine may serve some of the others.
        assert!(all[3..].contains(&refused), "{all:?}");
        assert!(all.iter().all(|one| *one == served || *one == refused), "{all:?}");
        counts[nth] += all.iter().filter(|one| **one == refused).count();
    }
    let shown = running.status("server").unwrap();
    for (nth, count) in counts.iter().enumerate() {
        let services = &shown["sessions"][0]["services"];
        assert_eq!(services[nth]["refused"]["limit"], *count, "{shown}");
    }
    // A reload lifts the limit.
    running.edit_client(|text| text.replace(limit, ""));
    let (code, said, complaint) = outcome(running.reload("client"));
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
    wait("all requests are served", SOON, || {
        let all = ask(http, "127.0.0.1", "--http1.1", "http://a");
        all.iter().all(|one| *one == served).then_some(())
    });
}

#[test]
fn silent_visitors_keep_nobody_out() {
    let doors = Doors::new(Scheme::TLS);
    let (http, tls, dir) = (doors.http, doors.tls, doors.setup.dir().to_owned());
    let web = Web::start(&dir, "web");
    let mut running = doors.start(&[("http://a.example.com", web.port, "")]);
    let silent: Vec<_> = (0..300).flat_map(|_| [connect(http), connect(tls)]).collect();
    let mut slow = connect(http);
    slow.write_all(b"GET / HTTP/1.1\r\nHost: a.exa").unwrap();
    for _ in 0..3 {
        assert!(fetch(http, &["http://a.example.com/"]).contains("\"name\": \"web\""));
    }
    running.client().kill();
    running.start_client();
    published(&running, 2);
    // A head that is not complete in time is answered.
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert_eq!(status(&answer), "408", "{answer}");
    drop(silent);
    let garbage = talk(http, b"\x00\x01\x02 garbage\r\n\r\n");
    assert_eq!(status(&garbage), "400");
}

#[test]
fn pass_through_needs_a_right() {
    let mut doors = Doors::new(Scheme::TLS);
    let (http, dir) = (doors.http, doors.setup.dir().to_owned());
    let (a, b) = (Web::start(&dir, "a"), Web::start(&dir, "b"));
    doors.setup.more_rights.push("pass_through: true".to_owned());
    let running = doors.start(&[
        ("http://a.example.com", a.port, ", pass_through: true"),
        ("http://b.example.com", b.port, ""),
    ]);
    let two = "GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n\
               GET / HTTP/1.1\r\nHost: b.example.com\r\nConnection: close\r\n\r\n";
    let names = |answer: &str| -> Vec<String> {
        answer.split("\"name\": \"").skip(1).map(|rest| rest[..1].to_owned()).collect()
    };
    // Only the first request is looked at.
    assert_eq!(names(&talk(http, two.as_bytes())), ["a", "a"]);
    running.edit_server(|text| text + "trusted_proxies: [127.0.0.1]\n");
    let (code, said, _) = outcome(running.reload("server"));
    assert_eq!(code, Some(0), "{said}");
    // A reverse proxy mixes the requests of its visitors.
    assert_eq!(names(&talk(http, two.as_bytes())), ["a", "b"]);
    running.edit_server(|text| text.replace(", pass_through: true", ""));
    let (code, said, _) = outcome(running.reload("server"));
    assert_eq!(code, Some(0), "{said}");
    running.server.wait_line(&["pass_through", "is not allowed"], SOON);
    wait("the service is not published", SOON, || {
        let shown = running.status("server")?;
        let services = shown["sessions"][0]["services"].as_array()?.clone();
        let refused = services.iter().find(|one| one["name"] == "s0")?;
        let is_told = refused["state_text"].as_str()?.contains("pass_through");
        (refused["state"] == "refused" && is_told).then_some(())
    });
}

#[test]
fn a_response_outlives_the_carrier_that_dies_under_it() {
    let mut doors = Doors::new(Scheme::TLS);
    let http = doors.http;
    doors.setup = doors.setup.wired();
    let origin = Origin::start(|mut socket| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && matches!(socket.read(&mut byte), Ok(1)) {
            head.push(byte[0]);
        }
        let total = 20_000_000;
        let _ = write!(socket, "HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n\r\n");
        bytes::send(&socket, total);
    });
    let running = doors.start(&[("http://a.example.com", origin.port(), "")]);
    let mut socket = connect(http);
    write!(socket, "GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n").unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    running.wire().kill();
    bytes::expect(&socket, 20_000_000);
}

//! The log of requests, and the figures of requests in metrics and status.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use serde_json::Value;

use super::origin::Web;
use super::{Doors, connect, fetch, status, talk};
use crate::harness::{SOON, Scheme, wait};

/// The lines of a file, once there are so many.
fn lines(path: &Path, count: usize) -> Vec<String> {
    wait("the lines are in the log of requests", SOON, || {
        let text = fs::read_to_string(path).ok()?;
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
}

/// What all paths have in common: a name with an option, one without, HTTP/1.1, HTTP/2, and doors.
#[test]
fn each_request_has_a_line_whoever_answers_it_and_the_figures_count_it() {
    let mut doors = Doors::new(Scheme::TCP);
    let dir = doors.setup.dir().to_owned();
    let path = dir.join("requests.log");
    doors.setup.server_lines.push_str(&format!(
        "log: {{ requests: {{ file: \"{}\", format: json }} }}\n",
        path.display()
    ));
    let web = Web::start(&dir, "web");
    let http = doors.http;
    let running = doors.start(&[
        ("http://bytes.example", web.port, ""),
        ("http://proxied.example", web.port, ", headers: { set: { X-A: b } }"),
        ("http://none.example", 1, ""),
    ]);
    // The line may come after the answer. Then the next request, maybe of another worker, must
    // wait.
    let count = Cell::new(0);
    let logged = || {
        count.set(count.get() + 1);
        lines(&path, count.get());
    };
    for host in ["bytes", "proxied"] {
        let url = format!("http://{host}.example/x?token=secret");
        let asked = ["-A", "agent \"x\"", "-e", "http://ann:pw@r.example/?key=secret", &url];
        assert!(fetch(http, &asked).contains("\"path\": \"/x?token=secret\""));
        logged();
    }
    let prior = ["--http2-prior-knowledge", "http://proxied.example/h2"];
    assert!(fetch(http, &prior).contains("/h2"));
    logged();
    assert!(talk(http, b"GET /lost HTTP/1.1\r\nHost: nobody.example\r\n\r\n").contains(" 404 "));
    logged();
    assert!(talk(http, b"GET /down HTTP/1.1\r\nHost: none.example\r\n\r\n").contains(" 502 "));
    logged();
    assert!(talk(http, b"nonsense\r\n\r\n").contains(" 400 "));
    let lines: Vec<Value> =
        lines(&path, 6).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 6, "{lines:?}");
    for (line, (host, service)) in lines.iter().zip([("bytes", "s0"), ("proxied", "s1")]) {
        assert_eq!(line["host"], format!("{host}.example"), "{line}");
        assert_eq!((&line["service"], &line["client"]), (&service.into(), &"home".into()));
        assert_eq!((&line["method"], &line["path"]), (&"GET".into(), &"/x".into()));
        assert_eq!((&line["status"], &line["complete"]), (&200.into(), &true.into()));
        assert_eq!(
            (&line["visitor"], &line["protocol"]),
            (&"127.0.0.1".into(), &"HTTP/1.1".into())
        );
        assert_eq!(
            (&line["user_agent"], &line["referer"]),
            (&"agent \"x\"".into(), &"http://r.example/".into())
        );
        assert!(line["bytes"].as_u64().unwrap() > 50, "{line}");
        assert!(line["first_byte_seconds"].as_f64() <= line["seconds"].as_f64(), "{line}");
    }
    assert_eq!((&lines[2]["path"], &lines[2]["protocol"]), (&"/h2".into(), &"HTTP/2.0".into()));
    let outcome = |line: &Value| (line["path"].clone(), line["status"].clone());
    assert_eq!(outcome(&lines[3]), ("/lost".into(), 404.into()));
    assert_eq!(outcome(&lines[4]), ("/down".into(), 502.into()));
    assert_eq!(lines[4]["service"], "s2");
    assert_eq!(outcome(&lines[5]), (Value::Null, 400.into()));
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("secret") && !text.contains("pw"), "{text}");
    let requests = wait("the status has the requests", SOON, || {
        let status = running.status("server")?;
        let services = status["sessions"][0]["services"].as_array()?.clone();
        let of = |name: &str| {
            let service = services.iter().find(|service| service["name"] == name)?;
            Some(service["requests"].clone())
        };
        Some([of("s0")?, of("s1")?, of("s2")?])
    });
    assert_eq!(requests[0]["statuses"]["2xx"], 1, "{requests:?}");
    assert_eq!(requests[1]["statuses"]["2xx"], 2, "{requests:?}");
    assert_eq!(requests[2]["statuses"]["5xx"], 1, "{requests:?}");
    let count = |of: &Value| -> u64 {
        let buckets = of["first_byte"].as_array().unwrap();
        buckets.iter().map(|bucket| bucket["count"].as_u64().unwrap()).sum()
    };
    assert_eq!(requests.each_ref().map(count), [1, 2, 1]);
}

/// Asks on a connection that stays, and reads the whole answer.
fn ask(kept: &mut BufReader<TcpStream>, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: bytes.example\r\n\r\n");
    kept.get_mut().write_all(request.as_bytes()).unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(kept.read_line(&mut head).unwrap() > 0, "{path}: {head}");
    }
    assert_eq!(status(&head), "200", "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect(&head);
    let mut body = vec![0; length.parse().unwrap()];
    kept.read_exact(&mut body).unwrap();
    assert!(String::from_utf8(body).unwrap().contains(path), "{path}");
}

#[test]
fn a_reload_opens_the_file_again_and_ends_or_begins_the_log_on_kept_connections() {
    let mut doors = Doors::new(Scheme::TCP);
    let dir = doors.setup.dir().to_owned();
    let (path, moved) = (dir.join("requests.log"), dir.join("requests.log.old"));
    doors.setup.server_lines.push_str(&format!("log: {{ requests: \"{}\" }}\n", path.display()));
    let web = Web::start(&dir, "web");
    let http = doors.http;
    let running = doors.start(&[("http://bytes.example", web.port, "")]);
    let mut kept = BufReader::new(connect(http));
    ask(&mut kept, "/before");
    let first = lines(&path, 1);
    let (begin, rest) = first[0].split_once("] ").unwrap();
    assert!(begin.starts_with("127.0.0.1 - - ["), "{first:?}");
    assert!(rest.starts_with("\"GET /before HTTP/1.1\" 200 "), "{first:?}");
    assert!(rest.contains(" host=bytes.example service=s0 client=home seconds="), "{first:?}");
    fs::rename(&path, &moved).unwrap();
    running.reload("server");
    ask(&mut kept, "/after");
    assert!(lines(&path, 1)[0].contains("/after"));
    assert_eq!(lines(&moved, 1).len(), 1);
    running.edit_server(|text| text.replace("log: { requests:", "# log: { requests:"));
    running.reload("server");
    ask(&mut kept, "/unlogged");
    // Its answer says that the request before has ended at the server, too.
    ask(&mut kept, "/next");
    running.edit_server(|text| text.replace("# log: { requests:", "log: { requests:"));
    running.reload("server");
    ask(&mut kept, "/again");
    let text = wait("the log goes on", SOON, || {
        fs::read_to_string(&path).ok().filter(|text| text.contains("/again"))
    });
    assert!(!text.contains("/unlogged"), "{text}");
}

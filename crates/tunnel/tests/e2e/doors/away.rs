//! Names whose clients are away, and clients on hold: what visitors get, over HTTP and HTTPS, over
//! HTTP/1.1 and HTTP/2, on the byte path and through the proxy.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use testkit::stage::Running;

use super::origin::Web;
use super::{Doors, certificate, curl, talk};
use crate::harness::{LONG, SOON, Scheme, run, tunnel, wait};
use crate::reload::outcome;

/// A server with these names of the client, and its visitors.
struct Site {
    running: Running,
    http: u16,
    tls: u16,
    ca: String,
    _web: Web,
}

const NAMES: [&str; 5] = [
    "http://plain.example.com",
    "http://proxied.example.com",
    "https://secure.example.com",
    "tls://through.example.com",
    "http://ends.example.com",
];

impl Site {
    fn start(http_keys: &str) -> Self {
        let tls_keys = ", certificates: [{ cert: one.crt, key: one.key }]";
        let pages =
            format!(", pages: {{ unavailable: away.html, not_found: lost.html }}{http_keys}");
        let doors = Doors::with(Scheme::TLS, &pages, tls_keys);
        let (http, tls, dir) = (doors.http, doors.tls, doors.setup.dir().to_owned());
        certificate(&dir, "one", "DNS:secure.example.com");
        fs::write(dir.join("away.html"), "away: {status} {reason}").unwrap();
        fs::write(dir.join("lost.html"), "lost: {status}").unwrap();
        let web = Web::start(&dir, "web");
        let keys = ["", ", forwarded: true", "", "", ", remember: false"];
        let services: Vec<_> =
            NAMES.iter().zip(keys).map(|(name, keys)| (*name, web.port, keys)).collect();
        let running = doors.start(&services);
        let ca = dir.join("one.crt").to_str().unwrap().to_owned();
        Self { running, http, tls, ca, _web: web }
    }

    /// The status, `Retry-After` and body of a request with these arguments.
    fn ask(&self, url: &str, args: &[&str]) -> (String, String, String) {
        let port = if url.starts_with("https") { self.tls } else { self.http };
        let format = "\n%{http_code} %header{retry-after}";
        let args = [&["--cacert", &self.ca, "--write-out", format], args, &[url]].concat();
        let output = curl(port, &args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        let (body, last) = said.rsplit_once('\n').unwrap();
        let (status, retry) = last.split_once(' ').unwrap();
        (status.to_owned(), retry.to_owned(), body.to_owned())
    }

    fn status(&self, url: &str) -> String {
        self.ask(url, &[]).0
    }

    /// A visitor of each kind gets this answer: status, `Retry-After`, begin of the page.
    fn all_get(&self, status: &str, retry: &str, page: &str) {
        for (url, args) in [
            ("http://plain.example.com/x", &["--http1.1"][..]),
            ("http://plain.example.com/x", &["--http2-prior-knowledge"]),
            ("http://proxied.example.com/x", &["--http1.1"]),
            ("http://proxied.example.com/x", &["--http2-prior-knowledge"]),
            ("https://secure.example.com/x", &["--http1.1"]),
            ("https://secure.example.com/x", &["--http2"]),
        ] {
            let (got, after, body) = self.ask(url, args);
            assert_eq!((&*got, &*after), (status, retry), "{url} {args:?}: {body}");
            assert!(body.starts_with(page), "{url} {args:?}: {body}");
            let (got, after, body) = self.ask(url, &[args, &["--head"]].concat());
            assert_eq!((&*got, &*after), (status, retry), "{url} {args:?}");
            assert!(!body.contains(page), "an answer to HEAD has no body: {body}");
        }
        for name in ["plain", "proxied"] {
            let head = format!("HEAD / HTTP/1.1\r\nHost: {name}.example.com\r\n\r\n");
            let answer = talk(self.http, head.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            assert!(answer.ends_with("\r\n\r\n"), "an answer to HEAD has no body: {answer}");
        }
    }

    fn tell(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let control = self.running.file("server.sock");
        outcome(run(tunnel(words).arg("--control").arg(control)))
    }

    fn wait_status(&self, url: &str, status: &str) {
        wait(&format!("{url} answers {status}"), LONG, || {
            (self.status(url) == status).then_some(())
        });
    }
}

#[test]
fn names_answer_while_their_client_is_away_until_it_withdraws_them() {
    let mut site = Site::start("");
    let reason = "The client of this service is not connected.";
    let page = format!("away: 502 {reason}");
    assert_eq!(site.status("http://plain.example.com/"), "200");

    // A client that stops keeps its names. A visitor waits for it at first.
    site.running.client().terminate();
    site.running.client().wait_end(LONG);
    site.wait_status("http://ends.example.com/", "404");
    site.all_get("502", "30", &page);
    assert!(!curl(site.tls, &["--insecure", "https://through.example.com/"]).status.success());
    let (_, text, _) = site.tell(&["status"]);
    for name in [&NAMES[0], &NAMES[2]] {
        assert!(text.contains(*name), "{text}");
    }
    assert!(!text.contains(NAMES[4]), "{text}");
    let status = site.running.status("server").unwrap();
    assert_eq!(status["names_away_total"], 4, "{status}");
    assert_eq!(status["names_away"][0]["client"], "home");

    // A restart of the server, in order and by force.
    for is_killed in [false, true] {
        if is_killed {
            site.running.server.kill();
        } else {
            site.running.server.terminate();
        }
        site.running.server.wait_end(LONG);
        site.running.start_server_again();
        wait("the server answers", SOON, || site.running.status("server"));
        site.all_get("502", "30", &page);
    }
    let file = fs::read_dir(site.running.dir().join("state")).unwrap();
    let file = file.map(|one| one.unwrap()).find(|one| one.file_name() == "names").unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    // The client comes back, and withdraws a name.
    site.running.start_client();
    site.wait_status("http://plain.example.com/", "200");
    assert_eq!(site.status("https://secure.example.com/"), "200");
    site.running.edit_client(|text| {
        let keep = |line: &&str| !line.contains(NAMES[0]);
        text.lines().filter(keep).map(|line| format!("{line}\n")).collect()
    });
    let (code, said, complaint) = outcome(site.running.reload("client"));
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
    assert_eq!(site.ask("http://plain.example.com/", &[]).2, "lost: 404");

    // The client is killed, and loses a right, and then is removed.
    site.running.client().kill();
    site.running.client().wait_end(SOON);
    site.wait_status("https://secure.example.com/", "502");
    site.running.edit_server(|text| text.replacen("http: [\"*\"]", "http: secure.example.com", 1));
    assert_eq!(outcome(site.running.reload("server")).0, Some(0));
    assert_eq!(site.status("http://proxied.example.com/"), "404");
    assert_eq!(site.status("https://secure.example.com/"), "502");
    site.running.edit_server(|text| text.replacen("name: home", "name: another", 1));
    assert_eq!(outcome(site.running.reload("server")).0, Some(0));
    assert!(!curl(site.tls, &["--insecure", "https://secure.example.com/"]).status.success());
    assert!(site.running.status("server").unwrap()["names_away"].is_null());
}

#[test]
fn a_hold_answers_for_a_client_until_it_is_ended() {
    let mut site = Site::start("");
    let dir = site.running.dir().to_owned();
    // A request that runs when the hold begins ends as if there was none.
    let mut slow = super::connect(site.http);
    let head = "POST /x HTTP/1.1\r\nHost: plain.example.com\r\nContent-Length: 5\r\n\r\n";
    std::io::Write::write_all(&mut slow, head.as_bytes()).unwrap();
    wait("the request is at the target", SOON, || {
        let status = site.running.status("server")?;
        let services = status["sessions"][0]["services"].as_array()?.clone();
        services.iter().any(|one| one["streams"] == 1).then_some(())
    });
    fs::write(dir.join("hold.html"), "maintenance: {status}").unwrap();
    let page = dir.join("hold.html");
    let words =
        ["clients", "hold", "home", "--page", page.to_str().unwrap(), "--retry-after", "2h"];
    let (code, said, complaint) = site.tell(&words);
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
    assert!(said.starts_with("client `home` is on hold for "), "{said}");
    site.all_get("503", "7200", "maintenance: 503");
    std::io::Write::write_all(&mut slow, b"hello").unwrap();
    let mut line = [0; 12];
    std::io::Read::read_exact(&mut slow, &mut line).unwrap();
    assert_eq!(&line, b"HTTP/1.1 200");
    let next = "GET / HTTP/1.1\r\nHost: plain.example.com\r\n\r\n";
    std::io::Write::write_all(&mut slow, next.as_bytes()).unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut slow, &mut rest).unwrap();
    assert!(rest.contains("HTTP/1.1 503 "), "the next request on the connection: {rest}");

    for words in [&["status"][..], &["clients"], &["clients", "show", "home"]] {
        let (_, text, _) = site.tell(words);
        assert!(text.contains("on hold") || text.contains("hold  "), "{words:?}: {text}");
    }
    // It outlives both sides, also while the client is away.
    site.running.client().kill();
    site.running.client().wait_end(SOON);
    site.running.server.terminate();
    site.running.server.wait_end(LONG);
    site.running.start_server_again();
    wait("the server answers", SOON, || site.running.status("server"));
    site.all_get("503", "7200", "maintenance: 503");
    site.running.start_client();
    wait("the client is back", SOON, || {
        let status = site.running.status("server")?;
        (status["sessions"][0]["state"] == "up").then_some(())
    });
    site.all_get("503", "7200", "maintenance: 503");

    let (code, said, _) = site.tell(&["clients", "hold", "home", "--off"]);
    assert_eq!((code, said.as_str()), (Some(0), "client `home` is not on hold any more\n"));
    site.wait_status("http://plain.example.com/", "200");
    assert_eq!(site.status("https://secure.example.com/"), "200");
    for wrong in [
        &["clients", "hold", "home", "--off"][..],
        &["clients", "hold", "nobody"],
        &["clients", "hold", "home", "--retry-after", "soon"],
    ] {
        assert_eq!(site.tell(wrong).0, Some(2), "{wrong:?}");
    }
}

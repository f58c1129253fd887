//! Visitors over HTTP of an `https://` name, services that redirect, and a proxy in front that ends
//! TLS.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Command;

use super::rules::origin;
use super::{Doors, certificate, connect, published, status, talk};
use crate::harness::{Nginx, Scheme, free_port, program, run};

/// A server with a certificate for `names`, and further keys of `http`.
fn doors(names: &str, keys: &str) -> Doors {
    let doors =
        Doors::with(Scheme::TCP, keys, ", certificates: [{ cert: site.crt, key: site.key }]");
    certificate(doors.setup.dir(), "site", names);
    doors
}

/// curl at these ports of a host, which follows redirects. The output is the last answer, with
/// `CODE REDIRECTS` behind it.
fn follow(url: &str, host: &str, ports: &[u16], more: &[&str]) -> String {
    let mut curl = Command::new(program("curl"));
    curl.args(["--silent", "--show-error", "--max-time", "60", "--location", "--insecure"]);
    for port in ports {
        curl.arg("--resolve").arg(format!("{host}:{port}:127.0.0.1"));
    }
    curl.args(["--write-out", " %{http_code} %{num_redirects}", url]).args(more);
    let output = run(&mut curl);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The status of the answer to a request over HTTP, and the value of its `Location`.
fn ask(port: u16, host: &str, path: &str) -> (String, String) {
    let mut socket = connect(port);
    write!(socket, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let lines = BufReader::new(socket).lines().map(Result::unwrap);
    let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    let location = head.iter().find_map(|line| line.strip_prefix("Location: "));
    (status(&head[0]).to_owned(), location.unwrap_or_default().to_owned())
}

#[test]
fn http_leads_to_the_https_name_unless_a_service_has_the_http_name() {
    let names = "DNS:only.example,DNS:both.example,DNS:off.example,DNS:paths.example";
    let mut doors = doors(names, "");
    let (a, b) = (origin("a"), origin("b"));
    let (http, tls) = (doors.http, doors.tls);
    doors.setup.client_lines.push_str("services:\n");
    for (nth, (public, target, keys)) in [
        ("https://only.example", a.port(), ", hsts: 180d"),
        ("https://both.example", a.port(), ""),
        ("http://both.example", b.port(), ""),
        ("https://off.example", a.port(), ", redirect: false"),
        ("https://paths.example", a.port(), ""),
        ("http://paths.example", b.port(), ", path: /plain"),
        ("http://*.example", b.port(), ""),
    ]
    .into_iter()
    .enumerate()
    {
        let target = format!("tcp://127.0.0.1:{target}");
        let lines = &mut doors.setup.client_lines;
        writeln!(lines, "  - {{ name: s{nth}, target: \"{target}\", public: \"{public}\"{keys} }}")
            .unwrap();
    }
    doors.setup.client_lines.push_str(
        "  - { name: alone, public: \"http://alone.example\", \
         redirect: \"http://www.{host}/new{path}?{query}\" }\n",
    );
    let running = doors.setup.start();
    published(&running, 8);
    let at = |host: &str, path: &str| ask(http, &format!("{host}:{http}"), path);
    let to = |location: String| ("308".to_owned(), location);
    let ok = || ("200".to_owned(), String::new());
    assert_eq!(at("only.example", "/x?y=1"), to(format!("https://only.example:{tls}/x?y=1")));
    assert_eq!(at("both.example", "/"), ok());
    // The service of the wildcard is farther from the host, but the only one left.
    assert_eq!(at("off.example", "/"), ok());
    assert_eq!(at("paths.example", "/plain/x"), ok());
    assert_eq!(at("paths.example", "/x"), to(format!("https://paths.example:{tls}/x")));
    assert_eq!(at("alone.example", "/x?y"), to("http://www.alone.example/new/x?y".into()));
    // The port is not that of the door: it is mapped, as that of TLS.
    assert_eq!(ask(http, "only.example", "/"), to("https://only.example/".into()));
    let all = |host: &str| {
        follow(&format!("http://{host}:{http}/"), host, &[http, tls], &["--data", "body"])
    };
    assert_eq!(all("only.example"), "a    200 1");
    assert_eq!(all("both.example"), "b    200 0");
    let hsts = |url: &str, port: u16| {
        let host = "only.example";
        follow(&url.replace('#', &port.to_string()), host, &[http, tls], &["--head"])
            .to_lowercase()
            .matches("strict-transport-security: max-age=15552000")
            .count()
    };
    assert_eq!(hsts("https://only.example:#/", tls), 1);
    // The redirect has none, and the answer behind it has one.
    assert_eq!(hsts("http://only.example:#/", http), 1);
    // One connection: redirected and served by turns.
    let mut kept = String::new();
    for host in ["both.example", "only.example", "both.example", "alone.example"] {
        write!(kept, "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    }
    kept.push_str("GET / HTTP/1.1\r\nHost: only.example\r\nConnection: close\r\n\r\n");
    let answer = talk(http, kept.as_bytes());
    let codes: Vec<_> =
        answer.match_indices("HTTP/1.1 ").map(|(at, _)| &answer[at + 9..at + 12]).collect();
    assert_eq!(codes, ["200", "308", "200", "308", "308"], "{answer}");
}

#[test]
fn a_server_that_redirects_nobody_says_404() {
    let doors = doors("DNS:only.example", ", redirect: false");
    let (a, http) = (origin("a"), doors.http);
    let _running = doors.start(&[("https://only.example", a.port(), "")]);
    assert_eq!(ask(http, "only.example", "/").0, "404");
}

#[test]
fn a_trusted_proxy_that_ends_tls_never_loops() {
    let mut doors = doors("DNS:only.example", "");
    doors.setup.server_lines.push_str("trusted_proxies: [127.0.0.1]\n");
    let (a, http, dir) = (origin("a"), doors.http, doors.setup.dir().to_owned());
    let _running = doors.start(&[("https://only.example", a.port(), ", hsts: 1d")]);
    let front = dir.join("front");
    fs::create_dir(&front).unwrap();
    let (plain, secure) = (free_port(), free_port());
    let location = format!(
        "location / {{ proxy_pass http://127.0.0.1:{http}; proxy_set_header Host $host;\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
         proxy_set_header X-Forwarded-Proto $scheme; }}"
    );
    let conf = format!(
        "error_log stderr error; events {{ }}\nhttp {{ access_log off;\n\
         server {{ listen 127.0.0.1:{plain}; {location} }}\n\
         server {{ listen 127.0.0.1:{secure} ssl; ssl_certificate {dir}/site.crt;\n\
         ssl_certificate_key {dir}/site.key; {location} }} }}\n",
        dir = dir.display()
    );
    let _nginx = Nginx::start_with(&front, &conf, plain);
    let url = format!("https://only.example:{secure}/x");
    let ports = [secure];
    assert_eq!(follow(&url, "only.example", &ports, &[]), "a    200 0");
    assert!(follow(&url, "only.example", &ports, &["--head"]).contains("max-age=86400"));
    // Over the port without TLS the visitor is sent to the usual port of nginx.
    let to = ("308".to_owned(), "https://only.example/x".to_owned());
    assert_eq!(ask(plain, "only.example", "/x"), to);
    // A visitor who claims to have come over TLS is redirected by nginx's own word.
    let forged = "GET / HTTP/1.1\r\nHost: only.example\r\nX-Forwarded-Proto: https\r\n\
                  Connection: close\r\n\r\n";
    assert_eq!(status(&talk(plain, forged.as_bytes())), "308");
}

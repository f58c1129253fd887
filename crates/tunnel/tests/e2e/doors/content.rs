//! What a service does with the content of its answers: compression, and the files of a directory.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{Doors, certificate, curl, fetch, published};
use crate::harness::{SOON, Scheme, wait};

/// Doors with services whose targets are folders.
fn folders(services: &[(&str, &Path, &str)]) -> Doors {
    let keys = ", certificates: [{ cert: one.crt, key: one.key }]";
    let mut doors = Doors::with(Scheme::TLS, "", keys);
    certificate(doors.setup.dir(), "one", "DNS:*.example.com");
    let lines = &mut doors.setup.client_lines;
    lines.push_str("services:\n");
    for (nth, (name, folder, keys)) in services.iter().enumerate() {
        let folder = folder.display();
        writeln!(
            lines,
            "  - {{ name: s{nth}, target: \"file://{folder}\", \
             public: [\"http://{name}\", \"https://{name}\"]{keys} }}"
        )
        .unwrap();
    }
    doors
}

/// The value of a field in the head that curl shows.
fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (field, value) = line.split_once(": ")?;
        field.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

#[test]
fn answers_are_compressed_over_every_protocol_for_visitors_that_accept_it() {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..5_000).map(|n| format!("line {n}\n")).collect();
    fs::write(folder.path().join("a.txt"), &text).unwrap();
    fs::write(folder.path().join("a.css"), &text).unwrap();
    fs::write(folder.path().join("a.png"), &text).unwrap();
    let doors = folders(&[
        ("on.example.com", folder.path(), ", compress: true"),
        ("always.example.com", folder.path(), ", compress: always"),
        ("off.example.com", folder.path(), ""),
    ]);
    let (http, tls) = (doors.http, doors.tls);
    let running = doors.setup.start();
    published(&running, 3);
    for (port, scheme, protocol) in [
        (http, "http", "--http1.1"),
        (http, "http", "--http2-prior-knowledge"),
        (tls, "https", "--http1.1"),
        (tls, "https", "--http2"),
    ] {
        let get = |host: &str, path: &str, more: &[&str]| {
            let url = format!("{scheme}://{host}.example.com/{path}");
            fetch(port, &[&["--insecure", protocol, "--dump-header", "-"], more, &[&url]].concat())
        };
        let encoding = |host: &str, path: &str, more: &[&str]| {
            let head = get(host, path, &[&["--output", "/dev/null"], more].concat());
            assert!(head.starts_with("HTTP/"), "{head}");
            field(&head, "content-encoding").map(str::to_owned)
        };
        let said = get("on", "a.txt", &["--compressed"]);
        assert!(said.contains("ncoding: ") && said.ends_with(&text), "{protocol}: {}", said.len());
        let cookie = ["--header", "Cookie: a=b"];
        for coding in ["zstd", "gzip", "br"] {
            let accepts = format!("Accept-Encoding: {coding}");
            let accepts = ["--header", accepts.as_str()];
            let of = |host, path, more: &[&str]| encoding(host, path, &[&accepts, more].concat());
            assert_eq!(of("on", "a.txt", &[]).as_deref(), Some(coding), "{scheme} {protocol}");
            assert_eq!(of("on", "a.css", &cookie).as_deref(), Some(coding));
            assert_eq!(of("always", "a.txt", &cookie).as_deref(), Some(coding));
            assert_eq!(of("on", "a.txt", &cookie), None);
            assert_eq!(of("on", "a.png", &[]), None);
            assert_eq!(of("on", "a.txt", &["--range", "0-4000"]), None);
            assert_eq!(of("off", "a.txt", &[]), None);
        }
        assert_eq!(encoding("on", "a.txt", &[]), None);
    }
}

#[test]
fn a_folder_is_a_site_an_application_or_a_listing() {
    let folder = tempfile::tempdir().unwrap();
    let bare = folder.path().join("bare");
    fs::create_dir(&bare).unwrap();
    for (name, text) in [
        ("index.html", "the application"),
        ("bare/a b.txt", "a"),
        ("big.js", "big"),
        ("big.js.br", "br"),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let doors = folders(&[
        ("site.example.com", folder.path(), ""),
        ("app.example.com", folder.path(), ", try_files: index.html"),
        ("list.example.com", folder.path(), ", list: true"),
    ]);
    let (http, tls) = (doors.http, doors.tls);
    let mut running = doors.setup.start();
    published(&running, 3);
    for (port, scheme) in [(http, "http"), (tls, "https")] {
        let status = |host: &str, path: &str| {
            let url = format!("{scheme}://{host}.example.com/{path}");
            let args = ["--insecure", "--output", "/dev/null", "--write-out", "%{http_code}", &url];
            fetch(port, &args)
        };
        let get = |host: &str, path: &str| {
            fetch(
                port,
                &["--insecure", "--location", &format!("{scheme}://{host}.example.com/{path}")],
            )
        };
        assert_eq!(status("site", "bare/"), "403");
        assert_eq!(status("site", "absent"), "404");
        assert_eq!(status("site", "bare"), "307");
        assert_eq!(get("app", "user/7"), "the application");
        assert_eq!(get("app", "bare/a%20b.txt"), "a");
        assert_eq!(get("list", ""), "the application");
        let listing = get("list", "bare");
        assert!(listing.contains("<a href=\"./a%20b.txt\">a b.txt</a>"), "{listing}");
        let url = format!("{scheme}://site.example.com/big.js");
        let accepts = ["--insecure", "--header", "Accept-Encoding: br", &url];
        assert_eq!(curl(port, &accepts).stdout, b"br");
    }
    // Several workers of the client may serve the visitors, and each tells once a minute.
    wait("the hint for the owner", SOON, || {
        let log = running.client().log();
        (log.contains("has no index.html") && log.contains("`list: true`")).then_some(())
    });
}

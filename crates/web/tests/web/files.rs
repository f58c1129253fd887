//! Static files, as a visitor sees them.

use std::os::unix::fs::symlink;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use proto::Unlimited;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::Instant;
use web::{Account, FileOptions, Files};

use crate::{
    memory::{KIB, MIB, Purse},
    rig::{BUFFER, head, on_worker, rest, send, status},
};

/// A directory with files, beside a secret.
fn site() -> (tempfile::TempDir, Files) {
    site_with(FileOptions::default())
}

fn site_with(options: FileOptions) -> (tempfile::TempDir, Files) {
    let base = tempfile::tempdir().unwrap();
    let www = base.path().join("www");
    for dir in ["sub", "empty", ".git", ".well-known"] {
        std::fs::create_dir_all(www.join(dir)).unwrap();
    }
    for (name, text) in [
        ("../secret", "secret"),
        ("index.html", "<p>home</p>"),
        ("sub/index.html", "<p>sub</p>"),
        ("a.txt", "0123456789"),
        ("b c.json", "{}"),
        ("noext", "x"),
        ("none.txt", ""),
        (".git/config", "secret"),
        (".htpasswd", "secret"),
        (".well-known/token", "token"),
    ] {
        std::fs::write(www.join(name), text).unwrap();
    }
    symlink("../secret", www.join("out.txt")).unwrap();
    symlink("..", www.join("parent")).unwrap();
    symlink("a.txt", www.join("link.txt")).unwrap();
    let files = Files::new(&www, options).unwrap();
    (base, files)
}

struct Client {
    io: DuplexStream,
    served: JoinHandle<()>,
}

fn connect(files: &Files) -> Client {
    connect_at(files, Account::open(Rc::new(Unlimited), 0).unwrap())
}

/// A connection whose memory is charged to an account.
fn connect_at(files: &Files, account: Rc<Account>) -> Client {
    let (io, server) = duplex(BUFFER);
    let files = files.clone();
    Client { io, served: spawn_local(async move { files.serve(server, account).await }) }
}

impl Client {
    /// Sends a request and reads the answer to it.
    async fn ask(&mut self, method: &str, path: &str, fields: &str) -> (String, Vec<u8>) {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        send(&mut self.io, &request).await;
        let head = head(&mut self.io).await;
        let length = field(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        let has_body = method != "HEAD" && status(&head) != 304;
        let mut body = vec![0; if has_body { length } else { 0 }];
        self.io.read_exact(&mut body).await.unwrap();
        (head, body)
    }

    async fn get(&mut self, path: &str) -> (u16, Vec<u8>) {
        let (head, body) = self.ask("GET", path, "").await;
        (status(&head), body)
    }
}

/// The value of a field, whatever the case of its name.
fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (field, value) = line.split_once(": ")?;
        field.eq_ignore_ascii_case(name).then_some(value)
    })
}

#[test]
fn files_have_their_bytes_their_length_and_their_type() {
    on_worker(async {
        let (_base, files) = site();
        let mut client = connect(&files);
        for (path, kind, body) in [
            ("/", "text/html; charset=utf-8", "<p>home</p>"),
            ("/index.html", "text/html; charset=utf-8", "<p>home</p>"),
            ("/sub/", "text/html; charset=utf-8", "<p>sub</p>"),
            ("/a.txt", "text/plain; charset=utf-8", "0123456789"),
            ("/a.txt?x=..", "text/plain; charset=utf-8", "0123456789"),
            ("/b%20c.json", "application/json", "{}"),
            ("/noext", "application/octet-stream", "x"),
            ("/none.txt", "text/plain; charset=utf-8", ""),
            ("/link.txt", "text/plain; charset=utf-8", "0123456789"),
            ("/.well-known/token", "application/octet-stream", "token"),
            ("http://a/a.txt", "text/plain; charset=utf-8", "0123456789"),
        ] {
            let (head, got) = client.ask("GET", path, "").await;
            assert_eq!(status(&head), 200, "{path}");
            assert_eq!(String::from_utf8(got).unwrap(), body, "{path}");
            assert_eq!(field(&head, "content-type"), Some(kind), "{path}");
            assert_eq!(field(&head, "x-content-type-options"), Some("nosniff"));
            let (of_head, _) = client.ask("HEAD", path, "").await;
            let without_date = |head: &str| {
                let lines = head.lines().filter(|line| !line.to_lowercase().starts_with("date"));
                lines.map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(without_date(&of_head), without_date(&head), "{path}");
        }
    });
}

#[test]
fn nothing_outside_of_the_directory_and_nothing_hidden_is_served() {
    on_worker(async {
        let (_base, files) = site();
        let mut client = connect(&files);
        for path in [
            "/absent",
            "/a.txt/",
            "/a.txt/x",
            "/.git/config",
            "/%2egit/config",
            "/.htpasswd",
            "/../secret",
            "/sub/../../secret",
            "/%2e%2e/secret",
            "/%2e%2e%2fsecret",
            "/..%2fsecret",
            "/..%5csecret",
            "/sub/..%2f..%2fsecret",
            "/%252e%252e/secret",
            "/a.txt%00",
            "/a.txt%00.html",
            "/out.txt",
            "/parent/secret",
            "/parent/www/a.txt",
            "/etc/passwd",
            "//etc/passwd",
            &format!("/{}", "x".repeat(300)),
            &format!("/{}", "x/".repeat(3000)),
        ] {
            let (status, body) = client.get(path).await;
            assert_eq!(status, 404, "{path}");
            assert!(!String::from_utf8(body).unwrap().contains("secret"), "{path}");
        }
        // The parser of heads refuses a backslash before a path is looked at, or the path is.
        let (status, _) = client.get("/..\\secret").await;
        assert!(matches!(status, 400 | 404), "{status}");
    });
}

#[test]
fn a_directory_without_a_slash_leads_to_the_one_with_a_slash() {
    on_worker(async {
        let (base, files) = site();
        let mut client = connect(&files);
        std::fs::create_dir(base.path().join("www/sub/a:b c")).unwrap();
        for (path, location) in [
            ("/sub", "./sub/"),
            ("/sub?a=b", "./sub/?a=b"),
            ("//sub", "./sub/"),
            ("//sub//", ""),
            ("/sub/a:b%20c", "./a:b%20c/"),
        ] {
            let (head, _) = client.ask("GET", path, "").await;
            let expected = if location.is_empty() { 200 } else { 307 };
            assert_eq!(status(&head), expected, "{path}");
            assert_eq!(field(&head, "location").unwrap_or_default(), location, "{path}");
        }
    });
}

#[test]
fn other_methods_are_refused_and_the_connection_goes_on() {
    on_worker(async {
        let (_base, files) = site();
        let mut client = connect(&files);
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"] {
            let (head, _) = client.ask(method, "/a.txt", "Content-Length: 0\r\n").await;
            assert_eq!(
                (status(&head), field(&head, "allow")),
                (405, Some("GET, HEAD")),
                "{method}"
            );
        }
        assert_eq!(client.get("/a.txt").await.0, 200);
    });
}

#[test]
fn a_range_is_a_part_and_a_malformed_one_is_ignored() {
    on_worker(async {
        let (_base, files) = site();
        let mut client = connect(&files);
        for (range, code, part) in [
            ("bytes=0-0", 206, "0"),
            ("bytes=2-5", 206, "2345"),
            ("bytes=7-", 206, "789"),
            ("bytes=-3", 206, "789"),
            ("bytes=5-100", 206, "56789"),
            ("BYTES=1-2", 200, "0123456789"),
            ("bytes=10-", 416, ""),
            ("bytes=-0", 416, ""),
            ("bytes=5-2", 416, ""),
            ("bytes=0-0,2-3", 200, "0123456789"),
            ("bytes=a-b", 200, "0123456789"),
            ("bytes=-", 200, "0123456789"),
            ("lines=1-2", 200, "0123456789"),
        ] {
            let (head, body) = client.ask("GET", "/a.txt", &format!("Range: {range}\r\n")).await;
            assert_eq!(status(&head), code, "{range}");
            assert_eq!(String::from_utf8(body).unwrap(), part, "{range}");
            if code == 206 {
                assert!(field(&head, "content-range").unwrap().ends_with("/10"), "{range}");
            }
        }
        let (head, _) = client.ask("HEAD", "/a.txt", "Range: bytes=0-0\r\n").await;
        assert_eq!((status(&head), field(&head, "content-length")), (200, Some("10")));
    });
}

#[test]
fn conditions_are_kept_and_a_part_is_of_the_version_that_was_asked_for() {
    on_worker(async {
        let (base, files) = site();
        let mut client = connect(&files);
        let (head, _) = client.ask("GET", "/a.txt", "").await;
        let tag = field(&head, "etag").unwrap().to_owned();
        let date = field(&head, "last-modified").unwrap().to_owned();
        let range = "Range: bytes=8-\r\n";
        for (fields, code, body) in [
            (format!("If-None-Match: {tag}\r\n"), 304, ""),
            (format!("If-None-Match: W/{tag}\r\n"), 304, ""),
            ("If-None-Match: \"other\"\r\n".to_owned(), 200, "0123456789"),
            (format!("If-Modified-Since: {date}\r\n"), 304, ""),
            ("If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n".into(), 200, "0123456789"),
            (format!("If-Match: {tag}\r\n"), 200, "0123456789"),
            ("If-Match: \"other\"\r\n".to_owned(), 412, "page"),
            (format!("If-Range: {tag}\r\n{range}"), 206, "89"),
            (format!("If-Range: \"other\"\r\n{range}"), 200, "0123456789"),
            (format!("If-Range: W/{tag}\r\n{range}"), 200, "0123456789"),
            (format!("If-Range: {date}\r\n{range}"), 200, "0123456789"),
            (format!("If-Range: {tag}\r\n"), 200, "0123456789"),
        ] {
            let (head, got) = client.ask("GET", "/a.txt", &fields).await;
            assert_eq!(status(&head), code, "{fields}");
            if body != "page" {
                assert_eq!(String::from_utf8(got).unwrap(), body, "{fields}");
            }
        }
        std::fs::write(base.path().join("www/a.txt"), "abcdefghij!").unwrap();
        let resumed = format!("If-Range: {tag}\r\n{range}");
        let (head, body) = client.ask("GET", "/a.txt", &resumed).await;
        assert_eq!((status(&head), &body[..]), (200, &b"abcdefghij!"[..]));
    });
}

#[test]
fn a_large_file_arrives_whole_also_after_the_visitor_has_ended_its_direction() {
    on_worker(async {
        let (base, files) = site();
        let large: Vec<u8> = (0..10_000_000_u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(base.path().join("www/large"), &large).unwrap();
        let mut client = connect(&files);
        let request = b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        client.io.write_all(request).await.unwrap();
        client.io.shutdown().await.unwrap();
        let head = head(&mut client.io).await;
        assert_eq!(field(&head, "content-length"), Some("10000000"));
        let mut body = Vec::new();
        client.io.read_to_end(&mut body).await.unwrap();
        assert!(body == large);
        client.served.await.unwrap();
    });
}

#[test]
fn a_file_that_shrinks_is_never_a_complete_answer() {
    on_worker(async {
        let (base, files) = site();
        let path = base.path().join("www/large");
        std::fs::write(&path, vec![1; 4 << 20]).unwrap();
        let mut client = connect(&files);
        send(&mut client.io, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
        head(&mut client.io).await;
        std::fs::File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
        let mut body = Vec::new();
        client.io.read_to_end(&mut body).await.unwrap();
        assert!(body.len() < 4 << 20, "{}", body.len());
    });
}

#[test]
fn many_visitors_that_read_nothing_leave_the_files_to_others() {
    on_worker(async {
        let (base, files) = site();
        std::fs::write(base.path().join("www/large"), vec![1; 4 << 20]).unwrap();
        let mut stalled = Vec::new();
        for _ in 0..100 {
            let mut client = connect(&files);
            send(&mut client.io, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
            head(&mut client.io).await;
            stalled.push(client);
        }
        let mut client = connect(&files);
        assert_eq!(client.get("/a.txt").await.0, 200);
    });
}

#[test]
fn what_is_read_of_a_file_is_charged_and_little_is_read_while_memory_is_short() {
    on_worker(async {
        let (base, files) = site();
        let large: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(base.path().join("www/large"), &large).unwrap();
        std::fs::write(base.path().join("www/piece"), &large[..64 << 10]).unwrap();
        // The memory of the reader, and the piece that it makes.
        for (path, total, range) in [
            ("/piece", 8 * MIB, 128 * KIB..200 * KIB),
            ("/a.txt", 8 * MIB, 0..48 * KIB),
            ("/large", 64 * KIB, 0..64 * KIB),
        ] {
            let purse = Purse::new(total);
            let account = Account::open(Rc::<Purse>::clone(&purse), 0).unwrap();
            let mut client = connect_at(&files, account);
            let (status, body) = client.get(path).await;
            assert_eq!((status, large.starts_with(&body)), (200, path != "/a.txt"), "{path}");
            assert!(range.contains(&purse.peak.get()), "{path}: {}", purse.peak.get());
            drop(client.io);
            client.served.await.unwrap();
            assert_eq!(purse.used(), 0, "{path}");
        }
    });
}

#[test]
fn ambiguous_requests_are_refused_and_slow_or_idle_connections_end() {
    on_worker(async {
        let (_base, files) = site();
        let mut client = connect(&files);
        let smuggled =
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
        send(&mut client.io, smuggled).await;
        assert_eq!(status(&rest(&mut client.io).await), 400);

        let begin = Instant::now();
        let mut client = connect(&files);
        send(&mut client.io, "GET / HT").await;
        assert_eq!(status(&rest(&mut client.io).await), 408);
        assert!(begin.elapsed() >= Duration::from_secs(10));

        let begin = Instant::now();
        let mut client = connect(&files);
        assert_eq!(rest(&mut client.io).await, "");
        assert!(begin.elapsed() >= Duration::from_secs(10));

        let begin = Instant::now();
        let mut client = connect(&files);
        assert_eq!(client.get("/a.txt").await.0, 200);
        assert_eq!(rest(&mut client.io).await, "");
        assert!(begin.elapsed() >= Duration::from_secs(75));
    });
}

#[test]
fn a_new_version_has_a_new_tag() {
    on_worker(async {
        let (base, files) = site();
        let path = base.path().join("www/a.txt");
        let mut client = connect(&files);
        let mut tags = Vec::new();
        for seconds in [1000, 2000] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            let (head, _) = client.ask("HEAD", "/a.txt", "").await;
            tags.push(field(&head, "etag").unwrap().to_owned());
        }
        assert_ne!(tags[0], tags[1]);
    });
}

#[test]
fn a_directory_that_is_not_listed_says_so_and_its_files_are_served() {
    on_worker(async {
        let (base, files) = site();
        let mut client = connect(&files);
        for path in ["/empty/", "/.well-known/"] {
            let (head, body) = client.ask("GET", path, "").await;
            assert_eq!(status(&head), 403, "{path}");
            assert!(String::from_utf8(body).unwrap().contains("is not listed"), "{path}");
            let (head, _) = client.ask("HEAD", path, "").await;
            assert_eq!(status(&head), 403, "{path}");
        }
        std::fs::write(base.path().join("www/empty/new.txt"), "new").unwrap();
        assert_eq!(client.get("/empty/new.txt").await, (200, b"new".to_vec()));
        assert_eq!(client.get("/empty/").await.0, 403);
    });
}

fn listed() -> FileOptions {
    FileOptions { list: true, ..FileOptions::default() }
}

#[test]
fn a_listing_shows_what_a_visitor_may_reach_and_no_name_is_markup() {
    on_worker(async {
        let (base, files) = site_with(listed());
        let folder = base.path().join("www/empty");
        let odd = "<b>&\"'x'.txt";
        for (name, bytes) in
            [("b.txt", 1), ("A.txt", 2048), (odd, 3), ("a:b?#%.txt", 4), (".hidden", 5)]
        {
            std::fs::write(folder.join(name), vec![b'x'; bytes]).unwrap();
        }
        std::fs::create_dir(folder.join("zdir")).unwrap();
        std::fs::create_dir(folder.join(".git")).unwrap();
        symlink("../../secret", folder.join("leads-out")).unwrap();
        symlink("/etc/passwd", folder.join("absolute")).unwrap();
        symlink("../.htpasswd", folder.join("to-hidden")).unwrap();
        symlink("b.txt", folder.join("leads-in")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let mut client = connect(&files);
        let (head, body) = client.ask("GET", "/empty/", "Accept-Encoding: gzip\r\n").await;
        assert_eq!(status(&head), 200);
        assert_eq!(field(&head, "content-type"), Some("text/html; charset=utf-8"));
        let policy = field(&head, "content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        let page = String::from_utf8(body).unwrap();
        let links: Vec<&str> =
            page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        let odd = "./%3Cb%3E%26%22%27x%27.txt";
        let expected =
            ["../", "./zdir/", odd, "./A.txt", "./a%3Ab%3F%23%25.txt", "./b.txt", "./leads-in"];
        assert_eq!(links, expected);
        assert!(page.contains("&lt;b&gt;&amp;&quot;&#39;x&#39;.txt</a>"), "{page}");
        assert!(page.contains("2.0 KiB") && !page.contains("<script"), "{page}");
        for link in links {
            let path =
                link.strip_prefix("./").map_or_else(|| "/".into(), |to| format!("/empty/{to}"));
            assert_eq!(client.get(&path).await.0, 200, "{path}");
        }
        let (of_head, _) = client.ask("HEAD", "/empty/", "").await;
        assert_eq!(field(&of_head, "content-length"), field(&head, "content-length"));
        // An index goes first, and what is hidden is never listed.
        assert_eq!(client.get("/").await, (200, b"<p>home</p>".to_vec()));
        assert_eq!(client.get("/.well-known/").await.0, 403);
        assert_eq!(client.get("/absent/").await.0, 404);
    });
}

#[test]
fn a_listing_is_bounded_and_says_so() {
    on_worker(async {
        let (base, files) = site_with(listed());
        let folder = base.path().join("www/empty");
        for n in 0..5_001 {
            std::fs::write(folder.join(format!("{n}")), "").unwrap();
        }
        let mut client = connect(&files);
        let page = String::from_utf8(client.get("/empty/").await.1).unwrap();
        assert_eq!(page.matches("<a href=\"./").count(), 5_000);
        assert!(page.contains("The listing ends after 5000 entries"), "{}", page.len());
    });
}

#[test]
fn the_files_of_try_files_are_served_where_a_path_names_none() {
    on_worker(async {
        let try_files = ["{path}.html", "app/index.html"].map(Box::from).into();
        let options = FileOptions { try_files, ..FileOptions::default() };
        let (base, files) = site_with(options);
        std::fs::create_dir(base.path().join("www/app")).unwrap();
        std::fs::write(base.path().join("www/app/index.html"), "app").unwrap();
        std::fs::write(base.path().join("www/about.html"), "about").unwrap();
        std::fs::write(base.path().join("www/sub/page.html"), "page").unwrap();
        let mut client = connect(&files);
        for (path, code, body) in [
            ("/about", 200, "about"),
            ("/about?x=1", 200, "about"),
            ("/sub/page", 200, "page"),
            ("/user/7", 200, "app"),
            ("/user/7/", 200, "app"),
            ("/empty/", 200, "app"),
            ("/a.txt/x", 200, "app"),
            ("/a.txt", 200, "0123456789"),
            ("/", 200, "<p>home</p>"),
            ("/sub/", 200, "<p>sub</p>"),
            ("/out.txt", 200, "app"),
        ] {
            let (head, got) = client.ask("GET", path, "").await;
            assert_eq!(status(&head), code, "{path}");
            assert_eq!(String::from_utf8(got).unwrap(), body, "{path}");
            if body == "app" {
                let kind = field(&head, "content-type");
                assert_eq!(kind, Some("text/html; charset=utf-8"), "{path}");
            }
        }
        // What may not be served has no fallback.
        for path in ["/.git/config", "/%2e%2e/secret", "/..%2fsecret", "/.env"] {
            assert_eq!(client.get(path).await.0, 404, "{path}");
        }
        let (head, _) = client.ask("GET", "/user/7", "").await;
        let tag = format!("If-None-Match: {}\r\n", field(&head, "etag").unwrap());
        assert_eq!(status(&client.ask("GET", "/user/8", &tag).await.0), 304);
    });
}

/// Sets the time of change, in seconds.
fn touch(path: &std::path::Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn a_compressed_variant_is_served_to_those_who_accept_it() {
    on_worker(async {
        let (base, files) = site();
        let www = base.path().join("www");
        for (name, text) in [("a.txt.gz", "gzip......"), ("a.txt.br", "brotli...."), ("x.br", "x")]
        {
            std::fs::write(www.join(name), text).unwrap();
        }
        for name in ["a.txt", "a.txt.gz", "a.txt.br"] {
            touch(&www.join(name), 1000);
        }
        let mut client = connect(&files);
        let mut tags = Vec::new();
        for (accepted, coding, body) in [
            ("", None, "0123456789"),
            ("Accept-Encoding: gzip\r\n", Some("gzip"), "gzip......"),
            ("Accept-Encoding: gzip, br\r\n", Some("br"), "brotli...."),
            ("Accept-Encoding: gzip, br;q=0.5\r\n", Some("gzip"), "gzip......"),
            ("Accept-Encoding: zstd, identity\r\n", None, "0123456789"),
            ("Accept-Encoding: gzip;q=0\r\n", None, "0123456789"),
        ] {
            let (head, got) = client.ask("GET", "/a.txt", accepted).await;
            assert_eq!(status(&head), 200, "{accepted}");
            assert_eq!(String::from_utf8(got).unwrap(), body, "{accepted}");
            assert_eq!(field(&head, "content-encoding"), coding, "{accepted}");
            assert_eq!(field(&head, "vary"), Some("Accept-Encoding"), "{accepted}");
            assert_eq!(field(&head, "content-type"), Some("text/plain; charset=utf-8"));
            let tag = field(&head, "etag").unwrap().to_owned();
            let asked = format!("{accepted}If-None-Match: {tag}\r\n");
            let (head, _) = client.ask("GET", "/a.txt", &asked).await;
            assert_eq!(status(&head), 304, "{accepted}");
            assert_eq!(field(&head, "vary"), Some("Accept-Encoding"), "{accepted}");
            assert_eq!(field(&head, "content-encoding"), None, "{accepted}");
            tags.push((coding, tag));
        }
        // The length and the time are the same, and the tags are not.
        tags.sort();
        tags.dedup();
        assert_eq!(tags.len(), 3, "{tags:?}");
        // A range is one of the variant.
        let part = "Accept-Encoding: br\r\nRange: bytes=0-5\r\n";
        let (head, body) = client.ask("GET", "/a.txt", part).await;
        assert_eq!((status(&head), &body[..]), (206, &b"brotli"[..]));
        assert_eq!(field(&head, "content-encoding"), Some("br"));
        let past = "Accept-Encoding: br\r\nRange: bytes=50-\r\n";
        let (head, _) = client.ask("GET", "/a.txt", past).await;
        assert_eq!((status(&head), field(&head, "content-encoding")), (416, None));
        // A variant of an earlier version, and one without a file, do not count.
        touch(&www.join("a.txt"), 1001);
        let (head, body) = client.ask("GET", "/a.txt", "Accept-Encoding: br\r\n").await;
        assert_eq!((field(&head, "content-encoding"), &body[..]), (None, &b"0123456789"[..]));
        assert_eq!(field(&head, "vary"), None);
        assert_eq!(status(&client.ask("GET", "/x", "Accept-Encoding: br\r\n").await.0), 404);
        let (head, body) = client.ask("GET", "/a.txt.gz", "Accept-Encoding: gzip\r\n").await;
        assert_eq!((field(&head, "content-encoding"), &body[..]), (None, &b"gzip......"[..]));
    });
}

#[test]
fn a_file_whose_time_no_field_can_tell_is_served_without_it() {
    on_worker(async {
        let (base, files) = site();
        let path = base.path().join("www/a.txt");
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(5);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(before).unwrap();
        let (head, _) = connect(&files).ask("GET", "/a.txt", "").await;
        assert_eq!((status(&head), field(&head, "last-modified")), (200, None));
    });
}

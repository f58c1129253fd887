//! TLS by name: passed through, or ended at the server.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::origin::Web;
use super::{Doors, certificate, connect, curl, fetch};
use crate::harness::{Nginx, Scheme, program, run, side_by_side};
use crate::reload::outcome;

/// An nginx that speaks TLS and HTTP/2 with the certificate `inner`.
pub(super) fn secure_nginx(doors: &Doors) -> (Nginx, u16) {
    let (dir, port) = (doors.setup.dir().to_owned(), crate::harness::free_port());
    certificate(&dir, "inner", "DNS:inner.example.com");
    let text = dir.display();
    let nginx = Nginx::start(
        &dir,
        &format!(
            "listen 127.0.0.1:{port} ssl http2; ssl_certificate {text}/inner.crt;\n\
             ssl_certificate_key {text}/inner.key; ssl_protocols TLSv1.2 TLSv1.3;\n\
             location = /who {{ return 200 \"$ssl_server_name $ssl_protocol $ssl_alpn_protocol\"; }}"
        ),
    );
    (nginx, port)
}

#[test]
fn tls_passes_through_end_to_end_over_every_transport() {
    side_by_side(Scheme::ALL, |scheme| {
        let doors = Doors::new(scheme);
        let (tls, dir) = (doors.tls, doors.setup.dir().to_owned());
        let (_nginx, port) = secure_nginx(&doors);
        fs::write(dir.join("www/big"), vec![b'x'; 10_000_000]).unwrap();
        let running = doors.start(&[("tls://*.example.com", port, "")]);
        let ca = dir.join("inner.crt");
        let ca = ca.to_str().unwrap();
        let who = |args: &[&str]| {
            fetch(tls, &[&["--cacert", ca], args, &["https://inner.example.com/who"]].concat())
        };
        assert_eq!(who(&["--http2"]), "inner.example.com TLSv1.3 h2");
        assert_eq!(who(&["--http1.1", "--tls-max", "1.2"]), "inner.example.com TLSv1.2 http/1.1");
        let big = fetch(tls, &["--cacert", ca, "https://inner.example.com/big"]);
        assert_eq!(big.len(), 10_000_000);
        // The server has seen neither the certificate nor a byte of the page.
        assert!(!running.server.log().contains("/who"));
    });
}

#[test]
fn a_client_hello_may_come_byte_by_byte_and_may_be_large() {
    let doors = Doors::new(Scheme::TLS);
    let tls = doors.tls;
    let (_nginx, port) = secure_nginx(&doors);
    let _running = doors.start(&[("tls://inner.example.com", port, "")]);
    let relay = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let between = relay.local_addr().unwrap();
    // A path that sends the visitor's bytes one by one.
    std::thread::spawn(move || {
        let (mut visitor, _) = relay.accept().unwrap();
        let mut server = connect(tls);
        server.set_nodelay(true).unwrap();
        let (mut back, mut to_visitor) =
            (server.try_clone().unwrap(), visitor.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back, &mut to_visitor));
        let mut byte = [0];
        while matches!(visitor.read(&mut byte), Ok(1)) {
            if server.write_all(&byte).is_err() {
                break;
            }
        }
    });
    // Many protocols make the ClientHello larger than a segment.
    let alpn: Vec<_> = (0..150).map(|n| format!("protocol-number-{n}")).collect();
    let mut openssl = Command::new(program("openssl"));
    openssl.args([
        "s_client",
        "-connect",
        &between.to_string(),
        "-servername",
        "inner.example.com",
    ]);
    openssl.args(["-alpn", &format!("{},http/1.1", alpn.join(","))]);
    openssl.args(["-quiet", "-ign_eof"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = openssl.stderr(Stdio::null()).spawn().unwrap();
    let request = "GET /who HTTP/1.1\r\nHost: inner.example.com\r\nConnection: close\r\n\r\n";
    process.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    process.stdout.take().unwrap().read_to_string(&mut answer).unwrap();
    process.wait().unwrap();
    assert!(answer.ends_with("inner.example.com TLSv1.3 http/1.1"), "{answer}");
}

#[test]
fn tls_ends_at_the_server_with_the_certificate_of_the_name() {
    let keys = ", min_version: \"1.3\", certificates: [{ cert: one.crt, key: one.key }, \
                { cert: two.crt, key: two.key }]";
    let doors = Doors::with(Scheme::TLS, "", keys);
    let (tls, dir) = (doors.tls, doors.setup.dir().to_owned());
    certificate(&dir, "one", "DNS:a.example.com,DNS:*.wild.example.com");
    certificate(&dir, "two", "DNS:x.wild.example.com");
    let web = Web::start(&dir, "web");
    let running = doors.start(&[
        ("https://a.example.com", web.port, ""),
        ("https://*.wild.example.com", web.port, ", forwarded: true"),
    ]);
    let refused = "https://none.example.org";
    let line = format!("  - {{ name: none, target: {}, public: \"{refused}\" }}\n", web.port);
    running.edit_client(|text| text.replacen("services:\n", &format!("services:\n{line}"), 1));
    let (code, _, complaint) = outcome(running.reload("client"));
    assert!(code == Some(1) && complaint.contains("certificate"), "{complaint}");
    let get = |file: &str, args: &[&str]| {
        let ca = dir.join(file);
        fetch(tls, &[&["--cacert", ca.to_str().unwrap()], args].concat())
    };
    let version = ["--write-out", " %{http_version}", "--output", "/dev/null"];
    for (args, wanted) in [(["--http2"], " 2"), (["--http1.1"], " 1.1")] {
        let args = [&args[..], &version, &["https://a.example.com/"]].concat();
        assert_eq!(get("one.crt", &args), wanted);
    }
    let said = get("one.crt", &["https://y.wild.example.com/path"]);
    assert!(said.contains("\"X-Forwarded-Proto\": \"https\""), "{said}");
    assert!(get("two.crt", &["https://x.wild.example.com/"]).contains("\"name\": \"web\""));
    let old = curl(tls, &["--insecure", "--tls-max", "1.2", "https://a.example.com/"]);
    assert!(!old.status.success(), "{old:?}");
    // A request for a host that is not the connection's is misdirected.
    let ca = dir.join("one.crt");
    let code = [
        "--write-out",
        "%{http_code}",
        "--output",
        "/dev/null",
        "--header",
        "Host: x.wild.example.com",
    ];
    let code =
        [&["--cacert", ca.to_str().unwrap()], &code[..], &["https://a.example.com/"]].concat();
    assert_eq!(fetch(tls, &code), "421");
    // A reload shows another certificate to new visitors, and a wrong file changes nothing.
    certificate(&dir, "one", "DNS:a.example.com,DNS:*.wild.example.com,DNS:new.example.com");
    let (code, said, complaint) = outcome(running.reload("server"));
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
    assert!(get("one.crt", &["https://a.example.com/"]).contains("\"name\": \"web\""));
    fs::write(dir.join("one.key"), "no key").unwrap();
    let (code, _, complaint) = outcome(running.reload("server"));
    assert!(code == Some(2) && complaint.contains("one.key"), "{code:?} {complaint}");
    assert!(get("one.crt", &["https://a.example.com/"]).contains("\"name\": \"web\""));
}

#[test]
fn a_large_upload_and_a_web_socket_pass_where_tls_ends() {
    let keys = ", certificates: [{ cert: one.crt, key: one.key }]";
    let doors = Doors::with(Scheme::TLS, "", keys);
    let (tls, dir) = (doors.tls, doors.setup.dir().to_owned());
    certificate(&dir, "one", "DNS:a.example.com");
    let web = Web::start(&dir, "web");
    let _running = doors.start(&[("https://a.example.com", web.port, "")]);
    let (ca, file) = (dir.join("one.crt"), dir.join("upload"));
    fs::write(&file, vec![b'x'; 20_000_000]).unwrap();
    let upload = format!("@{}", file.display());
    for version in ["--http1.1", "--http2"] {
        let args = [
            "--cacert",
            ca.to_str().unwrap(),
            version,
            "--data-binary",
            &upload,
            "https://a.example.com/",
        ];
        assert_eq!(fetch(tls, &args), "web got 20000000");
    }
    let (mut process, mut to, mut from) = secure_connection(tls);
    let head = "GET /socket HTTP/1.1\r\nHost: a.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    to.write_all(head.as_bytes()).unwrap();
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        from.read_line(&mut line).unwrap();
    }
    // A text frame "hi" under the mask 0.
    to.write_all(&[0x81, 0x82, 0, 0, 0, 0, b'h', b'i']).unwrap();
    let mut frame = [0; 4];
    from.read_exact(&mut frame).unwrap();
    assert_eq!(&frame, b"\x81\x02hi");
    process.kill().unwrap();
    process.wait().unwrap();
}

/// An open connection to `a.example.com` over TLS without ALPN.
fn secure_connection(tls: u16) -> (Child, ChildStdin, BufReader<ChildStdout>) {
    let mut openssl = Command::new(program("openssl"));
    openssl.args(["s_client", "-connect", &format!("127.0.0.1:{tls}"), "-quiet", "-ign_eof"]);
    openssl.args(["-servername", "a.example.com"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = openssl.stderr(Stdio::null()).spawn().unwrap();
    let (to, from) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
    (process, to, BufReader::new(from))
}

/// The status line and the body of the next response.
fn response(from: &mut impl BufRead) -> (String, String) {
    let (mut status, mut length) = (String::new(), 0);
    from.read_line(&mut status).unwrap();
    loop {
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).unwrap();
    (status, String::from_utf8(body).unwrap())
}

#[test]
fn a_kept_connection_whose_tls_ends_here_follows_the_rules_and_the_target() {
    let keys = ", certificates: [{ cert: one.crt, key: one.key }]";
    let doors = Doors::with(Scheme::TLS, "", keys);
    let (tls, dir) = (doors.tls, doors.setup.dir().to_owned());
    certificate(&dir, "one", "DNS:a.example.com");
    let web = Web::start(&dir, "web");
    let running = doors.start(&[("https://a.example.com", web.port, ", forwarded: false")]);
    let (mut process, mut to, mut from) = secure_connection(tls);
    let mut ask = |host: &str| {
        let head =
            format!("GET /path HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-Proto: as sent\r\n\r\n");
        to.write_all(head.as_bytes()).unwrap();
        response(&mut from)
    };
    // Without `forwarded` the bytes pass as they are.
    for _ in 0..2 {
        let (status, body) = ask("a.example.com");
        assert!(status.starts_with("HTTP/1.1 200 ") && body.contains("as sent"), "{status} {body}");
    }
    // The same connection, under new rules.
    running.edit_client(|text| text.replacen("forwarded: false", "forwarded: true", 1));
    let (code, said, complaint) = outcome(running.reload("client"));
    assert_eq!(code, Some(0), "{said} {complaint}");
    let (_, body) = ask("a.example.com");
    assert!(body.contains("\"X-Forwarded-Proto\": \"https\""), "{body}");
    assert!(ask("b.example.com").0.starts_with("HTTP/1.1 421 "));
    process.kill().unwrap();
    process.wait().unwrap();
    // A target that is gone is a page, and so is a request for another host.
    running.edit_client(|text| text.replacen("forwarded: true", "forwarded: false", 1));
    assert_eq!(outcome(running.reload("client")).0, Some(0));
    let (mut process, mut to, mut from) = secure_connection(tls);
    let get = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    to.write_all((get("a.example.com") + &get("b.example.com")).as_bytes()).unwrap();
    assert!(response(&mut from).0.starts_with("HTTP/1.1 200 "));
    assert!(response(&mut from).0.starts_with("HTTP/1.1 421 "));
    process.kill().unwrap();
    process.wait().unwrap();
    drop(web);
    let (mut process, mut to, mut from) = secure_connection(tls);
    to.write_all(get("a.example.com").as_bytes()).unwrap();
    let (status, page) = response(&mut from);
    assert!(status.starts_with("HTTP/1.1 502 ") && page.contains("refused"), "{status} {page}");
    assert_eq!(from.read(&mut [0]).unwrap(), 0, "the connection ends after the page");
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn a_certificate_is_shown_by_openssl_as_well() {
    let keys = ", certificates: [{ cert: one.crt, key: one.key }]";
    let doors = Doors::with(Scheme::TLS, "", keys);
    let (tls, dir) = (doors.tls, doors.setup.dir().to_owned());
    certificate(&dir, "one", "DNS:a.example.com");
    let web = Web::start(&dir, "web");
    let _running = doors.start(&[("https://a.example.com", web.port, "")]);
    let mut openssl = Command::new(program("openssl"));
    openssl.args([
        "s_client",
        "-connect",
        &format!("127.0.0.1:{tls}"),
        "-servername",
        "a.example.com",
    ]);
    openssl.args(["-alpn", "h2,http/1.1", "-CAfile"]).arg(dir.join("one.crt")).stdin(Stdio::null());
    let said = String::from_utf8_lossy(&run(&mut openssl).stdout).into_owned();
    for line in ["ALPN protocol: h2", "Verify return code: 0 (ok)", "TLSv1.3"] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

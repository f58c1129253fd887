use super::*;

/// Looks at `bytes` whole, and in two pieces cut at each byte, and one byte at a time. All ways
/// must have the same outcome.
fn look_with(route_header: Option<&str>, bytes: &[u8]) -> Looked {
    let new = || HeadSniffer::new(route_header.map(Rc::from));
    let whole = new().look(bytes);
    for cut in 0..bytes.len() {
        let mut sniffer = new();
        let mut outcome = sniffer.look(&bytes[..cut]);
        if outcome == Looked::More {
            outcome = sniffer.look(bytes);
        }
        assert_eq!(outcome, whole, "cut at {cut}: {}", bytes.escape_ascii());
    }
    let mut sniffer = new();
    let mut ends = (0..=bytes.len()).map(|end| sniffer.look(&bytes[..end]));
    let single = ends.find(|outcome| *outcome != Looked::More).unwrap_or(Looked::More);
    assert_eq!(single, whole, "byte by byte: {}", bytes.escape_ascii());
    whole
}

fn look(bytes: impl AsRef<[u8]>) -> Looked {
    look_with(None, bytes.as_ref())
}

fn head(bytes: &str) -> Head {
    let looked = look(bytes);
    let Looked::Head(head) = looked else { panic!("{bytes:?}: {looked:?}") };
    head
}

fn fault(bytes: impl AsRef<[u8]>) -> Fault {
    let (looked, bytes) = (look(&bytes), bytes.as_ref().escape_ascii());
    let Looked::Bad(fault) = looked else { panic!("{bytes}: {looked:?}") };
    fault
}

/// A request with these lines between the request line and the empty line.
fn with(fields: &str) -> String {
    format!("POST /form HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n")
}

#[test]
fn a_plain_request_is_read() {
    let text = "GET /a/b?c=/d HTTP/1.1\r\nHost: App.Example.COM.:8080\r\nAccept: */*\r\n\r\nrest";
    let head = head(text);
    let length = text.len() - "rest".len();
    let host = Some("app.example.com".into());
    assert_eq!(&text[head.path.clone()], "/a/b");
    let (method, body, path) = (Method::Other, Framing::Absent, head.path.clone());
    let (upgrade, websocket, h2c, close, version10) = (false, false, false, false, false);
    let wanted =
        Head { length, host, method, body, upgrade, websocket, h2c, close, version10, path };
    assert_eq!(head, wanted);
}

#[test]
fn the_spelling_of_the_host_does_not_matter() {
    for (field, host) in [
        ("Host: example.com", "example.com"),
        ("host:example.com", "example.com"),
        ("HOST:   Example.Com  ", "example.com"),
        ("hOsT:\texample.com:443\t", "example.com"),
        ("Host: app.home.example.com.", "app.home.example.com"),
        ("Host: localhost:3000", "localhost"),
        ("Host: 192.0.2.1:80", "192.0.2.1"),
        ("Host: [2001:DB8::1]:80", "[2001:db8::1]"),
        ("Host: [::1]", "[::1]"),
        ("Accept: x\r\nHost: example.com\r\nHost-Name: b", "example.com"),
    ] {
        let text = format!("GET / HTTP/1.1\r\n{field}\r\n\r\n");
        assert_eq!(head(&text).host.as_deref(), Some(host), "{field}");
    }
    assert_eq!(head("GET / HTTP/1.1\r\nHost:\r\n\r\n").host, None);
    assert_eq!(head("GET / HTTP/1.0\r\n\r\n").host, None);
}

#[test]
fn the_target_may_name_the_host() {
    let absolute = |target: &str, host: &str| {
        let text = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let head = head(&text);
        (head.host.unwrap().into_string(), text[head.path].to_owned())
    };
    let wanted = |host: &str, path: &str| (host.to_owned(), path.to_owned());
    assert_eq!(absolute("http://A.example/x?y", "a.example"), wanted("a.example", "/x"));
    assert_eq!(absolute("HTTP://a.example:80/x", "a.example"), wanted("a.example", "/x"));
    assert_eq!(absolute("https://a.example?q", "a.example:443"), wanted("a.example", ""));
    assert_eq!(absolute("http://[::1]:80", "[0::1]"), wanted("[::1]", ""));
    assert_eq!(head("GET http://a.example/ HTTP/1.0\r\n\r\n").host.as_deref(), Some("a.example"));
    let options = head("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_eq!((options.method, options.path), (Method::Other, 8..9));
    let connect = head("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n");
    assert_eq!((connect.method, connect.host.as_deref()), (Method::Connect, Some("a.example")));
    assert!(connect.path.is_empty());
}

#[test]
fn the_framing_is_read() {
    let body = |fields: &str| head(&with(fields)).body;
    assert_eq!(body(""), Framing::Absent);
    assert_eq!(body("Content-Length: 0\r\n"), Framing::Length(0));
    assert_eq!(body("CONTENT-LENGTH:  0042 \r\n"), Framing::Length(42));
    let digits = format!("Content-Length: {}\r\n", "9".repeat(18));
    assert_eq!(body(&digits), Framing::Length(999_999_999_999_999_999));
    assert_eq!(body("transfer-encoding: Chunked\r\n"), Framing::Chunked);
    assert_eq!(head("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").method, Method::Head);
}

#[test]
fn the_end_of_the_connection_is_read() {
    let close = |version: &str, fields: &str| {
        head(&format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n")).close
    };
    assert!(!close("1.1", ""));
    assert!(close("1.1", "Connection: close\r\n"));
    assert!(close("1.1", "connection: Keep-Alive , CLOSE\r\n"));
    assert!(close("1.1", "Connection: x\r\nConnection: close\r\n"));
    assert!(!close("1.1", "Connection: closed\r\n"));
    assert!(close("1.0", ""));
    assert!(!close("1.0", "Connection: Keep-Alive\r\n"));
    assert!(close("1.0", "Connection: keep-alive, close\r\n"));
}

#[test]
fn an_upgrade_needs_both_fields() {
    let upgrade = |version: &str, fields: &str| {
        let head = head(&format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n"));
        (head.upgrade, head.websocket, head.h2c)
    };
    let both = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
    assert_eq!(upgrade("1.1", both), (true, true, false));
    let h2c = "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: A\r\n";
    assert_eq!(upgrade("1.1", h2c), (true, false, true));
    let other = "Upgrade: foo/2, bar\r\nConnection: upgrade\r\n";
    assert_eq!(upgrade("1.1", other), (true, false, false));
    assert_eq!(upgrade("1.1", "Upgrade: websocket\r\n"), (false, false, false));
    assert_eq!(upgrade("1.1", "Connection: upgrade\r\n"), (false, false, false));
    assert_eq!(upgrade("1.1", "Connection: upgrade\r\nUpgrade:\r\n"), (false, false, false));
    // RFC 9110 section 7.8: HTTP/1.0 has no upgrade.
    assert_eq!(upgrade("1.0", both), (false, false, false));
}

/// The cases by which a second request hides in the body of a first request.
#[test]
fn a_smuggled_request_is_refused() {
    let long = format!("Content-Length: {}\r\n", "9".repeat(30));
    for (section, fields, wanted) in [
        // RFC 9112 section 6.3: the length of a body.
        (
            "9112 6.3",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            Fault::LengthAndEncoding,
        ),
        (
            "9112 6.3",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            Fault::LengthAndEncoding,
        ),
        ("9112 6.3", "Content-Length: 5\r\nContent-Length: 6\r\n", Fault::Lengths),
        ("9110 8.6", "Content-Length: 5\r\nContent-Length: 5\r\n", Fault::Lengths),
        ("9112 6.3", "Content-Length: 5, 6\r\n", Fault::Lengths),
        ("9110 8.6", "Content-Length: 5, 5\r\n", Fault::Lengths),
        ("9110 8.6", "Content-Length: +5\r\n", Fault::Length),
        ("9110 8.6", "Content-Length: -5\r\n", Fault::Length),
        ("9110 8.6", "Content-Length: 5 5\r\n", Fault::Length),
        ("9110 8.6", "Content-Length: 0x5\r\n", Fault::Length),
        ("9110 8.6", "Content-Length: 5;\r\n", Fault::Length),
        ("9110 8.6", "Content-Length:\r\n", Fault::Length),
        ("9110 8.6", "Content-Length: 1000000000000000000\r\n", Fault::Length),
        ("9110 8.6", "Content-Length:\t5\r\n", Fault::Length),
        ("9110 8.6", &long, Fault::Length),
        // RFC 9112 section 6.1: Transfer-Encoding.
        ("9112 6.3", "Transfer-Encoding: gzip\r\n", Fault::Encoding),
        ("9112 6.3", "Transfer-Encoding: chunked, gzip\r\n", Fault::Encoding),
        ("9112 6.1", "Transfer-Encoding: chunked, chunked\r\n", Fault::Encoding),
        (
            "9112 6.1",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            Fault::Encoding,
        ),
        (
            "9112 6.1",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            Fault::Encoding,
        ),
        ("9112 6.1", "Transfer-Encoding: xchunked\r\n", Fault::Encoding),
        ("9112 6.1", "Transfer-Encoding: chunked;q=1\r\n", Fault::Encoding),
        ("9112 6.1", "Transfer-Encoding: \"chunked\"\r\n", Fault::Encoding),
        ("9112 6.1", "Transfer-Encoding: chunked,\r\n", Fault::Encoding),
        ("9112 6.1", "Transfer-Encoding:\r\n", Fault::Encoding),
        ("9112 6.1", "Transfer-Encoding:\tchunked\r\n", Fault::Encoding),
        ("9112 6.1", "Transfer-Encoding: \x0bchunked\r\n", Fault::Control),
        // RFC 9112 section 5.1: white space around the name.
        ("9112 5.1", "Content-Length : 5\r\n", Fault::Blank),
        ("9112 5.1", "Transfer-Encoding\t: chunked\r\n", Fault::Blank),
        ("9112 5.1", ": x\r\n", Fault::Field),
        ("9112 5.1", "a field: x\r\n", Fault::Field),
        ("9112 5.1", "no colon\r\n", Fault::Field),
        ("9112 5.1", "Content\u{2d}Length\u{e9}: 5\r\n", Fault::Field),
        // RFC 9112 section 5.2: obs-fold.
        ("9112 5.2", "X: a\r\n b\r\n", Fault::Fold),
        ("9112 5.2", "X: a\r\n\tContent-Length: 5\r\n", Fault::Fold),
        ("9112 5.2", " X: a\r\n", Fault::Fold),
        // RFC 9112 section 2.2: line ends.
        ("9112 2.2", "X: a\nContent-Length: 5\r\n", Fault::BareLf),
        ("9112 2.2", "X: a\r\n\nGET / HTTP/1.1\r\n", Fault::BareLf),
        ("9112 2.2", "X: a\rContent-Length: 5\r\n", Fault::Control),
        ("9112 2.2", "X: a\r\r\n", Fault::Control),
        ("9110 5.5", "X: a\0b\r\n", Fault::Control),
        ("9110 5.5", "X\0: a\r\n", Fault::Control),
        ("9110 5.5", "X: a\x7f\r\n", Fault::Control),
        // RFC 9112 section 3.2: Host.
        ("9112 3.2", "Host: b.example\r\n", Fault::Hosts),
        ("9112 3.2", "hOST: a.example\r\n", Fault::Hosts),
    ] {
        let got = fault(with(fields));
        assert_eq!((got, got.status()), (wanted, 400), "RFC {section}: {fields:?}");
    }
}

#[test]
fn another_transfer_coding_is_refused_with_501() {
    for fields in [
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: gzip\r\nX: y\r\nTransfer-Encoding: chunked\r\n",
    ] {
        let got = fault(with(fields));
        assert_eq!((got, got.status()), (Fault::Coding, 501), "{fields:?}");
    }
}

#[test]
fn a_bad_host_or_target_is_refused() {
    for (section, text, wanted) in [
        ("9112 3.2", "GET / HTTP/1.1\r\n\r\n", Fault::NoHost),
        ("9112 3.2", "GET / HTTP/1.1\r\nHosts: a\r\n\r\n", Fault::NoHost),
        ("9112 3.2", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", Fault::Host),
        ("9112 3.2", "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", Fault::Host),
        ("9112 3.2", "GET / HTTP/1.1\r\nHost: a%2eb\r\n\r\n", Fault::Host),
        ("9112 3.2", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", Fault::Host),
        ("9112 3.2", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", Fault::Host),
        ("9112 3.2", "GET / HTTP/1.1\r\nHost: http://a\r\n\r\n", Fault::Host),
        ("9112 3.2", "GET / HTTP/1.0\r\nHost: a..b\r\n\r\n", Fault::Host),
        ("9112 3.2.2", "GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", Fault::HostDiffers),
        ("9112 3.2.2", "GET http://a/ HTTP/1.1\r\nHost:\r\n\r\n", Fault::HostDiffers),
        ("9112 3.2.2", "GET http://a/ HTTP/1.1\r\nHost: a:81\r\n\r\n", Fault::HostDiffers),
        ("9112 3.2.3", "CONNECT a:80 HTTP/1.1\r\nHost: a:81\r\n\r\n", Fault::HostDiffers),
        ("9112 3.2.2", "GET http://a/ HTTP/1.1\r\n\r\n", Fault::NoHost),
        ("9110 4.2.1", "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Host),
        ("9110 4.2.4", "GET http://a@b/ HTTP/1.1\r\nHost: b\r\n\r\n", Fault::Host),
        ("9112 3.2.2", "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Target),
        ("9112 3.2", "GET a HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Target),
        ("9112 3.2.4", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Target),
        ("9112 3.2.3", "GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Target),
        ("9112 3.2.3", "CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Target),
        ("9112 3.2.3", "CONNECT a:x HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Target),
        ("9112 3.2.3", "CONNECT a:80 HTTP/1.1\r\nHost: b:80\r\n\r\n", Fault::HostDiffers),
        (
            "9110 9.3.6",
            "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\nContent-Length: 5\r\n\r\n",
            Fault::ConnectBody,
        ),
        (
            "9112 6.1",
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            Fault::Encoding10,
        ),
        ("9112 2.2", "GET / HTTP/1.1\nHost: a\r\n\r\n", Fault::BareLf),
        ("9112 2.2", "GET / HTTP/1.1\r\nHost: a\n\r\n", Fault::BareLf),
        ("9112 2.2", "GET / HTTP/1.1\r\nHost: a\r\n\n", Fault::BareLf),
        ("9112 2.2", "GET /\rx HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Control),
        ("9112 3", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Fault::RequestLine),
        ("9112 3", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", Fault::RequestLine),
        ("9112 3", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", Fault::RequestLine),
        ("9112 3", "GET HTTP/1.1\r\nHost: a\r\n\r\n", Fault::RequestLine),
        ("9112 2.3", "GET / HTTP/1.10\r\nHost: a\r\n\r\n", Fault::RequestLine),
    ] {
        let got = fault(text);
        assert_eq!((got, got.status()), (wanted, 400), "RFC {section}: {text:?}");
    }
}

#[test]
fn another_version_is_refused_with_505() {
    for line in ["GET / HTTP/2.0", "GET / HTTP/1.2", "GET / HTTP/0.9", "GET / HTTP/3", "GET /"] {
        let got = fault(format!("{line}\r\nHost: a\r\n\r\n"));
        assert_eq!((got, got.status()), (Fault::Version, 505), "{line}");
    }
}

#[test]
fn one_empty_line_in_front_is_allowed() {
    let text = "\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = head(text);
    assert_eq!((head.length, &text[head.path]), (text.len(), "/x"));
    assert_eq!(look("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), Looked::Not);
    assert_eq!(look("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), Looked::Not);
}

#[test]
fn a_chosen_field_names_the_host() {
    let look = |fields: &str| {
        let text = format!("GET / HTTP/1.1\r\nHost: proxy.example\r\n{fields}\r\n");
        look_with(Some("X-Route"), text.as_bytes())
    };
    let host = |fields: &str| {
        let looked = look(fields);
        let Looked::Head(head) = looked else { panic!("{fields:?}: {looked:?}") };
        head.host
    };
    assert_eq!(host("x-route: App.example:80\r\n").as_deref(), Some("app.example"));
    assert_eq!(host("").as_deref(), Some("proxy.example"));
    for fields in ["X-Route:\r\n", "X-Route: a b\r\n", "X-Route: a\r\nx-route: a\r\n"] {
        assert_eq!(look(fields), Looked::Bad(Fault::RouteHeader), "{fields}");
    }
    let without = b"GET / HTTP/1.1\r\nX-Route: app.example\r\n\r\n";
    assert_eq!(look_with(Some("X-Route"), without), Looked::Bad(Fault::NoHost));
}

#[test]
fn a_large_head_is_refused_with_431_and_a_large_line_with_414() {
    let prefix = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
    // The last byte of the head is byte number 32,768, and one more.
    for (excess, is_good) in [(0, true), (1, false)] {
        let padding = "x".repeat(HEAD - prefix.len() - 4 + excess);
        let text = format!("{prefix}{padding}\r\n\r\n");
        let mut sniffer = HeadSniffer::default();
        let whole = sniffer.look(text.as_bytes());
        assert_eq!(matches!(whole, Looked::Head(_)), is_good, "{excess}");
        assert!(is_good || whole == Looked::Bad(Fault::HeadSize), "{whole:?}");
        let mut sniffer = HeadSniffer::default();
        let mut ends = (1..=text.len()).map(|end| sniffer.look(&text.as_bytes()[..end]));
        assert_eq!(ends.find(|outcome| *outcome != Looked::More), Some(whole));
    }
    for (text, fault, status) in [
        (format!("GET /{}", "x".repeat(HEAD)), Fault::LineSize, 414),
        (format!("{prefix}{}", "x".repeat(HEAD)), Fault::HeadSize, 431),
    ] {
        let outcome = HeadSniffer::default().look(text.as_bytes());
        assert_eq!((outcome, fault.status()), (Looked::Bad(fault), status));
    }
}

#[test]
fn more_than_100_fields_are_refused_with_431() {
    let text = |fields: usize| {
        format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(fields - 1))
    };
    assert!(matches!(look(text(100)), Looked::Head(_)));
    assert_eq!(fault(text(101)), Fault::Fields);
    assert_eq!(Fault::Fields.status(), 431);
}

#[test]
fn another_protocol_is_known_early() {
    for (bytes, known) in [
        (&b"\x16\x03\x01\x02\x00"[..], 1),
        (b"SSH-2.0-OpenSSH_9.2\r\n", 20),
        (b"\0\0\0\x08\x04\xd2\x16\x2f", 1),
        (b"EHLO mail.example\r\n", 19),
        (b"NICK somebody\n", 14),
        (b"GET key\r\n", 9),
        (b"*1\r\n$4\r\nPING\r\n", 3),
        (b"OPTIONS rtsp://a/b RTSP/1.0\r\n", 29),
        (b"USER a\x01", 7),
        (b" GET / HTTP/1.1\r\n", 1),
        (b"GET\r\n", 4),
        (b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 33),
    ] {
        let mut sniffer = HeadSniffer::default();
        let first = (1..=bytes.len()).find(|end| sniffer.look(&bytes[..*end]) == Looked::Not);
        assert_eq!(first, Some(known), "{}", bytes.escape_ascii());
        assert_eq!(look(bytes), Looked::Not);
    }
}

#[test]
fn the_preface_of_http_2_is_known() {
    assert_eq!(look(PREFACE), Looked::Http2);
    assert_eq!(look([PREFACE, b"\0\0\0\x04"].concat()), Looked::Http2);
    assert_eq!(look("PRI * HTTP/2.0\r\n\r\nSX"), Looked::Bad(Fault::Version));
    assert_eq!(look("PRI * HTTP/2.0\r\n\r\nSM"), Looked::More);
}

#[test]
fn a_page_may_show_any_reason() {
    for fault in [Fault::NotHttp, Fault::HeadSize, Fault::Version, Fault::Chunk] {
        assert!(fault.reason().is_ascii() && !fault.reason().contains(['<', '&']));
    }
}

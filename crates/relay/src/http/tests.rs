use super::*;

const A: &str = "GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n";
const B: &str = "GET /2 HTTP/1.1\r\nHost: b.example\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn fresh() -> Tracker {
    Tracker::new(None)
}

fn other(host: &str) -> Then {
    Then::Other { host: Some(host.into()) }
}

/// Passes a request that must go to the service whole.
fn pass(tracker: &mut Tracker, text: &str) {
    assert_eq!(tracker.requests(text.as_bytes()), (text.len(), Then::Read), "{text:?}");
}

/// Delivers bytes of the service, all of which must go to the visitor. Returns whether the
/// visitor's side may go on.
fn deliver(tracker: &mut Tracker, text: &str) -> bool {
    let Progress { deliver, completed } = tracker.responses(text.as_bytes());
    assert_eq!(deliver, text.len(), "{text:?}");
    completed
}

#[test]
fn a_request_for_another_host_waits_for_every_earlier_response() {
    let mut tracker = fresh();
    let text = [A, A, B].concat();
    assert_eq!(tracker.requests(text.as_bytes()), (2 * A.len(), Then::Wait));
    assert_eq!(tracker.host(), Some("a.example"));
    assert!(deliver(&mut tracker, OK));
    assert_eq!(tracker.requests(B.as_bytes()), (0, Then::Wait));
    assert!(!deliver(&mut tracker, &OK[..OK.len() - 1]));
    assert_eq!(tracker.requests(B.as_bytes()), (0, Then::Wait));
    assert!(!tracker.is_idle());
    assert!(deliver(&mut tracker, "k"));
    assert!(tracker.is_idle());
    assert_eq!(tracker.requests(B.as_bytes()), (0, other("b.example")));
    assert_eq!(tracker.requests(B.as_bytes()), (0, other("b.example")));
}

#[test]
fn another_spelling_is_no_other_host() {
    let mut tracker = fresh();
    for line in ["a.example", "A.Example", "a.example:80", "a.example.", "  a.example  "] {
        pass(&mut tracker, &format!("GET / HTTP/1.1\r\nHost: {line}\r\n\r\n"));
    }
    pass(&mut tracker, "GET http://a.example/ HTTP/1.1\r\nhost: A.example\r\n\r\n");
    assert!(deliver(&mut tracker, &OK.repeat(6)));
    let absolute = "GET http://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n";
    assert_eq!(tracker.requests(absolute.as_bytes()), (0, other("b.example")));
}

/// The same bytes in another place name another host.
#[test]
fn the_spelling_has_no_ambiguity() {
    let mut tracker = Tracker::new(Some("x-route".into()));
    pass(&mut tracker, "GET / HTTP/1.1\r\nHost: proxy\r\nX-Route: a.example\r\n\r\n");
    assert_eq!(tracker.host(), Some("a.example"));
    assert!(deliver(&mut tracker, OK));
    pass(&mut tracker, "GET / HTTP/1.1\r\nHost: other\r\nX-Route: A.example\r\n\r\n");
    assert!(deliver(&mut tracker, OK));
    let without = "GET / HTTP/1.1\r\nHost: other\r\n\r\n";
    assert_eq!(tracker.requests(without.as_bytes()), (0, other("other")));
    // A request of HTTP/1.0 may name no host.
    let mut tracker = fresh();
    pass(&mut tracker, A);
    assert!(deliver(&mut tracker, OK));
    let none = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    assert_eq!(tracker.requests(none.as_bytes()), (0, Then::Other { host: None }));
}

#[test]
fn a_body_is_no_request() {
    for (fields, body) in [
        (format!("Content-Length: {}", B.len()), B.to_owned()),
        (
            "Transfer-Encoding: chunked".to_owned(),
            format!("{:x};a=\"b\"\r\n{B}\r\n000\r\nX: y\r\n\r\n", B.len()),
        ),
        ("Transfer-Encoding: gzip, chunked".to_owned(), "A \r\n0123456789\r\n0\r\n\r\n".to_owned()),
    ] {
        let text = format!("POST / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n\r\n{body}");
        for cut in 0..text.len() {
            let mut tracker = fresh();
            let (passed, _) = tracker.requests(&text.as_bytes()[..cut]);
            let all = [&text[passed..], B].concat();
            assert_eq!(tracker.requests(all.as_bytes()), (text.len() - passed, Then::Wait));
            assert!(deliver(&mut tracker, OK));
            assert_eq!(tracker.requests(B.as_bytes()), (0, other("b.example")), "cut at {cut}");
        }
    }
}

#[test]
fn a_head_is_passed_when_it_is_complete() {
    let mut tracker = fresh();
    for end in 0..A.len() {
        let then = if end == 0 { Then::Read } else { Then::Hold };
        assert_eq!(tracker.requests(&A.as_bytes()[..end]), (0, then));
    }
    pass(&mut tracker, A);
    assert_eq!(tracker.requests(&A.as_bytes()[..9]), (0, Then::Hold));
    pass(&mut tracker, A);
}

/// Each response with the request that it answers, cut at each byte: the next request waits until
/// the last byte.
#[test]
fn the_end_of_a_response_is_found() {
    let get = "GET";
    for (method, response) in [
        (get, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_owned()),
        (get, "HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\n\r\nhello".to_owned()),
        (get, "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n".to_owned()),
        (
            get,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
             5;x=y\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\nX: y\r\n\r\n"
                .to_owned(),
        ),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_owned()),
        ("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()),
        ("HEAD", "HTTP/1.1 200 OK\r\n\r\n".to_owned()),
        (get, "HTTP/1.1 204 No Content\r\n\r\n".to_owned()),
        (get, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n".to_owned()),
        (get, format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n{OK}")),
        (get, "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx".to_owned()),
    ] {
        let request = A.replacen("GET", method, 1);
        for cut in 0..response.len() {
            let mut tracker = fresh();
            pass(&mut tracker, &request);
            assert_eq!(tracker.requests(B.as_bytes()), (0, Then::Wait));
            assert!(!deliver(&mut tracker, &response[..cut]), "{response:?} at {cut}");
            assert_eq!(tracker.requests(B.as_bytes()), (0, Then::Wait));
            assert!(deliver(&mut tracker, &response[cut..]), "{response:?} at {cut}");
            assert_eq!(tracker.requests(B.as_bytes()), (0, other("b.example")));
            assert_eq!(tracker.service_ended(), Ended::Clean);
        }
        // Byte by byte, with a second response behind it.
        let mut tracker = fresh();
        pass(&mut tracker, &request);
        pass(&mut tracker, A);
        let both = [&response, OK].concat();
        let singles = both.as_bytes().chunks(1).map(|byte| tracker.responses(byte));
        let singles: Vec<_> = singles.collect();
        assert!(singles.iter().all(|progress| progress.deliver == 1));
        assert_eq!(singles.iter().filter(|progress| progress.completed).count(), 2);
        assert!(tracker.is_idle());
    }
}

/// RFC 9112 section 6.3: where the framing is in doubt, the response goes on, and no request for
/// any host follows.
#[test]
fn no_request_follows_a_doubtful_response() {
    let large = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
    for response in [
        "HTTP/1.1 200 OK\r\n\r\nuntil the end",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX: a\r\n Content-Length: 2\r\n\r\nok",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "SSH-2.0-OpenSSH\r\n\r\n",
        &large,
    ] {
        for size in [response.len(), 7, 1] {
            let mut tracker = fresh();
            pass(&mut tracker, A);
            for piece in response.as_bytes().chunks(size) {
                assert_eq!(tracker.responses(piece).deliver, piece.len());
                assert_eq!(tracker.requests(b"").1, Then::Read);
            }
            assert!(!deliver(&mut tracker, OK), "{response:.100}");
            for next in [A, B] {
                assert_eq!(tracker.requests(next.as_bytes()), (0, Then::Wait), "{response:.100}");
            }
            assert_eq!(tracker.service_ended(), Ended::Clean);
            assert_eq!(tracker.requests(A.as_bytes()), (0, Then::Close));
        }
    }
}

#[test]
fn the_connection_ends_when_either_side_says_so() {
    let last = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    let mut tracker = fresh();
    let all = [A, last, A].concat();
    assert_eq!(tracker.requests(all.as_bytes()), (A.len() + last.len(), Then::Wait));
    assert!(deliver(&mut tracker, OK));
    assert_eq!(tracker.requests(A.as_bytes()), (0, Then::Wait));
    assert_eq!(tracker.requests(b""), (0, Then::Read));
    assert!(deliver(&mut tracker, OK));
    for rest in ["", A, B] {
        assert_eq!(tracker.requests(rest.as_bytes()), (0, Then::Close));
    }
    for response in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 204 No Content\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ] {
        // The second request will not be answered.
        let mut tracker = fresh();
        pass(&mut tracker, A);
        pass(&mut tracker, A);
        assert!(deliver(&mut tracker, response));
        assert_eq!(tracker.requests(b""), (0, Then::Close), "{response}");
        assert_eq!(tracker.responses(OK.as_bytes()).deliver, 0);
    }
}

#[test]
fn bytes_that_nobody_asked_for_are_not_delivered() {
    let mut tracker = fresh();
    let none = Progress { deliver: 0, completed: false };
    assert_eq!(tracker.responses(OK.as_bytes()), none);
    pass(&mut tracker, A);
    let two = [OK, OK].concat();
    let one = Progress { deliver: OK.len(), completed: true };
    assert_eq!(tracker.responses(two.as_bytes()), one);
    assert_eq!(tracker.responses(b"x"), none);
}

#[test]
fn an_accepted_upgrade_lets_all_bytes_through() {
    let upgrade =
        "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";
    let mut tracker = fresh();
    pass(&mut tracker, A);
    let early = [upgrade, B].concat();
    assert_eq!(tracker.requests(early.as_bytes()), (upgrade.len(), Then::Wait));
    assert!(deliver(&mut tracker, OK));
    assert_eq!(tracker.requests(B.as_bytes()), (0, Then::Wait));
    assert!(!deliver(&mut tracker, "HTTP/1.1 100 Continue\r\n\r\n"));
    assert!(deliver(&mut tracker, &[switching, "\x01\x00 anything"].concat()));
    assert!(tracker.is_raw());
    pass(&mut tracker, B);
    pass(&mut tracker, "\x01\x02");
    assert!(!deliver(&mut tracker, OK));
    assert_eq!(tracker.service_ended(), Ended::Clean);
    pass(&mut tracker, "rest");
}

#[test]
fn after_a_declined_upgrade_requests_go_on() {
    for (request, head, body) in [
        (
            "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
            "ok",
        ),
        (
            "CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\n",
            "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 2\r\n\r\n",
            "no",
        ),
    ] {
        let mut tracker = fresh();
        pass(&mut tracker, request);
        assert_eq!(tracker.requests(A.as_bytes()), (0, Then::Wait));
        assert!(deliver(&mut tracker, head));
        assert_eq!(tracker.requests([A, B].concat().as_bytes()), (A.len(), Then::Wait));
        assert!(deliver(&mut tracker, body));
        assert!(deliver(&mut tracker, OK));
        assert_eq!(tracker.requests(B.as_bytes()), (0, other("b.example")));
    }
}

#[test]
fn an_accepted_connect_lets_all_bytes_through() {
    let mut tracker = fresh();
    pass(&mut tracker, "CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\n");
    assert_eq!(tracker.requests(b"\x16\x03"), (0, Then::Wait));
    assert!(deliver(&mut tracker, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"));
    assert!(tracker.is_raw());
    pass(&mut tracker, "\x16\x03");
}

#[test]
fn the_pipeline_is_bounded() {
    let mut tracker = fresh();
    let many = A.repeat(40);
    assert_eq!(tracker.requests(many.as_bytes()), (32 * A.len(), Then::Wait));
    assert!(deliver(&mut tracker, OK));
    assert_eq!(tracker.requests(A.repeat(8).as_bytes()), (A.len(), Then::Wait));
    assert!(deliver(&mut tracker, &OK.repeat(32)));
    assert_eq!(tracker.requests(A.repeat(7).as_bytes()), (7 * A.len(), Then::Read));
    // The order of HEAD and GET is kept over the whole length.
    let mut tracker = fresh();
    let head = A.replacen("GET", "HEAD", 1);
    pass(&mut tracker, &[&head, A].concat().repeat(16));
    let without_body = &OK[..OK.len() - 2];
    assert!(deliver(&mut tracker, &[without_body, OK].concat().repeat(16)));
    assert!(tracker.is_idle());
}

#[test]
fn a_response_may_come_before_the_body_ends() {
    let head = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\n";
    let refused = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n";
    let mut tracker = fresh();
    pass(&mut tracker, head);
    pass(&mut tracker, "01234");
    assert!(deliver(&mut tracker, refused));
    assert!(!tracker.is_idle());
    assert_eq!(tracker.requests(["56789", B].concat().as_bytes()), (5, other("b.example")));
    // When the response also says that it is the last response, the body goes nowhere.
    let mut tracker = fresh();
    pass(&mut tracker, head);
    assert!(deliver(&mut tracker, &refused.replace("413", "413 x\r\nConnection: close\r\nX:")));
    assert_eq!(tracker.requests(b"01234"), (0, Then::Close));
}

#[test]
fn a_bad_request_is_refused_after_every_earlier_response() {
    for (bad, fault) in [
        ("GET / HTTP/1.1\r\n\r\n", Fault::NoHost),
        ("\x16\x03\x01", Fault::NotHttp),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", Fault::Host),
        ("PRI * HTTP/2.0\r\n\r\n", Fault::Version),
    ] {
        let mut tracker = fresh();
        let all = [A, bad].concat();
        assert_eq!(tracker.requests(all.as_bytes()), (A.len(), Then::Wait));
        assert!(deliver(&mut tracker, OK));
        assert_eq!(tracker.requests(bad.as_bytes()), (0, Then::Refuse(fault)));
    }
}

/// RFC 9112 section 7.1: each line of a body in chunks ends in CRLF, and a size is a plain number.
#[test]
fn a_malformed_chunk_is_refused() {
    let long = format!("5;{}", "x".repeat(300));
    let trailers = format!("0\r\n{}", "X: y\r\n".repeat(2000));
    for (body, good, fault) in [
        ("5\nhello", 1, Fault::Chunk),
        ("5;a\nhello", 3, Fault::Chunk),
        ("5;\0", 2, Fault::Chunk),
        ("5\rx", 2, Fault::Chunk),
        ("+5\r\n", 0, Fault::Chunk),
        ("-1\r\n", 0, Fault::Chunk),
        ("0x5\r\n", 1, Fault::Chunk),
        (" 5\r\n", 0, Fault::Chunk),
        ("5 5\r\n", 2, Fault::Chunk),
        ("\r\n", 0, Fault::Chunk),
        ("5\r\nhelloX", 8, Fault::Chunk),
        ("5\r\nhello\n", 8, Fault::Chunk),
        ("5\r\nhello\r\r", 9, Fault::Chunk),
        ("10000000000000000\r\n", 16, Fault::ChunkSize),
        ("0\r\n X: y\r\n", 3, Fault::Chunk),
        ("0\r\nX y\r\n", 4, Fault::Chunk),
        ("0\r\nX: y\n\r\n", 7, Fault::Chunk),
        ("0\r\n\n", 3, Fault::Chunk),
        (&long, 256, Fault::ChunkSize),
        (&trailers, 3 + (8 << 10), Fault::ChunkSize),
    ] {
        let head = "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut tracker = fresh();
        let all = [A, head, body].concat();
        let passed = A.len() + head.len() + good;
        assert_eq!(tracker.requests(all.as_bytes()), (passed, Then::Wait), "{body:.40}");
        // The service still waits for the body: the answer may be that of the caller.
        assert!(deliver(&mut tracker, OK));
        let rest = &all.as_bytes()[passed..];
        assert_eq!(tracker.requests(rest), (0, Then::Refuse(fault)), "{body:.40}");
        assert!(!deliver(&mut tracker, "HTTP/1.1 200"));
        assert_eq!(tracker.requests(rest), (0, Then::Close), "{body:.40}");
    }
}

#[test]
fn the_end_of_a_service_is_told_apart() {
    let mut tracker = fresh();
    pass(&mut tracker, A);
    assert!(!deliver(&mut tracker, "HTTP/1.1 100 Continue\r\n\r\n"));
    assert_eq!(tracker.service_ended(), Ended::Unanswered);
    assert_eq!(tracker.requests(A.as_bytes()), (0, Then::Close));
    for cut in [1, 12, OK.len() - 1] {
        let mut tracker = fresh();
        pass(&mut tracker, A);
        assert!(!deliver(&mut tracker, &OK[..cut]));
        assert_eq!(tracker.service_ended(), Ended::Cut);
        assert_eq!(tracker.requests(b""), (0, Then::Close));
    }
    let mut tracker = fresh();
    assert_eq!(tracker.service_ended(), Ended::Clean);
    assert_eq!(tracker.requests(A.as_bytes()), (0, Then::Close));
}

#[test]
fn no_request_passes_after_the_rules_have_changed() {
    // The first request is not passed either.
    let mut tracker = fresh();
    tracker.expire();
    assert_eq!(tracker.requests(&A.as_bytes()[..9]), (0, Then::Hold));
    assert_eq!(tracker.requests(A.as_bytes()), (0, Then::Changed));
    // The request whose head has passed is completed, and its response is delivered.
    let mut tracker = fresh();
    let post = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\n\r\n";
    pass(&mut tracker, post);
    tracker.expire();
    pass(&mut tracker, "ha");
    assert_eq!(tracker.requests("lf".as_bytes()), (2, Then::Read));
    assert_eq!(tracker.requests(A.as_bytes()), (0, Then::Wait));
    assert!(deliver(&mut tracker, OK));
    assert_eq!(tracker.requests(A.as_bytes()), (0, Then::Changed));
    // The host of a waiting request was found by the former rules.
    let mut tracker = fresh();
    let text = [A, B].concat();
    assert_eq!(tracker.requests(text.as_bytes()), (A.len(), Then::Wait));
    tracker.expire();
    assert!(deliver(&mut tracker, OK));
    assert_eq!(tracker.requests(B.as_bytes()), (0, Then::Changed));
    // A request that is none is refused all the same, and an upgraded connection is a raw stream.
    let mut tracker = fresh();
    tracker.expire();
    assert!(matches!(tracker.requests(b"\0\0"), (0, Then::Refuse(_))));
    let mut tracker = fresh();
    pass(&mut tracker, "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    deliver(&mut tracker, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n");
    tracker.expire();
    pass(&mut tracker, A);
}

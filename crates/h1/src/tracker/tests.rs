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

/// Gives bytes of the service, none of which may be refused. Returns whether the visitor's side may
/// go on.
fn deliver(tracker: &mut Tracker, text: &str) -> bool {
    let Progress { completed, rest, .. } = tracker.responses(text.as_bytes());
    assert_eq!(rest, Rest::Held, "{text:?}");
    completed
}

/// Gives bytes of the visitor in pieces, the rest of which wait for the next piece. Returns the
/// bytes that the tracker leaves.
fn ask(tracker: &mut Tracker, bytes: &[u8], size: usize) -> Vec<u8> {
    let mut waiting = Vec::new();
    for piece in bytes.chunks(size) {
        waiting.extend_from_slice(piece);
        let passed = tracker.requests(&waiting).0;
        waiting.drain(..passed);
    }
    waiting
}

/// Gives bytes of the service in pieces, until the tracker takes no more. Returns the bytes for the
/// visitor, how often a response was complete, and what became of the rest.
fn give(tracker: &mut Tracker, bytes: &[u8], size: usize) -> (Vec<u8>, usize, Rest) {
    let (mut delivered, mut completed) = (Vec::new(), 0);
    for piece in bytes.chunks(size) {
        let progress = tracker.responses(piece);
        delivered.extend_from_slice(&progress.held);
        delivered.extend_from_slice(&piece[..progress.deliver]);
        completed += usize::from(progress.completed);
        if progress.rest != Rest::Held {
            return (delivered, completed, progress.rest);
        }
    }
    (delivered, completed, Rest::Held)
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
        ("Transfer-Encoding: chunked".to_owned(), "A\r\n0123456789\r\n0\r\n\r\n".to_owned()),
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
        (get, "HTTP/1.1 200 OK\r\ncontent-length:  005 \r\n\r\nhello".to_owned()),
        (get, "HTTP/1.1 999 Odd\r\nX\u{e9}: y\r\nContent-Length: 0\r\n\r\n".replace('\u{e9}', "'")),
        (get, "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n".to_owned()),
        (
            get,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
             5;x=y\r\nhello\r\n10  \r\n0123456789abcdef\r\n0\r\nX: y\r\n\r\n"
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
        // In pieces, with a second response behind it.
        let both = [&response, OK].concat();
        for size in [1, 7, both.len()] {
            let mut tracker = fresh();
            pass(&mut tracker, &request);
            pass(&mut tracker, A);
            let (delivered, completed, rest) = give(&mut tracker, both.as_bytes(), size);
            assert_eq!((&*delivered, rest), (both.as_bytes(), Rest::Held));
            assert_eq!(completed, if size == both.len() { 1 } else { 2 });
            assert!(tracker.is_idle());
        }
    }
}

/// The visitor gets a head at once, so that a doubtful head can be answered with a page.
#[test]
fn no_part_of_a_head_is_delivered() {
    let mut tracker = fresh();
    pass(&mut tracker, A);
    let (head, body) = OK.split_at(OK.len() - 2);
    for byte in head[..head.len() - 1].bytes() {
        let none = Progress { held: vec![], deliver: 0, completed: false, rest: Rest::Held };
        assert_eq!(tracker.responses(&[byte]), none);
    }
    let Progress { held, deliver, .. } = tracker.responses(&[b"\n", body.as_bytes()].concat());
    assert_eq!((&*held, deliver), (&head.as_bytes()[..head.len() - 1], 3));
}

/// Where parsers disagree about a response, nothing of it is delivered, or nothing after the bytes
/// that are certain, and no request for any host follows.
#[test]
fn nothing_follows_a_doubt() {
    let ok = "HTTP/1.1 200 OK\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let large = format!("{ok}X: {}\r\n\r\n", "x".repeat(128 << 10));
    let many = format!("{ok}{}Content-Length: 2\r\n\r\nok", "X: y\r\n".repeat(500));
    let digits = format!("{ok}Content-Length: {}\r\n\r\n", u64::MAX);
    let heads = [
        ("Content-Length: 2\r\nContent-Length: 3", Doubt::Lengths),
        ("Content-Length: 2, 3", Doubt::Lengths),
        ("Content-Length: 2\r\nTransfer-Encoding: gzip, chunked", Doubt::LengthAndEncoding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip", Doubt::Encoding),
        ("Content-Length : 2\r\nContent-Length: 3", Doubt::Blank),
        ("X : a\0", Doubt::Control),
        ("Content-Length: +2", Doubt::Length),
        ("Content-Length: 0x2", Doubt::Length),
        ("Content-Length: 2 2", Doubt::Length),
        ("Content-Length:", Doubt::Length),
        ("Content-Length: 9223372036854775808", Doubt::Length),
        ("Transfer-Encoding: gzip", Doubt::Encoding),
        ("Transfer-Encoding: identity", Doubt::Encoding),
        ("Transfer-Encoding: gzip, chunked", Doubt::Encoding),
        ("Transfer-Encoding: chunked,", Doubt::Encoding),
        ("Transfer-Encoding: xchunked", Doubt::Encoding),
        ("Transfer-Encoding: \"chunked\"", Doubt::Encoding),
        (" X: a", Doubt::Fold),
        ("X y: a", Doubt::Field),
        ("X", Doubt::Field),
        (": a", Doubt::Field),
        ("HTTP/1.1 200 OK", Doubt::Field),
        ("X(: a", Doubt::Field),
        ("X: a\0b", Doubt::Control),
        ("X: a\rContent-Length: 2", Doubt::Control),
        ("X: a\x1b", Doubt::Control),
    ];
    let heads = heads.map(|(fields, doubt)| (format!("{ok}{fields}\r\n\r\nok"), doubt));
    let whole = [
        (&*digits, Doubt::Length),
        (&*many, Doubt::Fields),
        (&*large, Doubt::HeadSize),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Doubt::Encoding10),
        ("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", Doubt::BareLf),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nok", Doubt::BareLf),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", Doubt::Switch),
        ("\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Doubt::NotHttp),
        ("HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok", Doubt::NotHttp),
        ("http/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Doubt::NotHttp),
        ("HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok", Doubt::StatusLine),
        ("HTTP/1.1  200 OK\r\nContent-Length: 2\r\n\r\nok", Doubt::StatusLine),
        ("HTTP/1.1 099 No\r\nContent-Length: 2\r\n\r\nok", Doubt::StatusLine),
        ("HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok", Doubt::StatusLine),
        ("HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok", Doubt::StatusLine),
        ("HTTP/1.1 200 O\x01K\r\nContent-Length: 2\r\n\r\nok", Doubt::StatusLine),
        ("SSH-2.0-OpenSSH\r\n\r\n", Doubt::NotHttp),
        ("HTTP/1.1 103 Hints\r\nContent-Length: 0\r\n\r\n", Doubt::Interim),
        ("HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n\r\n", Doubt::Interim),
        ("HTTP/1.0 100 Continue\r\n\r\n", Doubt::Interim),
    ];
    let whole = whole.map(|(response, doubt)| (response.to_owned(), doubt));
    let bodies = [
        ("x\r\n", 0, Doubt::Chunk),
        ("1\nx\n0\n\n", 1, Doubt::Chunk),
        ("1\r\nx\n0\r\n\r\n", 4, Doubt::Chunk),
        ("0\r\n\n", 3, Doubt::Chunk),
        ("0\r\nX y: z\r\n\r\n", 4, Doubt::Chunk),
        ("-1\r\n", 0, Doubt::Chunk),
        ("1000000000000000\r\n", 15, Doubt::ChunkSize),
    ];
    let bodies = bodies
        .map(|(body, certain, doubt)| (format!("{chunked}{body}"), chunked.len() + certain, doubt));
    let heads = heads.into_iter().chain(whole);
    let heads = heads.map(|(response, doubt)| (response, 0, Rest::Refused(doubt)));
    let bodies = bodies.into_iter().map(|(text, certain, doubt)| (text, certain, Rest::Cut(doubt)));
    for (response, certain, rest) in heads.chain(bodies) {
        // A response before it is delivered.
        let all = [OK, &response, OK].concat();
        for size in [all.len(), 7, 1] {
            let mut tracker = fresh();
            pass(&mut tracker, A);
            pass(&mut tracker, A);
            let (delivered, _, became) = give(&mut tracker, all.as_bytes(), size);
            let wanted = (&all.as_bytes()[..OK.len() + certain], rest);
            assert_eq!((&*delivered, became), wanted, "{response:.100}");
            for next in ["", A, B] {
                assert_eq!(tracker.requests(next.as_bytes()), (0, Then::Wait), "{response:.100}");
            }
            let (delivered, ..) = give(&mut tracker, OK.as_bytes(), size);
            assert!(delivered.is_empty(), "{response:.100}");
            assert_eq!(tracker.service_ended(), Ended::Clean);
            assert_eq!(tracker.requests(A.as_bytes()), (0, Then::Wait));
        }
    }
}

/// RFC 9112 sections 5.1, 5.2 and 6.3: a proxy writes such a head anew. The connection ends after
/// the response, whatever follows, in however many pieces it comes.
#[test]
fn a_head_that_can_be_mended_is_delivered_with_one_meaning() {
    let chunks = "2\r\nok\r\n0\r\n\r\n";
    for (fields, body, mended) in [
        ("Content-Length : 2", "ok", "Content-Length: 2"),
        ("X: a\r\n b\r\nContent-Length: 2", "ok", "X: a b\r\nContent-Length: 2"),
        ("Content-Length: 2, 2\r\ncontent-length: 2", "ok", "Content-Length: 2"),
        ("Content-Length:\t2", "ok", "Content-Length: 2"),
        ("Content-Length: 99\r\nTransfer-Encoding: chunked", chunks, "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 1", chunks, "Transfer-Encoding: chunked"),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            chunks,
            "Transfer-Encoding: chunked",
        ),
        ("Transfer-Encoding: chunked, chunked", chunks, "Transfer-Encoding: chunked"),
        ("X : y", "until the end", "X: y"),
    ] {
        let ends = mended != "X: y";
        let first = "HTTP/1.1 103 Hints\r\nLink : x\r\n\r\n";
        let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
        let all = [OK, first, &head, body, OK].concat();
        let mended = format!("HTTP/1.1 200 OK\r\n{mended}\r\nConnection: close\r\n\r\n");
        let first = first.replace(" :", ":");
        let wanted = [OK, &first, &mended, body, if ends { "" } else { OK }].concat();
        for size in [all.len(), 7, 1] {
            let mut tracker = fresh();
            pass(&mut tracker, &A.repeat(3));
            let (delivered, _, rest) = give(&mut tracker, all.as_bytes(), size);
            assert_eq!(String::from_utf8_lossy(&delivered), wanted, "{fields} in {size}");
            assert_eq!(rest, if ends { Rest::Excess } else { Rest::Held });
            assert_eq!(tracker.service_ended(), Ended::Clean);
            assert_eq!(tracker.requests(A.as_bytes()), (0, Then::Close));
        }
    }
}

/// The bounds of a head.
#[test]
fn a_large_head_and_many_fields_pass() {
    let ok = "HTTP/1.1 200 OK\r\n";
    for fields in ["X: y\r\n".repeat(499), format!("X: {}\r\n", "y".repeat(120 << 10))] {
        let response = format!("{ok}{fields}Content-Length: 2\r\n\r\nok");
        for size in [response.len(), 1000] {
            let mut tracker = fresh();
            pass(&mut tracker, A);
            let (delivered, completed, rest) = give(&mut tracker, response.as_bytes(), size);
            assert!(delivered == response.as_bytes());
            assert_eq!((completed, rest), (1, Rest::Held));
        }
    }
}

#[test]
fn the_responses_to_requests_of_the_caller_are_followed() {
    let mut answers = Answers::default();
    answers.asked(true, false);
    let interim = "HTTP/1.1 103 Hints\r\n\r\n";
    let head = [interim, &OK[..OK.len() - 2]].concat();
    assert_eq!(answers.responses(head.as_bytes()).deliver, head.len());
    answers.asked(false, false);
    assert_eq!(answers.responses(OK.as_bytes()).deliver, OK.len());
    answers.asked(false, true);
    let switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n";
    assert_eq!(answers.responses(switching.as_bytes()).deliver, switching.len());
    assert!(answers.is_raw());
    let mut answers = Answers::default();
    answers.asked(false, false);
    assert_eq!(answers.responses(switching.as_bytes()).rest, Rest::Refused(Doubt::Switch));
    let mut answers = Answers::default();
    assert_eq!(answers.responses(OK.as_bytes()).rest, Rest::Excess);
}

/// The end of the service is the end of such a response: no request is passed, and none is answered
/// after it.
#[test]
fn no_request_follows_a_response_that_ends_with_its_connection() {
    for response in [
        "HTTP/1.1 200 OK\r\n\r\nuntil the end",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nuntil the end",
    ] {
        for size in [response.len(), 7, 1] {
            let mut tracker = fresh();
            pass(&mut tracker, A);
            let all = [response, OK].concat();
            let (delivered, completed, rest) = give(&mut tracker, all.as_bytes(), size);
            assert_eq!((&*delivered, completed, rest), (all.as_bytes(), 0, Rest::Held));
            for next in [A, B] {
                assert_eq!(tracker.requests(next.as_bytes()), (0, Then::Wait));
            }
            assert_eq!(tracker.service_ended(), Ended::Clean);
            assert_eq!(tracker.requests(A.as_bytes()), (0, Then::Close));
        }
    }
}

/// Older parsers read a body behind these heads.
#[test]
fn nothing_follows_a_head_whose_body_may_not_exist() {
    for head in [
        "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let mut tracker = fresh();
        pass(&mut tracker, A);
        pass(&mut tracker, A);
        let (delivered, _, rest) = give(&mut tracker, [head, OK].concat().as_bytes(), 9);
        assert_eq!((&*delivered, rest), (head.as_bytes(), Rest::Excess));
        assert_eq!(tracker.requests(A.as_bytes()), (0, Then::Close));
        assert_eq!(give(&mut tracker, OK.as_bytes(), 9).0, b"");
    }
}

#[test]
fn interim_responses_are_bounded_and_answer_no_head_request() {
    let interim = "HTTP/1.1 102 Processing\r\n\r\n";
    let mut tracker = fresh();
    pass(&mut tracker, A);
    pass(&mut tracker, A);
    let (_, _, rest) = give(&mut tracker, interim.repeat(256).as_bytes(), 1000);
    assert_eq!(rest, Rest::Held);
    // Each request has its own bound.
    assert!(deliver(&mut tracker, OK));
    let (delivered, _, rest) = give(&mut tracker, interim.repeat(300).as_bytes(), 1000);
    assert_eq!((delivered.len(), rest), (256 * interim.len(), Rest::Refused(Doubt::Interims)));
    let large = format!("HTTP/1.1 103 Hints\r\nLink: {}\r\n\r\n", "x".repeat(30_000));
    let mut tracker = fresh();
    pass(&mut tracker, A);
    let (delivered, _, rest) = give(&mut tracker, large.repeat(3).as_bytes(), 1000);
    assert_eq!((delivered.len(), rest), (2 * large.len(), Rest::Refused(Doubt::Interims)));
    let mut tracker = fresh();
    pass(&mut tracker, &A.replacen("GET", "HEAD", 1));
    assert_eq!(tracker.responses(interim.as_bytes()).rest, Rest::Refused(Doubt::Interim));
}

/// A reverse proxy that does not know CONNECT sees a complete response, and would send its next
/// request into the tunnel.
#[test]
fn a_tunnel_opens_only_where_every_parser_sees_it() {
    let connect = "CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\n";
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
    ] {
        let mut tracker = fresh();
        pass(&mut tracker, connect);
        let rest = tracker.responses(response.as_bytes()).rest;
        assert_eq!(rest, Rest::Refused(Doubt::Connect), "{response}");
        assert!(!tracker.is_raw());
        assert_eq!(tracker.requests(B.as_bytes()), (0, Then::Wait));
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
        "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
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
    let excess = |deliver| Progress { held: vec![], deliver, completed: true, rest: Rest::Excess };
    let mut tracker = fresh();
    assert_eq!(tracker.responses(OK.as_bytes()), excess(0));
    let mut tracker = fresh();
    pass(&mut tracker, A);
    let two = [OK, OK].concat();
    assert_eq!(tracker.responses(two.as_bytes()), excess(OK.len()));
    assert_eq!(tracker.requests(A.as_bytes()), (0, Then::Close));
    assert_eq!(tracker.responses(b"x").deliver, 0);
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

/// Behind an accepted `h2c` come requests for any host, which the tracker cannot read.
#[test]
fn a_request_for_http_2_does_not_pass() {
    let h2c = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, HTTP2-Settings\r\n\
               Upgrade: websocket, h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
    let mut tracker = fresh();
    assert_eq!(tracker.requests(h2c.as_bytes()), (0, Then::Changed));
    let mut tracker = fresh();
    assert_eq!(tracker.requests([A, h2c].concat().as_bytes()), (A.len(), Then::Wait));
    assert!(deliver(&mut tracker, OK));
    assert_eq!(tracker.requests(h2c.as_bytes()), (0, Then::Changed));
}

/// Some servers change the protocol for `Upgrade` alone.
#[test]
fn nothing_follows_an_upgrade_that_was_not_asked_for_in_connection() {
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: x\r\n\r\n";
    let mut tracker = fresh();
    assert_eq!(tracker.requests([request, A].concat().as_bytes()), (request.len(), Then::Wait));
    let rest = tracker.responses(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").rest;
    assert_eq!(rest, Rest::Refused(Doubt::Switch));
    let mut tracker = fresh();
    pass(&mut tracker, request);
    assert!(deliver(&mut tracker, OK));
    pass(&mut tracker, A);
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
    assert!(deliver(&mut tracker, "HTTP/1.1 200 OK\r\nServer: x\r\n\r\n"));
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
        ("5 5\r\n", 1, Fault::Chunk),
        ("\r\n", 0, Fault::Chunk),
        ("5\r\nhelloX", 8, Fault::Chunk),
        ("5\r\nhello\n", 8, Fault::Chunk),
        ("5\r\nhello\r\r", 9, Fault::Chunk),
        ("1000000000000000\r\n", 15, Fault::ChunkSize),
        ("5 \r\nhello\r\n", 1, Fault::Chunk),
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
        // A part of a head is not delivered.
        assert!(!deliver(&mut tracker, "HTTP/1.1 200"));
        assert_eq!(tracker.requests(rest), (0, Then::Refuse(fault)), "{body:.40}");
        assert!(!deliver(&mut tracker, " OK\r\nContent-Length: 1\r\n\r\n"));
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
    for (cut, ended) in
        [(1, Ended::Unanswered), (12, Ended::Unanswered), (OK.len() - 1, Ended::Cut)]
    {
        let mut tracker = fresh();
        pass(&mut tracker, A);
        assert!(!deliver(&mut tracker, &OK[..cut]));
        assert_eq!(tracker.service_ended(), ended);
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

/// Writes down what it hears.
#[derive(Debug, Default)]
struct Heard(std::cell::RefCell<Vec<String>>);

impl Observer for Heard {
    fn requested(&self, head: &[u8]) {
        let line = head.split(|byte| *byte == b'\r').next().unwrap();
        self.0.borrow_mut().push(format!("{} {}", head.len(), String::from_utf8_lossy(line)));
    }
    fn responded(&self, status: u16) {
        self.0.borrow_mut().push(status.to_string());
    }
    fn ended(&self, bytes: u64, is_complete: bool) {
        self.0.borrow_mut().push(format!("{bytes} {is_complete}"));
    }
}

#[test]
fn an_observer_hears_of_each_request_and_response_however_they_are_split() {
    let post = "POST /2 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\n\r\nbody";
    let requests = [A, post, &A.replacen("GET", "HEAD", 1), A].concat();
    let responses = [
        OK,
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n\
         2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
        "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 9\r\n\r\nhalf",
    ]
    .concat();
    for size in [1, 7, 4096] {
        let (mut tracker, heard) = (fresh(), Rc::new(Heard::default()));
        tracker.observe(Rc::clone(&heard) as Rc<dyn Observer>);
        ask(&mut tracker, requests.as_bytes(), size);
        give(&mut tracker, responses.as_bytes(), size);
        tracker.service_ended();
        let wanted = [
            "36 GET /1 HTTP/1.1",
            "56 POST /2 HTTP/1.1",
            "37 HEAD /1 HTTP/1.1",
            "36 GET /1 HTTP/1.1",
            "200",
            "2 true",
            "100",
            "201",
            "12 true",
            "200",
            "0 true",
            "502",
            "4 false",
        ];
        let heard: Vec<_> = heard.0.borrow().iter().map(String::clone).collect();
        assert_eq!(heard[..wanted.len()], wanted, "{size}");
    }
}

/// Keeps the content that it hears.
#[derive(Debug, Default)]
struct Content {
    requests: std::cell::RefCell<Vec<u8>>,
    responses: std::cell::RefCell<Vec<u8>>,
    ends: std::cell::Cell<u32>,
}

impl Content {
    fn add(to: &std::cell::RefCell<Vec<u8>>, part: BodyPart<'_>) {
        let (BodyPart::Data(bytes) | BodyPart::Trailers(bytes)) = part;
        to.borrow_mut().extend_from_slice(bytes);
    }
}

impl Observer for Content {
    fn requested(&self, _: &[u8]) {}
    fn request_body(&self, part: BodyPart<'_>) {
        Self::add(&self.requests, part);
    }
    fn request_ended(&self) {
        self.ends.set(self.ends.get() + 1);
    }
    fn response_head(&self, head: &[u8]) {
        self.responses.borrow_mut().extend_from_slice(head);
    }
    fn responded(&self, _: u16) {}
    fn response_body(&self, part: BodyPart<'_>) {
        Self::add(&self.responses, part);
    }
    fn ended(&self, _: u64, _: bool) {}
    fn switched_request(&self, bytes: &[u8]) {
        self.requests.borrow_mut().extend_from_slice(bytes);
    }
    fn switched_response(&self, bytes: &[u8]) {
        self.responses.borrow_mut().extend_from_slice(bytes);
    }
}

#[test]
fn an_observer_gets_heads_and_content_without_the_framing_of_chunks() {
    let requests = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
        PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
        2;x\r\nde\r\n1\r\nf\r\n0\r\nT: 1\r\n\r\n\
        GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let sized = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
    let switch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n";
    let responses = [chunked, "2\r\nAB\r\n0\r\n\r\n", sized, "CD", switch, "raw"].concat();
    for size in [1, 3, 4096] {
        let (mut tracker, heard) = (fresh(), Rc::new(Content::default()));
        tracker.observe(Rc::clone(&heard) as Rc<dyn Observer>);
        assert!(ask(&mut tracker, requests.as_bytes(), size).is_empty());
        give(&mut tracker, responses.as_bytes(), size);
        assert_eq!(tracker.requests(b"more"), (4, Then::Read));
        let all = String::from_utf8(heard.requests.take()).unwrap();
        assert_eq!((all.as_str(), heard.ends.get()), ("abcdefT: 1\r\n\r\nmore", 3), "{size}");
        let all = String::from_utf8(heard.responses.take()).unwrap();
        let wanted = [chunked, "AB\r\n", sized, "CD", switch, "raw"].concat();
        assert_eq!(all, wanted, "{size}");
    }
}

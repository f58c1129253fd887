//! The gate on raw bytes, in one piece and byte by byte.

use std::rc::Rc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use h1::Fault;
use proto::Unlimited;

use super::{Gate, Progress};
use crate::{Account, Protocol};

const REFUSED: &[u8] = b"GET / HTTP/1.1\r\nHost: -\r\nConnection: close\r\n\r\n";

fn account() -> Rc<Account> {
    Account::open(Rc::new(Unlimited), 0).unwrap()
}

/// What passes of the bytes of a visitor, and the status code of the refusal.
async fn passed(bytes: &[u8], piece: usize) -> (Vec<u8>, Option<u16>) {
    let (mut visitor, server) = duplex(1 << 20);
    let progress = Rc::new(Progress::new());
    let mut gate = Gate::new(server, Rc::clone(&progress), &account(), 0);
    let reader = async {
        let mut seen = Vec::new();
        if gate.choose(Protocol::Either).await.is_err() {
            return seen;
        }
        let mut buffer = [0; 700];
        loop {
            tokio::select! {
                biased;
                read = gate.read(&mut buffer) => match read {
                    Ok(0) => return seen,
                    Ok(length) => seen.extend_from_slice(&buffer[..length]),
                    Err(error) => {
                        seen.extend_from_slice(format!("!{error}").as_bytes());
                        return seen;
                    }
                },
                // After a refusal the gate is silent.
                () = tokio::time::sleep(std::time::Duration::from_secs(1)) => return seen,
            }
        }
    };
    let writer = async {
        for piece in bytes.chunks(piece) {
            visitor.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        // The other direction stays open, so the end is seen by silence or by a refusal.
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    };
    let seen =
        tokio::select! { biased; seen = reader => seen, () = writer => panic!("nothing ended") };
    let refused = progress.refused.borrow().as_ref().map(|(_, refusal)| refusal.status);
    (seen, refused)
}

async fn check(bytes: &[u8], expected: &[u8], status: Option<u16>) {
    for piece in [usize::MAX, 1, 7] {
        let (seen, refused) = passed(bytes, piece.min(bytes.len())).await;
        let (shown, wanted) = (seen.escape_ascii(), expected.escape_ascii());
        assert!(seen == expected, "pieces of {piece}:\n{shown}\ninstead of\n{wanted}");
        assert_eq!(refused, status, "{}", bytes.escape_ascii());
    }
}

#[tokio::test(start_paused = true)]
async fn requests_with_one_meaning_pass_unchanged() {
    let long = [
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n".as_slice(),
        &[b'x'; 20_000],
        b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n",
    ]
    .concat();
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X-Field: 1\r\n".repeat(99));
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.0\r\n\r\n".as_slice(),
        b"\r\nGET / HTTP/1.1\r\nHost: a\r\nX: a\tb \xff\r\n\r\n",
        b"POST / HTTP/1.1\r\nhOST: a\r\ncontent-length:  5 \r\n\r\n\n\n\n\n\nPUT / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n5;x=\"y\"\r\na\nb\nc\r\n00\r\nX-Sum: 1\r\n\r\nGET / HTTP/1.0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        &long,
        many.as_bytes(),
    ] {
        check(bytes, bytes, None).await;
    }
}

#[tokio::test(start_paused = true)]
async fn characters_that_no_uri_has_are_escaped_in_the_target_alone() {
    let post = "POST /a<b>`?<> HTTP/1.1\r\nHost: a\r\nX: <>`\r\nContent-Length: 5\r\n\r\n<>`<>";
    let wanted =
        "POST /a%3Cb%3E%60?%3C%3E HTTP/1.1\r\nHost: a\r\nX: <>`\r\nContent-Length: 5\r\n\r\n<>`<>";
    let get = "GET /plain HTTP/1.1\r\nHost: a\r\n\r\n";
    for (bytes, wanted) in [
        (post.to_owned(), wanted.to_owned()),
        ([get, post, post, get].concat(), [get, wanted, wanted, get].concat()),
    ] {
        check(bytes.as_bytes(), wanted.as_bytes(), None).await;
    }
    let bad = [post, "GET / HTTP/1.1\r\nHost : a\r\n\r\n"].concat();
    check(bad.as_bytes(), &[wanted.as_bytes(), REFUSED].concat(), Some(400)).await;
    let upgrade = "GET /< HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    let bytes = [upgrade, "early"].concat();
    check(bytes.as_bytes(), upgrade.replace('<', "%3C").as_bytes(), None).await;
}

#[tokio::test(start_paused = true)]
async fn heads_with_two_meanings_are_replaced_by_the_request_of_the_refusal() {
    let first = b"GET /first HTTP/1.1\r\nHost: a\r\n\r\n";
    for (status, head) in [
        (
            400,
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        ),
        (
            400,
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        ),
        (400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n"),
        (400, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n"),
        (
            400,
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        ),
        (501, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
        (400, "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost : a\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost\t: a\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\tc\r\n\r\n"),
        (400, "GET / HTTP/1.1\nHost: a\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a\r\n\n"),
        (400, "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a\0\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost a\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\n: a\r\n\r\n"),
        (400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, "GET / x HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, " GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nX: a\r\n\r\n"),
        (400, "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (505, "GET /\r\n"),
        (400, "G(T / HTTP/1.1\r\n\r\n"),
        (400, "GET / http/1.1\r\n\r\n"),
        (505, "GET / HTTP/1.2\r\n\r\n"),
        (505, "PRI * HTTP/2.0\r\n\r\n"),
        (501, "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n"),
    ] {
        let bytes = [first, head.as_bytes(), b"rest"].concat();
        check(&bytes, &[first.as_slice(), REFUSED].concat(), Some(status)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn large_heads_are_refused() {
    let field = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(40_000));
    let fields = format!("GET / HTTP/1.1\r\n{}\r\n", "X-Field: 1\r\n".repeat(101));
    let line = format!("GET /{}", "a".repeat(40_000));
    for (status, bytes) in [(431, field), (431, fields), (414, line)] {
        check(bytes.as_bytes(), REFUSED, Some(status)).await;
    }
    let fits = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(32_000));
    check(fits.as_bytes(), fits.as_bytes(), None).await;
}

#[tokio::test(start_paused = true)]
async fn malformed_chunks_break_the_body() {
    for (chunks, passes, fault) in [
        ("5\nabcde\r\n0\r\n\r\n", "5", Fault::Chunk),
        ("5 \r\nabcde\r\n", "5", Fault::Chunk),
        ("0x5\r\nabcde\r\n", "0", Fault::Chunk),
        ("-5\r\n", "", Fault::Chunk),
        ("\r\n", "", Fault::Chunk),
        ("ffffffffffffffff\r\n", "fffffffffffffff", Fault::ChunkSize),
        ("5;a\nb\r\nabcde\r\n", "5;a", Fault::Chunk),
        ("5\r\nabcdef\r\n", "5\r\nabcde", Fault::Chunk),
        ("5\r\nabcde\n0\r\n", "5\r\nabcde", Fault::Chunk),
        ("0\r\nX : 1\r\n\r\n", "0\r\nX", Fault::Chunk),
        ("0\r\nX: 1\n\r\n", "0\r\nX: 1", Fault::Chunk),
    ] {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let reason = fault.reason();
        let bytes = format!("{head}{chunks}GET /smuggled HTTP/1.1\r\n\r\n");
        let expected = format!("{head}{passes}!{reason}");
        // Byte by byte: the good bytes before the mistake pass.
        let (seen, _) = passed(bytes.as_bytes(), 1).await;
        assert_eq!(seen.escape_ascii().to_string(), expected.as_bytes().escape_ascii().to_string());
        let (seen, _) = passed(bytes.as_bytes(), bytes.len()).await;
        assert!(seen.ends_with(format!("!{reason}").as_bytes()), "{}", seen.escape_ascii());
        assert!(!seen.windows(8).any(|part| part == b"smuggled"), "{}", seen.escape_ascii());
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_after_an_upgrade_wait_for_its_answer() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    let bytes = [head.as_slice(), b"bytes of x\n\n"].concat();
    check(&bytes, head, None).await;
}

/// A generator of numbers that every run repeats.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

const STREAMS: [&str; 4] = [
    "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcdeGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nabcde\r\n0\r\nX: 1\r\n\r\n\
     GET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    "HEAD /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\r\nPUT /2 HTTP/1.1\r\nHost: a\r\n\
     Expect: 100-continue\r\nContent-Length: 3\r\n\r\nxyzGET /3 HTTP/1.1\r\nHost: a\r\n\r\n",
];

const PARTS: [&str; 24] = [
    "\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    ":",
    ",",
    ";",
    "0",
    "1",
    "5",
    "f",
    "\0",
    "x",
    "chunked",
    "HTTP/1.0",
    "Content-Length: 3\r\n",
    "Content-Length: 0\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Upgrade: x\r\n",
    "Connection: close\r\n",
    "GET /s HTTP/1.1\r\nHost: a\r\n\r\n",
    "\r\n\r\n",
    "Host: a\r\n",
];

/// The proxy knows a request of the gate by its number, so both have to see the same requests. The
/// gate and hyper's parser read changed bytes, in pieces, and have to agree on where requests
/// begin.
#[test]
fn the_gate_and_hyper_see_the_same_requests() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    let local = tokio::task::LocalSet::new();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut refused = 0;
    for round in 0..4000 {
        let mut bytes = STREAMS[round % STREAMS.len()].as_bytes().to_vec();
        for _ in 0..=numbers.below(3) {
            let at = numbers.below(bytes.len());
            let to = (at + numbers.below(4)).min(bytes.len());
            let part = PARTS[numbers.below(PARTS.len())].as_bytes();
            match numbers.below(3) {
                0 => drop(bytes.splice(at..at, part.iter().copied())),
                1 => drop(bytes.splice(at..to, part.iter().copied())),
                _ => drop(bytes.drain(at..to)),
            }
        }
        let piece = 1 + numbers.below(bytes.len());
        let shown = bytes.escape_ascii().to_string();
        let outcome = local.block_on(&runtime, agreement(bytes, piece));
        let (heads, calls, ended, refusal) = outcome;
        refused += u32::from(refusal);
        let agree = calls == heads || (ended && calls < heads);
        assert!(agree, "the gate saw {heads} requests, hyper {calls} of\n{shown}");
    }
    assert!(refused > 1000, "only {refused} streams were refused");
}

/// How many heads the gate passed, how many requests hyper saw, whether hyper ended the connection
/// before the next head (by a refusal of its own, `Connection`, or HTTP/1.0), and whether the gate
/// refused a request.
async fn agreement(bytes: Vec<u8>, piece: usize) -> (u64, u64, bool, bool) {
    use http_body_util::{BodyExt as _, Empty};
    use hyper::{Request, Response, body::Incoming};

    let (visitor, server) = duplex(1 << 16);
    let (mut reader, mut writer) = tokio::io::split(visitor);
    let progress = Rc::new(Progress::new());
    let gate = Gate::new(server, Rc::clone(&progress), &account(), 0);
    let counted = Rc::clone(&progress);
    let closes = Rc::new(std::cell::Cell::new(false));
    let closing = Rc::clone(&closes);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (number, _) = counted.called();
        if request.version() == hyper::Version::HTTP_10
            || request.headers().contains_key("connection")
        {
            closing.set(true);
        }
        let counted = Rc::clone(&counted);
        async move {
            let _ = request.into_body().collect().await;
            counted.no_upgrade(number);
            Ok::<_, std::convert::Infallible>(Response::new(Empty::<bytes::Bytes>::new()))
        }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    let served = server
        .header_read_timeout(None)
        .serve_connection(hyper_util::rt::TokioIo::new(gate), service);
    let write = async {
        for piece in bytes.chunks(piece) {
            if writer.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        // Every answer is given before the visitor ends.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let _ = writer.shutdown().await;
    };
    let read = async {
        let _ = tokio::io::copy(&mut reader, &mut tokio::io::sink()).await;
    };
    let (end, (), ()) = tokio::join!(served, write, read);
    let ended = closes.get() || end.is_err_and(|error| error.is_parse());
    let refusal = progress.refused.borrow().is_some() || progress.broken().is_some();
    (progress.heads.get(), progress.calls.get(), ended, refusal)
}

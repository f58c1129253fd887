//! The gate on raw bytes, in one piece and byte by byte.

use std::rc::Rc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use super::{Gate, Progress};
use crate::Protocol;

const REFUSED: &[u8] = b"GET / HTTP/1.1\r\nHost: -\r\nConnection: close\r\n\r\n";

/// What passes of the bytes of a visitor, and the status code of the refusal.
async fn passed(bytes: &[u8], piece: usize) -> (Vec<u8>, Option<u16>) {
    let (mut visitor, server) = duplex(1 << 20);
    let progress = Rc::new(Progress::new());
    let mut gate = Gate::new(server, Rc::clone(&progress));
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
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X-Field: 1\r\n".repeat(100));
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.0\r\n\r\n".as_slice(),
        b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nX: a\tb \xff\r\n\r\n",
        b"POST / HTTP/1.1\r\nhOST: a\r\ncontent-length:  5 \r\n\r\n\n\n\n\n\nPUT / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n5;x=\"y\"\r\na\nb\nc\r\n00\r\nX-Sum: 1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        &long,
        many.as_bytes(),
    ] {
        check(bytes, bytes, None).await;
    }
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
        (400, "GET /\r\n"),
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
    let fits = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(32_000));
    check(fits.as_bytes(), fits.as_bytes(), None).await;
}

#[tokio::test(start_paused = true)]
async fn malformed_chunks_break_the_body() {
    for (chunks, passes, reason) in [
        ("5\nabcde\r\n0\r\n\r\n", "5", "The size of a chunk is malformed."),
        ("5 \r\nabcde\r\n", "5", "The size of a chunk is malformed."),
        ("0x5\r\nabcde\r\n", "0", "The size of a chunk is malformed."),
        ("-5\r\n", "", "The size of a chunk is malformed."),
        ("\r\n", "", "The size of a chunk is malformed."),
        ("ffffffffffffffff\r\n", "fffffffffffffff", "The size of a chunk is malformed."),
        ("5;a\nb\r\nabcde\r\n", "5;a", "The size of a chunk is malformed."),
        ("5\r\nabcdef\r\n", "5\r\nabcde", "A chunk does not have the size that it states."),
        ("5\r\nabcde\n0\r\n", "5\r\nabcde", "A chunk does not have the size that it states."),
        ("0\r\nX : 1\r\n\r\n", "0\r\nX : 1\r", "The trailers of the request are malformed."),
        ("0\r\nX: 1\n\r\n", "0\r\nX: 1", "A line of the trailers ends without CR."),
    ] {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
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

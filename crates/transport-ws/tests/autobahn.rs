//! The cases of the Autobahn test suite, groups 1 to 10, against the server's end of `ws://`.
//! Groups 12 and 13 test compression, which our ends never negotiate. The differences to the suite
//! are intended. There is no echo, so the payload is compared where it leaves the lane. Text is
//! refused with 1003, so the cases for text run with binary messages. Of several pings that arrive
//! together, only the last is answered (RFC 6455 section 5.5.3).
//!
//! Each case is sent whole and in pieces.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use crate::raw;

use raw::{
    BINARY, CLOSE, CONTINUATION, DEADLINE, FIN, Heard, PING, PONG, REQUEST, TEXT, bare, frame,
    frames, hear, shake,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The expected outcome of a case.
struct Wanted {
    payload: Vec<u8>,
    /// The last pong that the server sent, if any.
    pong: Option<Vec<u8>>,
    /// The code of the Close that the server sent.
    code: u16,
    /// Whether the lane ended cleanly.
    is_clean: bool,
}

fn good(payload: &[u8]) -> Wanted {
    Wanted { payload: payload.to_vec(), pong: None, code: 1000, is_clean: true }
}

fn bad(code: u16) -> Wanted {
    Wanted { payload: Vec::new(), pong: None, code, is_clean: false }
}

fn with_pong(pong: &[u8], wanted: Wanted) -> Wanted {
    Wanted { pong: Some(pong.to_vec()), ..wanted }
}

fn binary(payload: &[u8]) -> Vec<u8> {
    frame(FIN | BINARY, payload)
}

fn close(code: u16, reason: &[u8]) -> Vec<u8> {
    frame(FIN | CLOSE, &[&code.to_be_bytes(), reason].concat())
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| u8::try_from(i % 251).unwrap()).collect()
}

/// Cuts `payload` into fragments of `size` bytes.
fn fragments(payload: &[u8], size: usize) -> Vec<u8> {
    let parts: Vec<&[u8]> = payload.chunks(size).collect();
    let last = parts.len() - 1;
    let part = |(i, part): (usize, &&[u8])| {
        let opcode = if i == 0 { BINARY } else { CONTINUATION };
        frame(opcode | if i == last { FIN } else { 0 }, part)
    };
    parts.iter().enumerate().flat_map(part).collect()
}

/// Sends `sent` at once, and then in pieces of each size.
async fn case(name: &str, sent: &[u8], wanted: &Wanted, pieces: &[usize]) {
    for &size in [usize::MAX].iter().chain(pieces) {
        let request = format!("{REQUEST}\r\n");
        let (carrier, mut peer, answer) = shake(request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        peer.set_nodelay(true).unwrap();
        let (mut from, mut to) = peer.split();
        let talk = async {
            for piece in sent.chunks(size) {
                // The server may have ended the connection already.
                if to.write_all(piece).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        let mut answers = Vec::new();
        let read = async { drop(from.read_to_end(&mut answers).await) };
        let listen = async {
            let mut lane = carrier.unwrap().lane;
            let heard = hear(&mut *lane).await;
            drop(lane);
            heard
        };
        let all = async { tokio::join!(talk, read, listen) };
        let (_, _, Heard { payload, end }) = tokio::time::timeout(DEADLINE, all).await.expect(name);
        assert_eq!(end.is_ok(), wanted.is_clean, "{name}: {end:?}");
        if wanted.is_clean {
            assert!(payload == wanted.payload, "{name}: {} bytes of payload", payload.len());
        }
        let mut answers = frames(&answers);
        let (opcode, body) = answers.pop().unwrap_or_else(|| panic!("{name}: no Close"));
        let code = body.first_chunk().map(|code| u16::from_be_bytes(*code));
        assert_eq!((opcode, code), (CLOSE, Some(wanted.code)), "{name}");
        assert!(answers.iter().all(|(opcode, _)| *opcode == PONG), "{name}");
        let pong = answers.pop().map(|(_, body)| body);
        assert_eq!(pong, wanted.pong, "{name}");
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test);
}

#[test]
fn group_1_and_9_messages_of_every_size() {
    run(async {
        for length in [0, 125, 126, 127, 128, 65_535, 65_536] {
            let payload = bytes(length);
            let sent = [binary(&payload), close(1000, b"")].concat();
            case(&format!("1.2, {length}"), &sent, &good(&payload), &[997]).await;
        }
        for length in [256 << 10, 4 << 20, 16 << 20] {
            let payload = bytes(length);
            let sent = [binary(&payload), close(1000, b"")].concat();
            case(&format!("9.2, {length}"), &sent, &good(&payload), &[]).await;
        }
        for size in [64, 4 << 10, 256 << 10, 1 << 20] {
            let payload = bytes(4 << 20);
            let sent = [fragments(&payload, size), close(1000, b"")].concat();
            case(&format!("9.4, fragments of {size}"), &sent, &good(&payload), &[]).await;
        }
        let payload = bytes(1 << 20);
        let sent = [binary(&payload), close(1000, b"")].concat();
        case("9.6, chops", &sent, &good(&payload), &[64, 128, 1024, 2048]).await;
        let payload = bytes(65_536);
        let sent = [fragments(&payload, 1300), close(1000, b"")].concat();
        case("10.1.1", &sent, &good(&payload), &[]).await;
        let sent = binary(&bytes((16 << 20) + 1));
        case("one byte more than the limit", &sent[..1000], &bad(1009), &[1]).await;
        let parts = [frame(BINARY, &bytes(16 << 20)), frame(CONTINUATION, b"x")].concat();
        case("one more in fragments", &parts, &bad(1009), &[]).await;
    });
}

#[test]
fn group_2_pings_and_pongs() {
    run(async {
        let end = close(1000, b"");
        let ping = |payload: &[u8]| frame(FIN | PING, payload);
        let pong = |payload: &[u8]| frame(FIN | PONG, payload);
        for payload in [&b""[..], b"Hello, world!", &[0, 0xff, 0xfe, 0xfd], &bytes(125)] {
            let sent = [ping(payload), end.clone()].concat();
            case("2.1-2.4, 2.6", &sent, &with_pong(payload, good(b"")), &[1]).await;
        }
        case("2.5", &[ping(&bytes(126)), end.clone()].concat(), &bad(1002), &[1]).await;
        case("2.7", &[pong(b""), end.clone()].concat(), &good(b""), &[1]).await;
        case("2.8", &[pong(b"unsolicited"), end.clone()].concat(), &good(b""), &[1]).await;
        let sent = [pong(b"unsolicited"), ping(b"ping"), end.clone()].concat();
        case("2.9", &sent, &with_pong(b"ping", good(b"")), &[1]).await;
        let ten: Vec<u8> = (0..10).flat_map(|i| ping(format!("payload-{i}").as_bytes())).collect();
        let sent = [ten, end].concat();
        case("2.10, 2.11", &sent, &with_pong(b"payload-9", good(b"")), &[1]).await;
    });
}

#[test]
fn group_3_and_4_reserved_bits_and_opcodes() {
    run(async {
        let before = binary(b"Hello");
        for reserved in 1..=7 {
            for opcode in [BINARY, PING, CLOSE, CONTINUATION] {
                let sent = [before.clone(), frame(FIN | reserved << 4 | opcode, b"*")].concat();
                case(&format!("3.{reserved}"), &sent, &bad(1002), &[1]).await;
            }
        }
        for opcode in (3..=7).chain(11..=15) {
            for payload in [&b""[..], b"*"] {
                let sent = [before.clone(), frame(FIN | opcode, payload)].concat();
                case(&format!("4.1, 4.2, {opcode}"), &sent, &bad(1002), &[1]).await;
            }
        }
    });
}

#[test]
fn group_5_fragments() {
    run(async {
        let end = close(1000, b"");
        let with_end = |parts: &[Vec<u8>]| [parts.concat(), end.clone()].concat();
        let first = || frame(BINARY, b"fragment1");
        let middle = || frame(CONTINUATION, b"fragment1");
        let last = || frame(FIN | CONTINUATION, b"fragment2");
        let ping = || frame(FIN | PING, b"ping");
        let both = b"fragment1fragment2";
        for (name, opcode) in [("5.1", PING), ("5.2", PONG)] {
            let sent = with_end(&[frame(opcode, b"fragment1"), last()]);
            case(name, &sent, &bad(1002), &[1]).await;
        }
        case("5.3-5.5", &with_end(&[first(), last()]), &good(both), &[1]).await;
        let sent = with_end(&[first(), ping(), last()]);
        case("5.6-5.8", &sent, &with_pong(b"ping", good(both)), &[1]).await;
        let hello = || binary(b"Hello");
        let lonely = frame(FIN | CONTINUATION, b"non-continuation payload");
        case("5.9-5.11", &with_end(&[lonely, hello()]), &bad(1002), &[1]).await;
        let lonely = frame(CONTINUATION, b"non-continuation payload");
        case("5.12-5.14", &with_end(&[lonely, hello()]), &bad(1002), &[1]).await;
        let sent = with_end(&[first(), last(), middle(), hello()]);
        case("5.15", &sent, &bad(1002), &[1]).await;
        let sent = with_end(&[middle(), hello(), last()]);
        case("5.16, 5.17", &sent, &bad(1002), &[1]).await;
        let sent = with_end(&[first(), binary(b"fragment2")]);
        case("5.18", &sent, &bad(1002), &[1]).await;
        let part = |text: &[u8]| frame(CONTINUATION, text);
        let sent = with_end(&[
            frame(BINARY, b"1"),
            part(b"2"),
            frame(FIN | PING, b"pongme 1!"),
            part(b"3"),
            part(b""),
            part(b"4"),
            frame(FIN | PING, b"pongme 2!"),
            frame(FIN | CONTINUATION, b"5"),
        ]);
        case("5.19, 5.20", &sent, &with_pong(b"pongme 2!", good(b"12345")), &[1]).await;
    });
}

#[test]
fn group_6_text_is_refused_and_masks_are_wanted() {
    run(async {
        case("text", &frame(FIN | TEXT, b"Hello"), &bad(1003), &[1]).await;
        case("fragmented text", &frame(TEXT, b"Hel"), &bad(1003), &[1]).await;
        case("no mask", &bare(FIN | BINARY, b"Hello"), &bad(1002), &[1]).await;
        case("no mask on a ping", &bare(FIN | PING, b""), &bad(1002), &[1]).await;
    });
}

#[test]
fn group_7_closes() {
    run(async {
        let end = || close(1000, b"");
        case("7.1.1", &[binary(b"Hello"), end()].concat(), &good(b"Hello"), &[1]).await;
        case("7.1.2", &[end(), end()].concat(), &good(b""), &[1]).await;
        case("7.1.3", &[end(), frame(FIN | PING, b"")].concat(), &good(b""), &[1]).await;
        case("7.1.4", &[end(), binary(b"late")].concat(), &good(b""), &[1]).await;
        let sent = [frame(BINARY, b"fragment1"), end(), frame(FIN | CONTINUATION, b"2")].concat();
        case("7.1.5", &sent, &good(b"fragment1"), &[1]).await;
        let payload = bytes(256 << 10);
        let sent = [binary(&payload), end(), frame(FIN | PING, b"")].concat();
        case("7.1.6", &sent, &good(&payload), &[]).await;

        case("7.3.1", &frame(FIN | CLOSE, b""), &good(b""), &[1]).await;
        case("7.3.2", &frame(FIN | CLOSE, b"a"), &bad(1002), &[1]).await;
        case("7.3.3", &end(), &good(b""), &[1]).await;
        case("7.3.4", &close(1000, b"Hello World!"), &good(b""), &[1]).await;
        case("7.3.5", &close(1000, &[b'*'; 123]), &good(b""), &[1]).await;
        case("7.3.6", &close(1000, &[b'*'; 124]), &bad(1002), &[1]).await;
        case("7.5.1", &close(1000, &[0xce, 0xba, 0xe1, 0xbd, 0xed, 0xa0, 0x80]), &bad(1007), &[1])
            .await;

        case("7.7, 1001", &close(1001, b""), &good(b""), &[1]).await;
        // These codes are complaints: the server answers them and reports them as errors.
        for code in [1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014] {
            case(&format!("7.7, {code}"), &close(code, b"why"), &bad(1000), &[1]).await;
        }
        for code in [3000, 3999, 4000, 4999] {
            case(&format!("7.7, {code}"), &close(code, b""), &bad(1000), &[1]).await;
        }
        for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
            case(&format!("7.9, 7.13, {code}"), &close(code, b""), &bad(1002), &[1]).await;
        }
    });
}

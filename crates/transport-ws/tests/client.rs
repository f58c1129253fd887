//! The client's end against a scripted server: the client's request, and the answers and frames
//! that the client refuses.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]
#![allow(dead_code, reason = "the other tests use the rest of the raw peer")]

use crate::raw;

use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use raw::{BINARY, CLOSE, CONTINUATION, DEADLINE, FIN, Heard, PING, TEXT, bare, frame, hear};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use transport::{Carrier, CarrierError, Dialer as _};
use transport_tcp::TcpDialer;
use transport_ws::{Request, WsDialer};

/// Runs the client's handshake with a server that sends `answer(key)`; returns the outcome and the
/// request.
async fn dial(
    fields: &[(&str, &str)],
    ping_after: Duration,
    answer: impl Fn(&str) -> String,
) -> (Result<Carrier, CarrierError>, TcpStream, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let extra: Vec<_> = fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let request = Request::new("/tunnel?x=1", "a.example:8443", &extra).unwrap();
    let dialer = WsDialer::new(TcpDialer::new(None), request, ping_after);
    let dialled = dialer.dial(listener.local_addr().unwrap());
    let serve = async {
        let (mut peer, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(peer.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let key = head.split("Sec-WebSocket-Key: ").nth(1).unwrap().split('\r').next().unwrap();
        peer.write_all(answer(key).as_bytes()).await.unwrap();
        (peer, head)
    };
    let both = async { tokio::join!(dialled, serve) };
    let (carrier, (peer, head)) = tokio::time::timeout(DEADLINE, both).await.unwrap();
    (carrier, peer, head)
}

/// The right answer to `key` (RFC 6455 section 1.3).
fn good(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let accept = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()));
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    )
}

const NEVER: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn the_request_is_what_was_wished() {
    let fields = [("X-Key", "secret words"), ("host", "other.example"), ("User-Agent", "curl/8")];
    for (fields, host) in [(&fields[..1], "a.example:8443"), (&fields[..], "other.example")] {
        let (carrier, _peer, head) = dial(fields, NEVER, good).await;
        carrier.unwrap();
        let start = format!("GET /tunnel?x=1 HTTP/1.1\r\nHost: {host}\r\n");
        assert!(head.starts_with(&start), "{head}");
        assert_eq!(head.to_ascii_lowercase().matches("\r\nhost:").count(), 1, "{head}");
        for line in [
            "X-Key: secret words",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Protocol: tunnel.1",
        ] {
            assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} in {head}");
        }
        assert!(!head.contains("Extensions"), "{head}");
    }
}

#[tokio::test]
async fn each_key_is_new_and_only_its_own_answer_is_good() {
    let (_, _, first) = dial(&[], NEVER, good).await;
    let (_, _, second) = dial(&[], NEVER, good).await;
    assert_ne!(first, second);
    let (carrier, _, _) = dial(&[], NEVER, |_| good("dGhlIHNhbXBsZSBub25jZQ==")).await;
    let error = carrier.unwrap_err();
    assert!(!error.is_network() && error.to_string().contains("not the answer"), "{error}");
    let twice = |key: &str| {
        let protocol = "Sec-WebSocket-Protocol: chat\r\n";
        good(key).replace("\r\n\r\n", &format!("\r\n{protocol}{protocol}\r\n"))
    };
    assert!(dial(&[], NEVER, twice).await.0.unwrap_err().to_string().contains("subprotocol"));
}

/// Frames that a server must not send, each with the code of the client's Close. `autobahn.rs`
/// tests the other direction.
#[tokio::test]
async fn a_server_that_breaks_the_rules_is_refused_with_the_right_code() {
    let fragment = |opcode| bare(opcode, b"part");
    let cases: [(&str, Vec<u8>, u16); 12] = [
        ("a mask", frame(FIN | BINARY, b"x"), 1002),
        ("text", bare(FIN | TEXT, b"x"), 1003),
        ("an unknown opcode", bare(FIN | 3, b"x"), 1002),
        ("an unknown control opcode", bare(FIN | 11, b"x"), 1002),
        ("a reserved bit", bare(FIN | 0x40 | BINARY, b"x"), 1002),
        ("a continuation of nothing", bare(FIN | CONTINUATION, b"x"), 1002),
        ("a message within a message", [fragment(BINARY), bare(FIN | BINARY, b"x")].concat(), 1002),
        ("a ping in fragments", bare(PING, b"x"), 1002),
        ("a ping of 126 bytes", bare(FIN | PING, &[0; 126]), 1002),
        (
            "a message of 17 MiB",
            [&[FIN | BINARY, 127][..], &(17u64 << 20).to_be_bytes()].concat(),
            1009,
        ),
        ("a Close of one byte", bare(FIN | CLOSE, b"x"), 1002),
        ("a reason that is not UTF-8", bare(FIN | CLOSE, &[3, 232, 0xff]), 1007),
    ];
    for (name, sent, code) in cases {
        let (carrier, mut peer, _) = dial(&[], NEVER, good).await;
        peer.write_all(&sent).await.unwrap();
        let mut lane = carrier.unwrap().lane;
        let Heard { end, .. } = tokio::time::timeout(DEADLINE, hear(&mut *lane)).await.expect(name);
        assert!(end.is_err(), "{name}");
        drop(lane);
        let mut answer = Vec::new();
        let read = peer.read_to_end(&mut answer);
        // When bytes were left unread, a reset follows the Close.
        let _ = tokio::time::timeout(DEADLINE, read).await.expect(name);
        let [first, second, mask @ .., high, low] = &answer[..8] else {
            panic!("{name}: {answer:?}")
        };
        assert_eq!((*first, second & 0x80), (FIN | CLOSE, 0x80), "{name}: a masked Close");
        assert_eq!(u16::from_be_bytes([high ^ mask[0], low ^ mask[1]]), code, "{name}");
    }
}

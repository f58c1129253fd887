//! The opening handshake against scripted requests.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]
#![allow(dead_code, reason = "the other test uses the rest of the raw peer")]

use crate::raw;

use raw::{REQUEST, shake};

/// The valid request with one text replaced by another.
fn with(from: &str, to: &str) -> String {
    assert!(REQUEST.contains(from), "{from}");
    format!("{}\r\n", REQUEST.replace(from, to))
}

fn adding(fields: &str) -> String {
    format!("{REQUEST}{fields}\r\n")
}

#[tokio::test]
async fn a_good_request_is_upgraded_in_every_spelling() {
    let spellings = [
        adding(""),
        adding("Sec-WebSocket-Protocol: chat, tunnel.1\r\n"),
        adding("Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"),
        with("Upgrade: websocket", "upgrade:WebSocket"),
        with("Connection: Upgrade", "Connection: keep-alive, UPGRADE"),
        with("GET /tunnel ", "GET /tunnel?a=b "),
    ];
    for request in spellings {
        let (carrier, _peer, answer) = shake(request.as_bytes()).await;
        assert!(carrier.is_ok(), "{request}: {carrier:?}");
        assert!(answer.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{answer}");
        assert!(answer.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
        assert_eq!(answer.contains("Protocol: tunnel.1"), request.contains("tunnel.1"));
        assert!(!answer.contains("Extensions"), "{answer}");
    }
}

#[tokio::test]
async fn what_is_not_for_us_looks_like_an_empty_web_server() {
    let requests = [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "GET /tunnel HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "HEAD / HTTP/1.0\r\n\r\n".to_owned(),
        with("GET /tunnel ", "GET /tunnels "),
        with("GET /tunnel ", "POST /tunnel "),
        with("Upgrade: websocket", "Upgrade: h2c"),
        adding("Sec-WebSocket-Protocol: chat\r\n"),
    ];
    for request in requests {
        let (carrier, _peer, answer) = shake(request.as_bytes()).await;
        let error = carrier.unwrap_err().to_string();
        assert!(error.contains("answered with 404"), "{error}");
        assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{request}: {answer}");
    }
}

#[tokio::test]
async fn a_broken_request_is_refused_with_its_status() {
    let many: String = (0..65).map(|i| format!("X-{i}: 1\r\n")).collect();
    let cases = [
        (with("Version: 13", "Version: 8"), "426"),
        (with("Sec-WebSocket-Version: 13\r\n", ""), "426"),
        (with("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ="), "400"),
        (with("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", ""), "400"),
        (with("Host: a.example\r\n", ""), "400"),
        (with("HTTP/1.1", "HTTP/1.0"), "400"),
        ("SSH-2.0-OpenSSH_9.2\r\n".to_owned(), "400"),
        (adding(&many), "431"),
        (adding(&format!("X-Long: {}\r\n", "a".repeat(20_000))), "431"),
    ];
    for (request, status) in cases {
        let (carrier, _peer, answer) = shake(request.as_bytes()).await;
        assert!(carrier.is_err(), "{status}");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
        assert_eq!(answer.contains("Sec-WebSocket-Version: 13"), status == "426");
    }
}

#[tokio::test]
async fn what_follows_the_request_at_once_is_not_lost() {
    let request =
        [adding("").as_bytes(), &raw::frame(0x82, b"early"), &raw::frame(0x88, b"")].concat();
    let (carrier, _peer, _answer) = shake(&request).await;
    let heard = raw::hear(&mut *carrier.unwrap().lane).await;
    assert_eq!(heard, raw::Heard { payload: b"early".to_vec(), end: Ok(()) });
}

#[tokio::test]
async fn a_proxy_tells_the_address_of_its_client() {
    let cases = [
        ("X-Forwarded-For: 198.51.100.9, 192.0.2.7\r\n", "192.0.2.7:0"),
        ("X-Real-IP: 192.0.2.7\r\n", "192.0.2.7:0"),
        ("Forwarded: for=\"[2001:db8::7]:5000\"\r\n", "[2001:db8::7]:5000"),
    ];
    for (fields, wanted) in cases {
        let (carrier, _peer, _answer) = shake(adding(fields).as_bytes()).await;
        assert_eq!(carrier.unwrap().peer.address.to_string(), wanted);
    }
    let fields = "X-Real-IP: 192.0.2.7\r\nX-Forwarded-For: 198.51.100.9\r\n";
    let (carrier, peer, _answer) = shake(adding(fields).as_bytes()).await;
    assert_eq!(carrier.unwrap().peer.address, peer.local_addr().unwrap());
}

/// The request arrives one byte at a time, up to the limit or the end. A request is parsed at most
/// once per line, and takes no more memory than its limit.
#[tokio::test]
async fn a_request_may_come_byte_by_byte() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use transport::Listener as _;
    let mut listener = raw::listener();
    let mut peer = tokio::net::TcpStream::connect(listener.local_addr()).await.unwrap();
    peer.set_nodelay(true).unwrap();
    let incoming = std::future::poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
    let talk = async {
        for byte in adding("").bytes() {
            peer.write_all(&[byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut start = [0; 12];
        peer.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 101");
    };
    let (carrier, ()) = tokio::join!(incoming.handshake(), talk);
    carrier.unwrap();
}

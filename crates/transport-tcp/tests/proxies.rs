//! Tests of dialling through scripted proxies: the requests, the answers, and that no byte after
//! the answer is lost.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};

use transport::{CarrierError, Dialer as _};
use transport_tcp::{ProxyKind, ResolvedBy, TcpDialer, Via};

const SOCKS5: ProxyKind = ProxyKind::Socks5(ResolvedBy::Proxy);

/// One turn of a proxy: the request that it must receive, and its answer.
type Turn = (Vec<u8>, Vec<u8>);

/// A proxy for one connection. After the last answer it sends `greeting` at once, as the server
/// behind it.
fn proxy(turns: Vec<Turn>, greeting: &'static [u8]) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let play = move || {
        let (mut stream, _) = listener.accept().unwrap();
        let last = turns.len() - 1;
        for (index, (wanted, answer)) in turns.into_iter().enumerate() {
            let mut heard = vec![0; wanted.len()];
            stream.read_exact(&mut heard).unwrap();
            assert_eq!(String::from_utf8_lossy(&heard), String::from_utf8_lossy(&wanted));
            // The answer and the bytes after it arrive in one piece.
            let said = if index == last { [&answer[..], greeting].concat() } else { answer };
            stream.write_all(&said).unwrap();
        }
    };
    (address, thread::spawn(play))
}

fn via(kind: ProxyKind, host: &str, credentials: Option<(&str, &str)>) -> Via {
    let credentials = credentials.map(|(user, password)| (user.into(), password.into()));
    Via { kind, host: host.into(), port: 7000, credentials }
}

async fn dial(via: Via, turns: Vec<Turn>) -> Result<String, CarrierError> {
    let (address, played) = proxy(turns, b"first words");
    let dialled = TcpDialer::new(None).through(Some(via)).dial(address).await;
    played.join().unwrap();
    let mut lane = dialled?.lane;
    let words = testkit::conformance::read_some(&mut *lane, 64).await.unwrap();
    Ok(String::from_utf8(words.to_vec()).unwrap())
}

fn turn(wanted: &[u8], answer: &[u8]) -> Turn {
    (wanted.to_vec(), answer.to_vec())
}

#[tokio::test]
async fn connect_is_asked_and_the_servers_first_words_are_heard() {
    let ok = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 squid\r\n\r\n";
    let asked = b"CONNECT a.example:7000 HTTP/1.1\r\nHost: a.example:7000\r\n\r\n";
    let heard = dial(via(ProxyKind::Http, "a.example", None), vec![turn(asked, ok)]).await;
    assert_eq!(heard.unwrap(), "first words");

    let asked = b"CONNECT [2001:db8::1]:7000 HTTP/1.1\r\nHost: [2001:db8::1]:7000\r\n\
        Proxy-Authorization: Basic bWU6c2VzYW1l\r\n\r\n";
    let via = via(ProxyKind::Http, "2001:db8::1", Some(("me", "sesame")));
    assert!(!format!("{via:?}").contains("sesame"));
    assert_eq!(dial(via, vec![turn(asked, ok)]).await.unwrap(), "first words");
}

#[tokio::test]
async fn socks_is_spoken_with_names_addresses_and_credentials() {
    let granted = [5, 0, 0, 1, 10, 0, 0, 1, 4, 56];
    let name = [&[5, 1, 0, 3, 9][..], b"a.example", &[27, 88]].concat();
    let turns = vec![turn(&[5, 1, 0], &[5, 0]), turn(&name, &granted)];
    let heard = dial(via(SOCKS5, "a.example", None), turns).await;
    assert_eq!(heard.unwrap(), "first words");

    let granted = [&[5, 0, 0, 3, 5][..], b"proxy", &[4, 56]].concat();
    let address = [5, 1, 0, 1, 192, 0, 2, 1, 27, 88];
    let secret = [&[1, 2][..], b"me", &[6], b"sesame"].concat();
    let turns =
        vec![turn(&[5, 2, 0, 2], &[5, 2]), turn(&secret, &[1, 0]), turn(&address, &granted)];
    let heard = dial(via(SOCKS5, "192.0.2.1", Some(("me", "sesame"))), turns).await;
    assert_eq!(heard.unwrap(), "first words");
}

#[tokio::test]
async fn socks_4_is_spoken_with_addresses_and_4a_with_names() {
    let granted = [0, 90, 0, 0, 0, 0, 0, 0];
    let (here, by_proxy) =
        (ProxyKind::Socks4(ResolvedBy::Client), ProxyKind::Socks4(ResolvedBy::Proxy));
    for (kind, host, user, wanted) in [
        (here, "192.0.2.1", None, &b"\x04\x01\x1b\x58\xc0\x00\x02\x01\0"[..]),
        // A name is looked up here.
        (here, "localhost", Some(("me", "")), b"\x04\x01\x1b\x58\x7f\x00\x00\x01me\0"),
        (by_proxy, "a.example", None, b"\x04\x01\x1b\x58\0\0\0\x01\0a.example\0"),
        (
            by_proxy,
            "2001:db8::1",
            Some(("me", "")),
            b"\x04\x01\x1b\x58\0\0\0\x01me\x002001:db8::1\0",
        ),
    ] {
        let heard = dial(via(kind, host, user), vec![turn(wanted, &granted)]).await;
        assert_eq!(heard.unwrap(), "first words", "{host}");
    }
    let asked = &b"\x04\x01\x1b\x58\xc0\x00\x02\x01\0"[..];
    for (answer, is_network, wanted) in [
        (&[0, 91, 0, 0, 0, 0, 0, 0][..], true, "does not reach 192.0.2.1:7000"),
        (&[4, 91, 0, 0, 0, 0, 0, 0], true, "does not reach 192.0.2.1:7000"),
        (&[0, 93, 0, 0, 0, 0, 0, 0], false, "refuses the user"),
        (&[0, 1, 0, 0, 0, 0, 0, 0], false, "answered 1"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", false, "does not speak SOCKS 4"),
        (&[0, 90], true, "closed the connection"),
    ] {
        let (address, played) = proxy(vec![turn(asked, answer)], b"");
        let dialer = TcpDialer::new(None).through(Some(via(here, "192.0.2.1", None)));
        let error = dialer.dial(address).await.unwrap_err();
        played.join().unwrap();
        assert_eq!(error.is_network(), is_network, "{error}");
        assert!(error.to_string().contains(wanted), "{error}");
    }
    let dialer = TcpDialer::new(None).through(Some(via(here, "::1", None)));
    let error = dialer.dial("127.0.0.1:1".parse().unwrap()).await.unwrap_err().to_string();
    assert!(error.contains("no IPv4 address") && error.contains("socks5://"), "{error}");
}

/// A proxy that reaches no address but 127.0.0.1: every other one is refused.
#[tokio::test]
async fn each_address_of_a_name_that_is_looked_up_here_has_a_connection_to_the_proxy() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let played = thread::spawn(move || {
        // `localhost` is 127.0.0.1 and ::1.
        for (wanted, reply) in [(1, 5), (4, 0)] {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 3]).unwrap();
            stream.write_all(&[5, 0]).unwrap();
            let mut head = [0; 4];
            stream.read_exact(&mut head).unwrap();
            assert_eq!(head[3], wanted);
            stream.read_exact(&mut vec![0; if wanted == 1 { 6 } else { 18 }]).unwrap();
            stream.write_all(&[5, reply, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        }
    });
    let via = via(ProxyKind::Socks5(ResolvedBy::Client), "localhost", None);
    TcpDialer::new(None).through(Some(via)).dial(address).await.unwrap();
    played.join().unwrap();
}

#[tokio::test]
async fn a_refusal_says_whether_it_is_the_weather_or_the_settings() {
    let asked = b"CONNECT a.example:7000 HTTP/1.1\r\nHost: a.example:7000\r\n\r\n";
    let long = [&b"HTTP/1.1 200 OK\r\nX: "[..], &[b'a'; 9000]].concat();
    let cases: [(&[u8], bool, &str); 9] = [
        (b"HTTP/1.1 401 No\r\n\r\n", false, "wants a user and a password (401)"),
        (b"HTTP/1.1 407 No\r\n\r\n", false, "wants a user and a password (407)"),
        (b"HTTP/1.1 403 No\r\n\r\n", false, "does not allow"),
        (b"HTTP/1.1 502 No\r\n\r\n", true, "does not reach a.example:7000"),
        (b"HTTP/1.1 500 Unable to connect\r\n\r\n", true, "does not reach a.example:7000"),
        (b"HTTP/1.1 302 No\r\n\r\n", false, "answered 302"),
        (b"SSH-2.0-x\r\n", false, "does not speak HTTP"),
        (b"HTTP/1.1 200", true, "closed the connection"),
        (&long, false, "longer than 8 KiB"),
    ];
    for (answer, is_network, wanted) in cases {
        let via = via(ProxyKind::Http, "a.example", None);
        // No server is behind the proxy in this case, so no greeting follows.
        let (address, played) = proxy(vec![turn(asked, answer)], b"");
        let error = TcpDialer::new(None).through(Some(via)).dial(address).await.unwrap_err();
        played.join().unwrap();
        assert_eq!(error.is_network(), is_network, "{error}");
        assert!(error.to_string().contains(wanted), "{error}");
    }
    let head = "HTTP/1.1 407 No\r\nProxy-Authenticate: ";
    let credentials = "Proxy-Authorization: Basic bWU6c2VzYW1l\r\n\r\n";
    let first = &asked[..asked.len() - 2];
    for (ways, has_password, wanted) in [
        ("NTLM\r\nProxy-Authenticate: Negotiate", true, "asks for NTLM or Negotiate (407)"),
        ("Digest realm=\"a, Basic\", nonce=\"b\"", true, "asks for Digest (407)"),
        ("Negotiate, Basic realm=\"x\"", true, "refuses the user or the password (407)"),
        ("Negotiate, basic realm=\"x\"", false, "wants a user and a password (407)"),
        ("\u{9b}31m, NTLM TlRMTVNTUAACAAA=", false, "asks for NTLM (407)"),
    ] {
        let via = via(ProxyKind::Http, "a.example", has_password.then_some(("me", "sesame")));
        let end = if has_password { credentials } else { "\r\n" };
        let asked = [first, end.as_bytes()].concat();
        let answer = format!("{head}{ways}\r\n\r\n");
        let (address, played) = proxy(vec![turn(&asked, answer.as_bytes())], b"");
        let error = TcpDialer::new(None).through(Some(via)).dial(address).await.unwrap_err();
        played.join().unwrap();
        assert!(!error.is_network() && error.to_string().contains(wanted), "{error}");
        assert!(!error.to_string().contains("sesame"), "{error}");
    }
    let name = [&[5, 1, 0, 3, 9][..], b"a.example", &[27, 88]].concat();
    for (reply, is_network, wanted) in [(2, false, "does not allow"), (5, true, "refused")] {
        let turns = vec![turn(&[5, 1, 0], &[5, 0]), turn(&name, &[5, reply, 0, 1])];
        let error = dial(via(SOCKS5, "a.example", None), turns).await.unwrap_err();
        assert_eq!(error.is_network(), is_network, "{error}");
        assert!(error.to_string().contains(wanted), "{error}");
    }
    let turns = vec![turn(&[5, 1, 0], &[5, 255])];
    let error = dial(via(SOCKS5, "a.example", None), turns).await.unwrap_err();
    assert!(error.to_string().contains("wants credentials"), "{error}");
}

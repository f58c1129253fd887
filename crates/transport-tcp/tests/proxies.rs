//! Tests of dialling through scripted proxies: the requests, the answers, and that no byte after
//! the answer is lost.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};

use transport::{CarrierError, Dialer as _};
use transport_tcp::{ProxyKind, TcpDialer, Via};

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
    let heard = dial(via(ProxyKind::Socks5, "a.example", None), turns).await;
    assert_eq!(heard.unwrap(), "first words");

    let granted = [&[5, 0, 0, 3, 5][..], b"proxy", &[4, 56]].concat();
    let address = [5, 1, 0, 1, 192, 0, 2, 1, 27, 88];
    let secret = [&[1, 2][..], b"me", &[6], b"sesame"].concat();
    let turns =
        vec![turn(&[5, 2, 0, 2], &[5, 2]), turn(&secret, &[1, 0]), turn(&address, &granted)];
    let heard = dial(via(ProxyKind::Socks5, "192.0.2.1", Some(("me", "sesame"))), turns).await;
    assert_eq!(heard.unwrap(), "first words");
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
        let error = dial(via(ProxyKind::Socks5, "a.example", None), turns).await.unwrap_err();
        assert_eq!(error.is_network(), is_network, "{error}");
        assert!(error.to_string().contains(wanted), "{error}");
    }
    let turns = vec![turn(&[5, 1, 0], &[5, 255])];
    let error = dial(via(ProxyKind::Socks5, "a.example", None), turns).await.unwrap_err();
    assert!(error.to_string().contains("wants credentials"), "{error}");
}

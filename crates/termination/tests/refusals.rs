//! Answers of an ACME authority that pebble never gives: limits, outages, nonsense. The authority
//! is a script in this process.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use termination::{Acme, Doors, NameStatus, Settings, Terminator};
use testkit::certs::Authority;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// The limit for steps that take a second.
const SOON: Duration = Duration::from_secs(60);

struct Site {
    dir: TempDir,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    url: String,
}

impl Site {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new("of the API").unwrap();
        authority.save(dir.path()).unwrap();
        let leaf = authority.server(&["127.0.0.1"]).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        Self { dir, listener, acceptor: Arc::new(config).into(), url }
    }

    /// Answers requests: a directory, nonces and an account; everything else is `answer`, head and
    /// body. The result of an order is the state of the name.
    async fn state_after(&self, host: &str, answer: &str) -> NameStatus {
        let settings = Settings {
            acme: vec![Acme {
                directory: format!("{}/dir", self.url),
                ca: Some(self.dir.path().join("ca.pem")),
                ..Acme::default()
            }],
            state_dir: Some(self.dir.path().to_owned()),
            doors: Doors { http: true, tls: true },
            ..Settings::default()
        };
        let terminator = Terminator::new(&settings).unwrap();
        let _wanted = terminator.want(host, "home");
        let failed = async {
            loop {
                let state = terminator.status().remove(0);
                if state.error.is_some() {
                    return state;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = Arc::clone(&terminator).run() => panic!("the driver has ended"),
            () = self.serve(answer) => panic!("the authority has ended"),
            state = timeout(SOON, failed) => state.unwrap(),
        }
    }

    async fn serve(&self, other: &str) {
        let url = &self.url;
        let directory = format!(
            r#"{{"newNonce":"{url}/nonce","newAccount":"{url}/account","newOrder":"{url}/order"}}"#
        );
        let json = |status: &str, body: &str| {
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        };
        loop {
            let (stream, _) = self.listener.accept().await.unwrap();
            let mut stream = self.acceptor.accept(stream).await.unwrap();
            let mut head = Vec::new();
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                assert!(stream.read_buf(&mut head).await.unwrap() > 0);
            }
            let head = String::from_utf8_lossy(&head);
            assert!(
                head.contains(&format!("\r\nhost: {}\r\n", url.replace("https://", ""))),
                "{head}"
            );
            let answer = match head.split(' ').nth(1).unwrap() {
                "/dir" => json("200 OK", &directory),
                "/nonce" => "HTTP/1.1 200 OK\r\nReplay-Nonce: bm9uY2U\r\n\r\n".to_owned(),
                "/account" => format!(
                    "HTTP/1.1 201 Created\r\nLocation: {url}/account/1\r\nContent-Length: 2\r\n\r\n{{}}"
                ),
                "/order" => other.to_owned(),
                path => panic!("{path}"),
            };
            // A client that has read enough closes.
            drop(stream.write_all(answer.as_bytes()).await);
            drop(stream.shutdown().await);
        }
    }
}

fn problem(status: &str, head: &str, kind: &str, detail: &str) -> String {
    let body = format!(r#"{{"type":"urn:ietf:params:acme:error:{kind}","detail":"{detail}"}}"#);
    format!("HTTP/1.1 {status}\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn near(found: Option<Duration>, expected: u64) -> bool {
    let found = found.unwrap().as_secs();
    found <= expected && found >= expected * 7 / 10
}

#[tokio::test]
async fn a_limit_is_respected_for_as_long_as_the_authority_asks() {
    let site = Site::new().await;
    let limited = |head: &str| problem("429 Too Many Requests", head, "rateLimited", "too many");
    let state = site.state_after("a.example.com", &limited("Retry-After: 172800\r\n")).await;
    assert_eq!(state.error.as_deref(), Some("the order was refused: too many (rateLimited)"));
    assert!(near(state.retry_in, 172_800), "{state:?}");
    let state = site.state_after("a.example.com", &limited("")).await;
    assert!(near(state.retry_in, 3600), "{state:?}");
}

#[tokio::test]
async fn an_authority_that_fails_is_told_and_asked_again_after_a_minute() {
    let site = Site::new().await;
    let large =
        format!("HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n{}", "x".repeat(2_000_000));
    let down = problem("503 Service Unavailable", "", "serverInternal", "one\\u001b[2J\\ntwo");
    for (answer, error) in [
        (down.as_str(), r"the order was refused: one\u{1b}[2J\ntwo (serverInternal)"),
        (
            "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\noops",
            "the answer is no JSON of ACME (",
        ),
        ("nonsense\r\n\r\n", "127.0.0.1 cannot be asked: invalid HTTP version parsed"),
        ("", "127.0.0.1 cannot be asked: connection closed before message completed"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
            "127.0.0.1 cannot be asked: reading its answer",
        ),
        (large.as_str(), "127.0.0.1 cannot be asked: reading its answer: length limit exceeded"),
    ] {
        let state = site.state_after("a.example.com", answer).await;
        let found = state.error.as_deref().unwrap();
        assert!(found.starts_with("the order was refused: ") && found.contains(error), "{found}");
        assert!(near(state.retry_in, 60), "{state:?}");
    }
}

#[tokio::test]
async fn a_broken_file_of_the_account_is_named_with_a_remedy() {
    let site = Site::new().await;
    let limited = problem("429 Too Many Requests", "", "rateLimited", "too many");
    site.state_after("a.example.com", &limited).await;
    let mut folders = std::fs::read_dir(site.dir.path().join("acme")).unwrap();
    let file = folders.next().unwrap().unwrap().path().join("account.json");
    std::fs::write(&file, "{").unwrap();
    let state = site.state_after("a.example.com", &limited).await;
    let error = state.error.unwrap();
    assert!(error.starts_with(&format!("{}: ", file.display())), "{error}");
    assert!(error.ends_with("(hint: move the file away, and a new account is made)"), "{error}");
}

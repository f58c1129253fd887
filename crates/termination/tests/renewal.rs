//! Renewal information (RFC 9773). The authority is pebble behind a front that adds what pebble of
//! Debian does not have: a URL in the directory, and a window for each certificate.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use termination::{Acme, CertificateSource, Dns, Doors, NameStatus, Settings, Terminator, Wait};
use testkit::certs::Authority;
use testkit::stage::{CheckedPorts, Pebble};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The limit for steps that take a second.
const SOON: Duration = Duration::from_secs(60);

const HOST: &str = "app.example.com";

/// A year in seconds.
const YEAR: u64 = 365 * 86_400;

struct Site {
    dir: tempfile::TempDir,
    ca: PathBuf,
    pebble: Pebble,
    front: TcpListener,
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    /// The answer for each certificate: status and body, with the fields of the head.
    window: RefCell<String>,
    /// The requests for renewal information, and whether orders said what they replace.
    asked: RefCell<Vec<String>>,
    replaced: RefCell<Vec<bool>>,
    /// The answer to an order repeats what it replaces, as an authority that knows of it has to.
    repeats: Cell<bool>,
}

impl Site {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new("of pebble's own API").unwrap();
        let ca = authority.save(dir.path()).unwrap();
        let leaf = authority.server(&["127.0.0.1"]).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
        let acceptor = ServerConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&ca).unwrap()).unwrap();
        let connector = ClientConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        // No door is asked: names are proved by dns-01.
        let ports = CheckedPorts { http: 1, tls: 1 };
        let server = (leaf.certificate.as_str(), leaf.key.as_str());
        let pebble = Pebble::start(dir.path(), server, &ca, ports);
        Self {
            dir,
            ca,
            pebble,
            front: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            acceptor: Arc::new(acceptor).into(),
            connector: Arc::new(connector).into(),
            window: RefCell::default(),
            asked: RefCell::default(),
            replaced: RefCell::default(),
            repeats: Cell::new(true),
        }
    }

    fn url(&self) -> String {
        format!("https://{}", self.front.local_addr().unwrap())
    }

    fn settings(&self) -> Settings {
        let dns = Dns {
            program: Pebble::hook(self.dir.path()),
            timeout: Duration::from_secs(20),
            wait: Wait::Fixed(Duration::ZERO),
            resolvers: Vec::new(),
        };
        Settings {
            acme: vec![Acme {
                directory: format!("{}/dir", self.url()),
                ca: Some(self.ca.clone()),
                dns: Some(dns),
                ..Acme::default()
            }],
            state_dir: Some(self.dir.path().to_owned()),
            doors: Doors::default(),
            ..Settings::default()
        }
    }

    /// Passes requests on to pebble, which makes its URLs of Host, and answers for renewals.
    async fn serve(&self) {
        loop {
            let (stream, _) = self.front.accept().await.unwrap();
            // The daemon before a restart has left its last request.
            let Ok(mut stream) = self.acceptor.accept(stream).await else { continue };
            let Some(request) = read_request(&mut stream).await else { continue };
            let text = String::from_utf8_lossy(&request).into_owned();
            let path = text.split(' ').nth(1).unwrap();
            let answer = match path {
                "/dir" => {
                    let url = self.url();
                    let directory = format!(
                        r#"{{"newNonce":"{url}/nonce-plz","newAccount":"{url}/sign-me-up","newOrder":"{url}/order-plz","keyChange":"{url}/rollover-account-key","revokeCert":"{url}/revoke-cert","renewalInfo":"{url}/renewal"}}"#
                    );
                    let length = directory.len();
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{directory}")
                        .into_bytes()
                }
                path if path.starts_with("/renewal/") => {
                    self.asked.borrow_mut().push(path.to_owned());
                    self.window.borrow().clone().into_bytes()
                }
                path => {
                    let answer = self.pass_on(&request).await;
                    // Pebble may have refused the nonce.
                    if path == "/order-plz" && answer.starts_with(b"HTTP/1.1 201 ") {
                        let id = replaces(&text);
                        self.replaced.borrow_mut().push(id.is_some());
                        id.filter(|_| self.repeats.get())
                            .map_or_else(|| answer.clone(), |id| with_replaces(&answer, &id))
                    } else {
                        answer
                    }
                }
            };
            // A client that has read enough closes.
            drop(stream.write_all(&answer).await);
            drop(stream.shutdown().await);
        }
    }

    async fn pass_on(&self, request: &[u8]) -> Vec<u8> {
        let stream = TcpStream::connect(("127.0.0.1", self.pebble.port())).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = self.connector.connect(name, stream).await.unwrap();
        let text = String::from_utf8(request.to_vec()).unwrap();
        let (line, rest) = text.split_once("\r\n").unwrap();
        let request = format!("{line}\r\nConnection: close\r\n{rest}");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // Pebble closes without an alert.
        let _ = stream.read_to_end(&mut answer).await;
        answer
    }

    /// Runs a new daemon's orders until `body` has ended.
    async fn run<T>(&self, body: impl AsyncFnOnce(&Terminator) -> T) -> T {
        let terminator = Terminator::new(&self.settings()).unwrap();
        let _wanted = terminator.want(HOST, "home");
        tokio::select! {
            () = Arc::clone(&terminator).run() => panic!("the driver has ended"),
            () = self.serve() => panic!("the front has ended"),
            done = timeout(SOON, body(&terminator)) => done.unwrap_or_else(|_| {
                panic!("{:?}\n{}", terminator.status(), self.pebble.log())
            }),
        }
    }

    /// Whether orders said what they replace, without repetitions: pebble refuses nonces, and then
    /// an order is made again.
    fn replaced(&self) -> Vec<bool> {
        let mut all = self.replaced.borrow().clone();
        all.dedup();
        all
    }

    /// Waits until the window was asked for this number of times.
    async fn asked(&self, times: usize) {
        while self.asked.borrow().len() < times {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn read_request(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    loop {
        stream.read_buf(&mut request).await.ok().filter(|n| *n > 0)?;
        let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            return Some(request);
        }
    }
}

/// The answer to an order with the member `replaces`.
fn with_replaces(answer: &[u8], id: &str) -> Vec<u8> {
    let text = String::from_utf8(answer.to_vec()).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut order: serde_json::Value = serde_json::from_str(body).unwrap();
    order["replaces"] = id.into();
    let body = order.to_string();
    let head = head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("content-length"));
    let head: String = head.map(|line| format!("{line}\r\n")).collect();
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The member `replaces` of the payload of an order.
fn replaces(request: &str) -> Option<String> {
    let body = request.split_once("\r\n\r\n").unwrap().1;
    let signed: serde_json::Value = serde_json::from_str(body).unwrap();
    let payload = signed["payload"].as_str().unwrap();
    let bits = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'-' => 62,
        _ => 63,
    };
    let mut text = Vec::new();
    for four in payload.as_bytes().chunks(4) {
        let all = four.iter().fold(0_u32, |all, c| all << 6 | u32::from(bits(*c)));
        let all = all << (6 * (4 - four.len()));
        text.extend(&all.to_be_bytes()[1..four.len()]);
    }
    let payload: serde_json::Value = serde_json::from_slice(&text).unwrap();
    payload["replaces"].as_str().map(str::to_owned)
}

async fn issued(terminator: &Terminator, is_it: impl Fn(&NameStatus) -> bool) -> NameStatus {
    loop {
        let name = terminator.status().remove(0);
        if name.source == CertificateSource::Acme && is_it(&name) {
            return name;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

fn window(begin: u64, end: u64, retry_after: u64) -> String {
    // Days of 1970 and of 2099 are in every month that has 28 days.
    let body = format!(
        r#"{{"suggestedWindow":{{"start":"{begin}-01-02T00:00:00Z","end":"{end}-01-03T00:00:00Z"}},"explanationURL":"https://ca.example/why"}}"#
    );
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nRetry-After: {retry_after}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn the_authority_decides_when_a_certificate_is_renewed() {
    let site = Site::new().await;
    // The first order replaces nothing. Behind it the authority suggests nothing special.
    *site.window.borrow_mut() = window(2099, 2099, 21_600);
    let first = site.run(async |terminator| {
        let first = issued(terminator, |_| true).await;
        site.asked(1).await;
        first
    });
    let first = first.await;
    assert_eq!(first.challenge, Some("dns-01"));
    assert_eq!(site.replaced(), [false]);
    let path = site.asked.borrow()[0].clone();
    let (_, identifier) = path.rsplit_once('/').unwrap();
    assert_eq!(identifier.matches('.').count(), 1, "{path}");

    // After a restart: the window of 2099 is bounded by the end of the certificate.
    let later = site.run(async |terminator| {
        site.asked(2).await;
        // Without a window the time is a third of the certificate's five years before its end. The
        // answer of the first run may have come before its status was read.
        issued(terminator, |name| name.renews > name.expires.map(|end| end - YEAR)).await
    });
    let later = later.await;
    assert!(later.renews >= first.renews && later.renews < later.expires, "{later:?}");
    assert_eq!(later.expires, first.expires, "no order was made");

    // The authority has to revoke it: the window is over, so that the order follows at once. The
    // end of a certificate is a whole second.
    sleep(Duration::from_millis(1_100)).await;
    *site.window.borrow_mut() = window(1970, 1970, 21_600);
    site.run(async |terminator| {
        issued(terminator, |name| name.expires > first.expires).await;
    })
    .await;
    assert_eq!(site.replaced(), [false, true]);
    assert_eq!(site.asked.borrow()[2], path, "the same certificate is named");

    // An authority that does not accept what an order replaces gets an order without it.
    sleep(Duration::from_millis(1_100)).await;
    site.repeats.set(false);
    site.run(async |terminator| {
        let before = terminator.status()[0].expires;
        issued(terminator, |name| name.expires > before).await;
    })
    .await;
    assert_eq!(site.replaced(), [false, true, false]);

    // An authority that is silent or says nonsense changes nothing.
    for answer in [
        "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    ] {
        *site.window.borrow_mut() = answer.to_owned();
        let before = site.asked.borrow().len();
        let name = site.run(async |terminator| {
            site.asked(before + 1).await;
            issued(terminator, |_| true).await
        });
        let name = name.await;
        assert!(name.error.is_none() && name.renews < name.expires, "{name:?}");
    }
    assert_eq!(site.replaced(), [false, true, false], "no further order");
}

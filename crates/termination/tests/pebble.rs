//! Orders at a real ACME authority: pebble of Debian, which rejects a fifth of all nonces. The
//! doors of these tests answer checks by the terminator alone, as the doors of the server do.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use tempfile::TempDir;
use termination::{
    Acme, CertificateSource, CommonSecret, Cover, Dns, Doors, ExpectedValue, NameStatus, OrderTurn,
    PutOutcome, Settings, SharedPlace, SharedStore, StoreAway, StoreFuture, StoredValue,
    Terminator, Wait,
};
use testkit::certs::{Authority, Leaf};
use testkit::stage::{CheckedPorts, NOWHERE, Pebble, REFUSED, write_program};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

/// The limit for steps that take a second.
const SOON: Duration = Duration::from_secs(60);

const HTTP: Doors = Doors { http: true, tls: false };
const TLS: Doors = Doors { http: false, tls: true };

/// An authority, and the listeners that it checks.
struct Site {
    dir: TempDir,
    ca: PathBuf,
    leaf: Leaf,
    http: TcpListener,
    tls: TcpListener,
    pebble: Pebble,
}

impl Site {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new("of pebble's own API").unwrap();
        let ca = authority.save(dir.path()).unwrap();
        let leaf = authority.server(&["127.0.0.1"]).unwrap();
        let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tls = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pebble =
            Pebble::start(dir.path(), (&leaf.certificate, &leaf.key), &ca, ports(&http, &tls));
        Self { dir, ca, leaf, http, tls, pebble }
    }

    /// Ends pebble and starts another at the same URL, which knows nothing of the first.
    fn restart_pebble(self) -> Self {
        let Self { dir, ca, leaf, http, tls, pebble } = self;
        let port = pebble.port();
        drop(pebble);
        let server = (leaf.certificate.as_str(), leaf.key.as_str());
        let pebble = Pebble::start_on(port, dir.path(), server, &ca, ports(&http, &tls));
        Self { dir, ca, leaf, http, tls, pebble }
    }

    fn settings(&self, doors: Doors) -> Settings {
        Settings {
            acme: vec![Acme {
                contacts: vec!["admin@example.com".into()],
                directory: self.pebble.directory.clone(),
                ca: Some(self.ca.clone()),
                ..Acme::default()
            }],
            state_dir: Some(self.dir.path().to_owned()),
            doors,
            ..Settings::default()
        }
    }

    /// Runs the driver and the doors until `body` has ended.
    async fn run<T>(&self, terminator: &Arc<Terminator>, body: impl Future<Output = T>) -> T {
        tokio::select! {
            () = Arc::clone(terminator).run() => panic!("the driver has ended"),
            () = http_door(&self.http, terminator) => panic!("the door has ended"),
            () = tls_door(&self.tls, terminator) => panic!("the door has ended"),
            done = timeout(SOON, body) => done.unwrap_or_else(|_| {
                panic!("{:?}\n{}", terminator.status(), self.pebble.log())
            }),
        }
    }

    /// A file in the folder of the authority.
    fn kept(&self, name: &str) -> PathBuf {
        let mut folders = fs::read_dir(self.dir.path().join("acme")).unwrap();
        let folder = folders.next().unwrap().unwrap().path();
        assert!(folders.next().is_none(), "one authority, one folder");
        folder.join(name)
    }
}

fn ports(http: &TcpListener, tls: &TcpListener) -> CheckedPorts {
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    CheckedPorts { http: port(http), tls: port(tls) }
}

/// Answers http-01, and 404 for requests that are a service's.
async fn http_door(listener: &TcpListener, terminator: &Terminator) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap() > 0 {}
        let head = String::from_utf8(head).unwrap();
        let path = head.split(' ').nth(1).unwrap_or_default();
        let host = head.lines().find_map(|line| line.strip_prefix("Host: ")).unwrap_or_default();
        let host = host.split(':').next().unwrap_or_default();
        let token = path.strip_prefix("/.well-known/acme-challenge/").unwrap_or_default();
        assert_eq!(terminator.challenge_token("other.example.com", token), None);
        let answer = match terminator.challenge_token(host, token) {
            Some(body) => Some(body),
            None => terminator.challenge_token_elsewhere(host, token).await,
        };
        let answer = match answer {
            Some(body) => {
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            }
            None => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into(),
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

/// Answers tls-alpn-01. Other connections are closed.
async fn tls_door(listener: &TcpListener, terminator: &Terminator) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut acceptor = rustls::server::Acceptor::default();
        let mut begin = Vec::new();
        let hello = loop {
            let before = begin.len();
            if stream.read_buf(&mut begin).await.unwrap_or(0) == 0 {
                break None;
            }
            acceptor.read_tls(&mut &begin[before..]).unwrap();
            match acceptor.accept() {
                Ok(Some(hello)) => break Some(hello),
                Ok(None) => {}
                Err(_) => break None,
            }
        };
        let Some(hello) = hello else { continue };
        let hello = hello.client_hello();
        let name = hello.server_name().unwrap_or_default();
        let alpn: Vec<Box<[u8]>> = hello.alpn().into_iter().flatten().map(Into::into).collect();
        if let Some(check) = terminator.awaited_check(name, &alpn).await {
            let (reader, writer) = stream.into_split();
            let io = tokio::io::join(io::Cursor::new(begin).chain(reader), writer);
            // Pebble closes without an alert.
            drop(terminator.answer_challenge(io, check).await);
        }
    }
}

/// Waits for the state of a name.
async fn state(
    terminator: &Terminator,
    host: &str,
    is_it: impl Fn(&NameStatus) -> bool,
) -> NameStatus {
    loop {
        let found = terminator.status().into_iter().find(|name| name.host == host && is_it(name));
        if let Some(found) = found {
            return found;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn issued(terminator: &Terminator, host: &str) -> NameStatus {
    state(terminator, host, |name| name.source == CertificateSource::Acme).await
}

async fn failed(terminator: &Terminator, host: &str) -> NameStatus {
    state(terminator, host, |name| name.error.is_some()).await
}

/// The leaf that a visitor sees who trusts `root` and checks the name.
async fn visit(terminator: &Terminator, root: &str, host: &str) -> io::Result<Vec<u8>> {
    Ok(visit_with(&client_config(root), terminator, host).await?.0)
}

/// A visitor that trusts `root`, and keeps its sessions.
fn client_config(root: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// The leaf that a visitor sees, and whether it has resumed a session.
async fn visit_with(
    config: &Arc<ClientConfig>,
    terminator: &Terminator,
    host: &str,
) -> io::Result<(Vec<u8>, HandshakeKind)> {
    let (near, far) = tokio::io::duplex(64 << 10);
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let connector = TlsConnector::from(Arc::clone(config));
    let (visitor, server) =
        tokio::join!(connector.connect(name, near), terminator.accept(far, host));
    let mut server = server?;
    let mut visitor = visitor?;
    // The tickets come before the first byte.
    server.write_all(b"x").await?;
    server.flush().await?;
    visitor.read_exact(&mut [0]).await?;
    let tls = visitor.get_ref().1;
    Ok((tls.peer_certificates().unwrap()[0].to_vec(), tls.handshake_kind().unwrap()))
}

#[expect(clippy::disallowed_types, reason = "the store of a test")]
type Lock<T> = std::sync::Mutex<T>;

/// The store of a cluster in memory.
#[derive(Debug, Default)]
struct Store {
    values: Lock<(u64, BTreeMap<SharedPlace, StoredValue>)>,
    puts: Lock<Vec<SharedPlace>>,
    /// An authority that ends when the response to a challenge is written.
    authority: Lock<Option<Pebble>>,
}

impl SharedStore for Store {
    fn get(
        &self,
        places: Vec<SharedPlace>,
    ) -> StoreFuture<'_, Result<Vec<Option<StoredValue>>, StoreAway>> {
        let values = self.values.lock().unwrap();
        let found = places.iter().map(|place| values.1.get(place).cloned()).collect();
        Box::pin(async move { Ok(found) })
    }

    fn put(
        &self,
        place: SharedPlace,
        value: Bytes,
        _: ExpectedValue,
        _: Option<Duration>,
    ) -> StoreFuture<'_, Result<PutOutcome, StoreAway>> {
        if matches!(place, SharedPlace::Challenge(_)) {
            drop(self.authority.lock().unwrap().take());
        }
        self.puts.lock().unwrap().push(place.clone());
        let mut values = self.values.lock().unwrap();
        values.0 += 1;
        let revision = values.0;
        values.1.insert(place, StoredValue { revision, value });
        Box::pin(async move { Ok(PutOutcome::Written(revision)) })
    }

    fn remove(&self, place: SharedPlace) -> StoreFuture<'_, ()> {
        self.values.lock().unwrap().1.remove(&place);
        Box::pin(async {})
    }

    fn take_turn(&self) -> StoreFuture<'_, Option<OrderTurn>> {
        Box::pin(async { Some(Box::new(()) as OrderTurn) })
    }
}

/// One node orders, and the authority asks the other node alone.
async fn order_at_one_node(doors: Doors, by: &str) {
    let site = Site::new().await;
    let store: Arc<Store> = Arc::default();
    let node = |name: &str| {
        let state = site.dir.path().join(name);
        fs::create_dir(&state).unwrap();
        let settings = Settings { state_dir: Some(state), ..site.settings(doors) };
        let terminator = Terminator::new(&settings).unwrap();
        let secret = CommonSecret::new(["the secret of the cluster"]).unwrap();
        terminator.share(secret, Arc::<Store>::clone(&store));
        terminator
    };
    let (a, b) = (node("a"), node("b"));
    let host = "app.example.com";
    let _wanted = a.want(host, "home");
    // The doors are those of the other node.
    let ordered = async {
        tokio::select! {
            () = Arc::clone(&a).run() => panic!("the driver has ended"),
            state = issued(&a, host) => state,
        }
    };
    let state = site.run(&b, ordered).await;
    assert_eq!(state.challenge, Some(by));
    let root = site.pebble.root();
    let config = client_config(&root);
    let (leaf, _) = visit_with(&config, &a, host).await.unwrap();
    // A session of one node is resumed at the other, which looks the certificate up.
    let (same, kind) = visit_with(&config, &b, host).await.unwrap();
    assert_eq!((same, kind), (leaf.clone(), HandshakeKind::Resumed));
    let other = node("c");
    assert_eq!(visit(&other, &root, host).await.unwrap(), leaf);
    let error = visit(&other, &root, "b.example.com").await.unwrap_err().to_string();
    assert_eq!(error, "b.example.com has no certificate: none was issued yet");
    // Nothing of the challenge is left, and nothing in the store can be read.
    let values = store.values.lock().unwrap().1.clone();
    let is_challenge = |place: &SharedPlace| matches!(place, SharedPlace::Challenge(_));
    assert!(!values.keys().any(is_challenge));
    assert!(store.puts.lock().unwrap().iter().any(is_challenge));
    assert_eq!(values.len(), 3, "account, certificate, tickets");
    for StoredValue { value, .. } in values.values() {
        assert!(!String::from_utf8_lossy(value).contains("KEY"));
    }
}

#[tokio::test]
async fn the_nodes_of_a_cluster_answer_tls_alpn_01_for_each_other() {
    order_at_one_node(TLS, "tls-alpn-01").await;
}

#[tokio::test]
async fn the_nodes_of_a_cluster_answer_http_01_for_each_other() {
    order_at_one_node(HTTP, "http-01").await;
}

#[tokio::test]
async fn a_failed_order_leaves_no_response_for_other_nodes() {
    let site = Site::new().await;
    let settings = site.settings(HTTP);
    let store: Arc<Store> = Arc::default();
    let a = Terminator::new(&settings).unwrap();
    let secret = CommonSecret::new(["the secret of the cluster"]).unwrap();
    a.share(secret, Arc::<Store>::clone(&store));
    *store.authority.lock().unwrap() = Some(site.pebble);
    let host = "app.example.com";
    let _wanted = a.want(host, "home");
    tokio::select! {
        () = Arc::clone(&a).run() => panic!("the driver has ended"),
        state = timeout(SOON, failed(&a, host)) => drop(state.unwrap()),
    }
    let is_challenge = |place: &SharedPlace| matches!(place, SharedPlace::Challenge(_));
    assert!(store.puts.lock().unwrap().iter().any(is_challenge));
    assert!(!store.values.lock().unwrap().1.keys().any(is_challenge));
}

/// Orders by one kind of check, then starts again without the authority.
async fn order_and_restart(doors: Doors, by: &str) {
    let site = Site::new().await;
    let settings = site.settings(doors);
    let host = "app.example.com";
    let terminator = Terminator::new(&settings).unwrap();
    assert_eq!(terminator.covers(host, "home"), Cover::Acme);
    let error = visit(&terminator, &site.pebble.root(), host).await.unwrap_err().to_string();
    assert_eq!(error, "app.example.com has no certificate: none was issued yet");

    let wanted = terminator.want("App.Example.com.", "home");
    let state = site.run(&terminator, issued(&terminator, host)).await;
    assert_eq!(state.error, None);
    let root = site.pebble.root();
    let leaf = visit(&terminator, &root, host).await.unwrap();
    assert!(site.pebble.orders() >= 1);
    assert_eq!(terminator.challenge_token(host, ""), None);

    // The files are the daemon's alone, and one file has the chain and its key.
    let file = site.kept("app.example.com.pem");
    for file in [&file, &site.kept("account.json")] {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.lines().next().unwrap().ends_with(&format!(" by {by}")), "{text}");
    assert_eq!(text.matches("BEGIN PRIVATE KEY").count(), 1);

    drop((wanted, terminator));
    let Site { dir, pebble, .. } = site;
    let port = pebble.port();
    drop(pebble);
    let authority = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let again = Terminator::new(&settings).unwrap();
    let _wanted = again.want(host, "home");
    assert_eq!(visit(&again, &root, host).await.unwrap(), leaf);
    // The driver has seen the name when it asks for renewal information. It orders nothing: an
    // order would fail without the authority.
    let seen = async {
        drop(timeout(SOON, authority.accept()).await.unwrap().unwrap());
        drop(authority);
        sleep(Duration::from_millis(300)).await;
    };
    tokio::select! {
        () = Arc::clone(&again).run() => panic!("the driver has ended"),
        () = seen => {}
    }
    let state = &again.status()[0];
    assert_eq!((state.source, &state.error), (CertificateSource::Acme, &None));
    drop(dir);
}

#[tokio::test]
async fn a_name_is_proved_by_tls_alpn_01_and_kept_over_a_restart() {
    order_and_restart(TLS, "tls-alpn-01").await;
}

#[tokio::test]
async fn a_name_is_proved_by_http_01_and_kept_over_a_restart() {
    order_and_restart(HTTP, "http-01").await;
}

#[tokio::test]
async fn a_program_proves_a_wildcard_which_serves_the_names_below() {
    let site = Site::new().await;
    let dir = site.dir.path();
    let mut settings = site.settings(Doors::default());
    let dns = Dns {
        program: Pebble::hook(dir),
        timeout: Duration::from_secs(20),
        wait: Wait::Fixed(Duration::ZERO),
        resolvers: Vec::new(),
    };
    settings.acme[0].dns = Some(dns);
    settings.acme[0].names = vec!["*.example.com".into()];
    let terminator = Terminator::new(&settings).unwrap();
    assert_eq!(terminator.covers("*.home.example.com", "home"), Cover::Acme);
    let Cover::None(why) = terminator.covers("other.example.org", "home") else { panic!() };
    assert!(why.contains("no account of `tls_routes.acme` orders"), "{why}");
    let _wild = terminator.want("*.home.example.com", "home");
    let state = site.run(&terminator, issued(&terminator, "*.home.example.com")).await;
    assert_eq!((state.challenge, state.error), (Some("dns-01"), None));
    assert!(state.renews.unwrap() < state.expires.unwrap());
    let root = site.pebble.root();
    visit(&terminator, &root, "a.home.example.com").await.unwrap();

    // The record was removed, and a name below needs no order of its own.
    let calls = fs::read_to_string(dir.join("calls")).unwrap();
    let (calls, prefix) = (calls.lines().collect::<Vec<_>>(), "_acme-challenge.home.example.com.");
    assert!(!calls.is_empty());
    // After too many refused nonces there is a further order with another record.
    for pair in calls.chunks(2) {
        let value = pair[0].rsplit(' ').next().unwrap();
        let action = |action: &str| format!("{action} {prefix} {value}");
        assert_eq!(pair, [action("present"), action("cleanup")], "{calls:?}");
    }
    assert_eq!(fs::read_dir(dir.join("dns")).unwrap().count(), 0);
    let _below = terminator.want("a.home.example.com", "home");

    // A program that fails is told, and what it left is removed.
    let wanted = terminator.want("b.example.com", "home");
    write_program(&dir.join("dns-hook"), "#!/bin/sh\necho zone is locked >&2\nexit 1\n");
    let state = site.run(&terminator, failed(&terminator, "b.example.com")).await;
    let error = state.error.unwrap();
    let end = "dns-hook present ended with exit status: 1: zone is locked";
    assert!(error.starts_with("the proof by dns-01: the program /"), "{error}");
    assert!(error.ends_with(end), "{error}");
    drop(wanted);
    // The name below came first, and would have failed first.
    let status = terminator.status();
    let below = status.iter().find(|name| name.host == "a.home.example.com").unwrap();
    assert_eq!((below.source, &below.error), (CertificateSource::Acme, &None));
    assert!(!site.kept("a.home.example.com.pem").exists());
}

#[tokio::test]
async fn the_first_visitor_of_a_name_below_a_wildcard_has_it_ordered() {
    let site = Site::new().await;
    let mut settings = site.settings(TLS);
    settings.acme[0].on_demand = true;
    let terminator = Terminator::new(&settings).unwrap();
    assert_eq!(terminator.covers("*.home.example.com", "home"), Cover::Acme);
    let wanted = terminator.want("*.home.example.com", "home");
    let root = site.pebble.root();
    site.run(&terminator, async {
        let visits = ["a.home.example.com", "b.c.home.example.com"].map(|host| {
            let (terminator, root) = (&terminator, &root);
            // Pebble refuses nonces, so that an order may take longer than a visitor waits.
            async move { while visit(terminator, root, host).await.is_err() {} }
        });
        for visit in visits {
            visit.await;
        }
        // Others are nobody's.
        let error = visit(&terminator, &root, "other.example.com").await.unwrap_err().to_string();
        assert!(error.contains("other.example.com has no certificate"), "{error}");
    })
    .await;
    let orders = site.pebble.orders();
    let status = terminator.status();
    let hosts: Vec<_> = status.iter().map(|name| (name.host.as_str(), name.challenge)).collect();
    let by = Some("tls-alpn-01");
    assert_eq!(hosts, [("a.home.example.com", by), ("b.c.home.example.com", by)]);
    visit(&terminator, &root, "a.home.example.com").await.unwrap();
    drop(wanted);
    assert!(visit(&terminator, &root, "late.home.example.com").await.is_err());
    assert_eq!(site.pebble.orders(), orders);
}

#[tokio::test]
async fn two_accounts_at_one_authority_have_their_names_and_folders() {
    let site = Site::new().await;
    let mut settings = site.settings(TLS);
    let work = Acme {
        account: Some("work".into()),
        names: vec!["a.example.com".into()],
        ..settings.acme[0].clone()
    };
    settings.acme.insert(0, work.clone());
    let terminator = Terminator::new(&settings).unwrap();
    let _wanted = ["a.example.com", "b.example.com"].map(|host| terminator.want(host, "home"));
    site.run(&terminator, async {
        issued(&terminator, "a.example.com").await;
        issued(&terminator, "b.example.com").await;
    })
    .await;
    let acme = site.dir.path().join("acme");
    let folders = fs::read_dir(acme).unwrap().map(|entry| entry.unwrap().path());
    let (work_of, other): (Vec<_>, Vec<_>) =
        folders.partition(|folder| folder.to_str().unwrap().ends_with("+work"));
    for (folder, host) in [(&work_of[0], "a.example.com"), (&other[0], "b.example.com")] {
        assert!(
            folder.join("account.json").exists() && folder.join(format!("{host}.pem")).exists()
        );
    }
    // A reload with one account less keeps what the other has issued.
    settings.acme.remove(0);
    terminator.reload(&settings).unwrap().apply();
    visit(&terminator, &site.pebble.root(), "b.example.com").await.unwrap();
    settings.acme = vec![work.clone(), work];
    let why = terminator.reload(&settings).unwrap_err().to_string();
    assert!(why.contains("two accounts of `tls_routes.acme` are at"), "{why}");
}

#[tokio::test]
async fn a_refused_name_has_a_reason_and_a_pause_and_does_not_stop_others() {
    let site = Site::new().await;
    let terminator = Terminator::new(&site.settings(TLS)).unwrap();
    let nowhere = format!("{NOWHERE}example.com");
    let _wanted = [REFUSED, &nowhere, "good.example.com"].map(|host| terminator.want(host, "home"));
    site.run(&terminator, async {
        issued(&terminator, "good.example.com").await;
        let state = failed(&terminator, REFUSED).await;
        let (error, pause) = (state.error.unwrap(), state.retry_in.unwrap());
        assert!(error.starts_with("the order was refused: "), "{error}");
        assert!(error.ends_with(" (rejectedIdentifier)"), "{error}");
        assert!(pause > Duration::from_secs(20) && pause <= Duration::from_secs(60), "{pause:?}");

        let error = failed(&terminator, &nowhere).await.error.unwrap();
        assert!(error.starts_with("the check by tls-alpn-01 failed: "), "{error}");
        let hint =
            format!("(hint: TLS connections to port 443 of {nowhere} must reach this server)");
        assert!(error.ends_with(&hint), "{error}");
        println!("{error}");
    })
    .await;
    let error = visit(&terminator, &site.pebble.root(), REFUSED).await.unwrap_err().to_string();
    assert!(error.contains("has no certificate: the order was refused"), "{error}");
}

#[tokio::test]
async fn new_doors_end_the_pause_and_the_other_check_succeeds() {
    let site = Site::new().await;
    // The check by tls-alpn-01 fails: its port is another program's.
    let Site { dir, ca, leaf, http, tls, pebble } = site;
    drop((pebble, tls));
    let tls = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stranger = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = (leaf.certificate.as_str(), leaf.key.as_str());
    let pebble = Pebble::start(dir.path(), server, &ca, ports(&http, &stranger));
    let site = Site { dir, ca: ca.clone(), leaf: leaf.clone(), http, tls, pebble };

    let terminator = Terminator::new(&site.settings(Doors { http: true, tls: true })).unwrap();
    let _wanted = terminator.want("app.example.com", "home");
    let closes = async {
        loop {
            let (stream, _): (TcpStream, _) = stranger.accept().await.unwrap();
            drop(stream);
        }
    };
    site.run(&terminator, async {
        tokio::select! {
            () = closes => {}
            state = failed(&terminator, "app.example.com") => {
                let error = state.error.unwrap();
                assert!(error.contains("the check by tls-alpn-01 failed"), "{error}");
            }
        }
        terminator.reload(&site.settings(HTTP)).unwrap().apply();
        issued(&terminator, "app.example.com").await;
    })
    .await;
}

#[tokio::test]
async fn a_certificate_whose_end_is_near_is_renewed_while_it_is_used() {
    let site = Site::new().await;
    let settings = site.settings(TLS);
    // Makes the folder of the authority.
    drop(Terminator::new(&settings).unwrap());
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(["app.example.com".to_owned()]).unwrap();
    let now = std::time::SystemTime::now();
    (parameters.not_before, parameters.not_after) =
        ((now - Duration::from_secs(80)).into(), (now + Duration::from_secs(20)).into());
    let old = parameters.self_signed(&key).unwrap();
    let file = site.kept("app.example.com.pem");
    let write = |directory: &str, file: &Path| {
        let text = format!(
            "# tunnel: certificate of {directory} by tls-alpn-01\n{}{}",
            key.serialize_pem(),
            old.pem()
        );
        fs::write(file, text).unwrap();
    };

    // A certificate of another authority in the same folder is not used.
    write("https://other.example/dir", &file);
    let terminator = Terminator::new(&settings).unwrap();
    assert!(visit(&terminator, &old.pem(), "app.example.com").await.is_err());
    drop(terminator);

    write(&site.pebble.directory, &file);
    let terminator = Terminator::new(&settings).unwrap();
    assert_eq!(visit(&terminator, &old.pem(), "app.example.com").await.unwrap(), **old.der());
    assert_eq!(site.pebble.orders(), 0, "nobody wants the name");
    let wanted = terminator.want("app.example.com", "home");
    let before = terminator.status()[0].expires;
    let is_new = |name: &NameStatus| name.expires > before;
    site.run(&terminator, state(&terminator, "app.example.com", is_new)).await;
    visit(&terminator, &site.pebble.root(), "app.example.com").await.unwrap();
    drop(wanted);
    assert_eq!(terminator.status(), [], "the name is no service's");
    visit(&terminator, &site.pebble.root(), "app.example.com").await.unwrap();
}

#[tokio::test]
async fn an_authority_that_forgot_the_account_gets_a_new_account() {
    let site = Site::new().await;
    let terminator = Terminator::new(&site.settings(TLS)).unwrap();
    let _first = terminator.want("first.example.com", "home");
    site.run(&terminator, issued(&terminator, "first.example.com")).await;
    let account = fs::read(site.kept("account.json")).unwrap();

    let site = site.restart_pebble();
    // After a restart of the daemon the account comes from its file.
    let terminator = Terminator::new(&site.settings(TLS)).unwrap();
    let _second = terminator.want("second.example.com", "home");
    site.run(&terminator, issued(&terminator, "second.example.com")).await;
    assert_ne!(fs::read(site.kept("account.json")).unwrap(), account);
}

#[tokio::test]
async fn a_directory_that_cannot_be_trusted_is_told_with_its_setting() {
    let site = Site::new().await;
    let mut settings = site.settings(TLS);
    let other = Authority::new("another").unwrap();
    let folder = tempfile::tempdir().unwrap();
    settings.acme[0].ca = Some(other.save(folder.path()).unwrap());
    let terminator = Terminator::new(&settings).unwrap();
    let _wanted = ["a.example.com", "b.example.com"].map(|host| terminator.want(host, "home"));
    site.run(&terminator, async {
        let error = failed(&terminator, "a.example.com").await.error.unwrap();
        assert!(
            error.contains("127.0.0.1 cannot be asked: its certificate is of an unknown"),
            "{error}"
        );
        assert!(error.contains("`tls_routes.acme.ca`"), "{error}");
    })
    .await;
    // The failure is the authority's, so the second name was not tried.
    let second = &terminator.status()[1];
    assert_eq!((second.host.as_str(), &second.error), ("b.example.com", &None));
    assert!(site.pebble.orders() == 0);
}

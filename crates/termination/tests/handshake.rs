//! Handshakes of rustls clients with the terminator, over pipes in memory.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, mpsc};

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, HandshakeKind, ProtocolVersion, RootCertStore, SupportedProtocolVersion,
};
use tempfile::TempDir;
use termination::{
    Acme, Alpn, CertificateSource, Cover, Doors, Files, MinVersion, Settings, Terminator, TlsIo,
};
use testkit::certs::{Authority, Flaw, Leaf};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

type Both = (TlsStream<DuplexStream>, TlsIo<DuplexStream>);

/// A folder with certificates of one authority.
struct Site {
    dir: TempDir,
    authority: Authority,
}

impl Site {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), authority: Authority::new("test").unwrap() }
    }

    /// A certificate for `names` in the files `FILE.crt` and `FILE.key`.
    fn files(&self, file: &str, names: &[&str]) -> Files {
        self.save(file, &self.authority.server(names).unwrap())
    }

    fn save(&self, file: &str, leaf: &Leaf) -> Files {
        let (certificate, key) = leaf.save(self.dir.path(), file).unwrap();
        Files { certificate, key }
    }

    fn client(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        alpn: &[&str],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem.as_bytes()).unwrap()).unwrap();
        let mut config = ClientConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }

    /// A browser of today.
    fn browser(&self) -> ClientConfig {
        self.client(&[&TLS13, &TLS12], &["h2", "http/1.1"])
    }
}

fn start(certificates: Vec<Files>) -> Arc<Terminator> {
    Terminator::new(&Settings { certificates, ..Settings::default() }).unwrap()
}

async fn both(
    terminator: &Terminator,
    client: impl Into<Arc<ClientConfig>>,
    host: &str,
) -> (io::Result<TlsStream<DuplexStream>>, io::Result<TlsIo<DuplexStream>>) {
    let (near, far) = tokio::io::duplex(64 << 10);
    let name = ServerName::try_from(host.to_owned()).unwrap();
    tokio::join!(
        TlsConnector::from(client.into()).connect(name, near),
        terminator.accept(far, host)
    )
}

async fn shake(
    terminator: &Terminator,
    client: impl Into<Arc<ClientConfig>>,
    host: &str,
) -> io::Result<Both> {
    let (visitor, server) = both(terminator, client, host).await;
    let server = server?;
    Ok((visitor?, server))
}

/// The error of the server.
async fn refused(terminator: &Terminator, client: ClientConfig, host: &str) -> String {
    let (visitor, server) = both(terminator, client, host).await;
    assert!(visitor.is_err(), "the visitor learns of it");
    server.unwrap_err().to_string()
}

fn leaf_of((visitor, _): &Both) -> Vec<u8> {
    visitor.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

fn der(files: &Files) -> Vec<u8> {
    CertificateDer::from_pem_file(&files.certificate).unwrap().to_vec()
}

/// Sends bytes both ways.
async fn talk((visitor, server): &mut Both) {
    visitor.write_all(b"GET /").await.unwrap();
    server.write_all(b"HTTP/").await.unwrap();
    server.flush().await.unwrap();
    let mut got = [[0; 5]; 2];
    server.read_exact(&mut got[0]).await.unwrap();
    visitor.read_exact(&mut got[1]).await.unwrap();
    assert_eq!(got, [*b"GET /", *b"HTTP/"]);
}

#[tokio::test]
async fn a_name_has_its_exact_certificate_before_the_wildcard_of_one_label() {
    let site = Site::new();
    let wild = site.files("wild", &["*.example.com"]);
    let exact = site.files("exact", &["app.example.com", "example.com"]);
    let terminator = start(vec![wild.clone(), exact.clone()]);
    for (host, files) in [
        ("app.example.com", &exact),
        ("APP.Example.COM", &exact),
        ("example.com", &exact),
        ("other.example.com", &wild),
    ] {
        let both = shake(&terminator, site.browser(), host).await.unwrap();
        assert_eq!(leaf_of(&both), der(files), "{host}");
        assert_eq!(terminator.covers(host, "home"), Cover::Configured);
    }
    let error = refused(&terminator, site.browser(), "a.b.example.com").await;
    assert_eq!(error, "a.b.example.com has no certificate: none was issued yet");
    assert_eq!(terminator.covers("*.example.com", "home"), Cover::Configured);
    let Cover::None(reason) = terminator.covers("a.b.example.com", "home") else { panic!() };
    assert!(reason.contains("(hint: add a certificate for it"), "{reason}");
    assert!(matches!(terminator.covers("192.0.2.1", "home"), Cover::None(_)));
    assert!(matches!(terminator.covers("a b", "home"), Cover::None(_)));

    let hosts: Vec<_> = terminator.status().into_iter().map(|name| name.host).collect();
    assert_eq!(hosts, ["*.example.com", "app.example.com", "example.com"]);
    let _wanted = terminator.want("other.example.com", "home");
    let status = terminator.status();
    let other = status.iter().find(|name| name.host == "other.example.com").unwrap();
    assert_eq!((other.source, other.expires), (CertificateSource::File, Some(7_226_582_400)));
}

/// With two libraries compiled in, rustls panics where it has to guess a provider.
#[tokio::test]
async fn no_default_provider_is_needed() {
    let site = Site::new();
    let terminator = start(vec![site.files("a", &["a.example.com"])]);
    let mut both = shake(&terminator, site.browser(), "a.example.com").await.unwrap();
    talk(&mut both).await;
    let suite = both.0.get_ref().1.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite, tls::provider().cipher_suites[0].suite());
    assert!(rustls::crypto::CryptoProvider::get_default().is_none());
}

#[tokio::test]
async fn the_oldest_version_is_kept() {
    let site = Site::new();
    let files = site.files("a", &["a.example.com"]);
    let old = || site.client(&[&TLS12], &["http/1.1"]);
    let terminator = start(vec![files.clone()]);
    let mut both = shake(&terminator, old(), "a.example.com").await.unwrap();
    talk(&mut both).await;
    assert_eq!(both.0.get_ref().1.protocol_version(), Some(ProtocolVersion::TLSv1_2));
    let suite = format!("{:?}", both.0.get_ref().1.negotiated_cipher_suite().unwrap().suite());
    assert!(suite.starts_with("TLS_ECDHE_") && !suite.contains("CBC"), "{suite}");

    let min_version = MinVersion::Tls13;
    let settings = Settings { certificates: vec![files], min_version, ..Settings::default() };
    terminator.reload(&settings).unwrap().apply();
    let error = refused(&terminator, old(), "a.example.com").await;
    assert_eq!(error, "the visitor does not speak TLS 1.3 or later");
    talk(&mut both).await;
    let both = shake(&terminator, site.browser(), "a.example.com").await.unwrap();
    let session = both.0.get_ref().1;
    assert_eq!(session.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    let group = session.negotiated_key_exchange_group().unwrap().name();
    assert_eq!(format!("{group:?}"), "X25519MLKEM768", "post-quantum where both ends can");
}

#[tokio::test]
async fn h2_is_preferred_and_http_1_is_the_rest() {
    let site = Site::new();
    let terminator = start(vec![site.files("a", &["a.example.com"])]);
    for (offered, chosen) in [
        (&["http/1.1", "h2"][..], Alpn::H2),
        (&["h2"], Alpn::H2),
        (&["http/1.1"], Alpn::Http1),
        (&[], Alpn::Http1),
    ] {
        let client = site.client(&[&TLS13], offered);
        let (_, server) = shake(&terminator, client, "a.example.com").await.unwrap();
        assert_eq!(server.alpn(), chosen, "{offered:?}");
    }
    for other in ["acme-tls/1", "tunnel/1"] {
        let client = site.client(&[&TLS13], &[other]);
        let error = refused(&terminator, client, "a.example.com").await;
        assert!(error.contains("another protocol inside TLS (ALPN) than h2 or"), "{error}");
    }
}

#[tokio::test]
async fn a_reload_changes_the_certificate_of_later_connections_alone() {
    let site = Site::new();
    let files = site.files("a", &["a.example.com"]);
    let terminator = start(vec![files.clone()]);
    let mut before = shake(&terminator, site.browser(), "a.example.com").await.unwrap();
    let old = der(&files);

    site.files("a", &["a.example.com"]);
    let settings = Settings { certificates: vec![files.clone()], ..Settings::default() };
    let prepared = terminator.reload(&settings).unwrap();
    let both = shake(&terminator, site.browser(), "a.example.com").await.unwrap();
    assert_eq!(leaf_of(&both), old, "nothing changes before `apply`");
    prepared.apply();
    let both = shake(&terminator, site.browser(), "a.example.com").await.unwrap();
    assert_ne!(leaf_of(&both), old);
    assert_eq!(leaf_of(&both), der(&files));
    talk(&mut before).await;

    // A name whose certificate is gone cannot be resumed either.
    terminator.reload(&Settings::default()).unwrap().apply();
    let error = refused(&terminator, site.browser(), "a.example.com").await;
    assert!(error.contains("has no certificate"), "{error}");
    talk(&mut before).await;
}

#[tokio::test]
async fn all_problems_of_the_files_are_told_and_nothing_changes() {
    let site = Site::new();
    let good = site.files("good", &["a.example.com"]);
    let terminator = start(vec![good.clone()]);
    let old = site
        .save("old", &site.authority.flawed_server(&["old.example.com"], Flaw::Expired).unwrap());
    let other = site.files("other", &["b.example.com"]);
    let nameless = site.files("nameless", &["192.0.2.1"]);
    let missing = site.dir.path().join("missing.crt");
    let mixed = Files { certificate: good.certificate.clone(), key: other.key };
    let settings = Settings {
        certificates: vec![
            good,
            old,
            Files { certificate: missing.clone(), key: mixed.key.clone() },
            mixed.clone(),
            nameless.clone(),
        ],
        acme: vec![Acme {
            directory: "http://ca.example/\u{1b}".into(),
            ca: Some(missing.clone()),
            ..Acme::default()
        }],
        ..Settings::default()
    };
    let error = terminator.reload(&settings).unwrap_err();
    let problems: Vec<_> = error.problems().map(ToString::to_string).collect();
    let at = |path: &Path| path.display().to_string();
    let expected = [
        format!("{}: No such file", at(&missing)),
        format!("{}: the key does not belong to the certificate", at(&mixed.key)),
        format!("{}: the certificate has no DNS name", at(&nameless.certificate)),
        r"`http://ca.example/\u{1b}` is not the URL of an ACME directory (hint: https:".to_owned(),
        format!("{}: No such file", at(&missing)),
        "ACME keeps its account and its certificates in the state directory".to_owned(),
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, expected) in problems.iter().zip(&expected) {
        assert!(problem.starts_with(expected), "{problem}");
    }
    assert_eq!(terminator.covers("a.example.com", "home"), Cover::Configured);
    assert!(shake(&terminator, site.browser(), "a.example.com").await.is_ok());
}

#[tokio::test]
async fn a_session_is_resumed_also_after_a_reload_but_for_its_name_alone() {
    let site = Site::new();
    for versions in [&[&TLS13][..], &[&TLS12]] {
        let files = site.files("a", &["a.example.com"]);
        let terminator = start(vec![files.clone()]);
        let mut client = site.client(versions, &["http/1.1"]);
        client.resumption = Resumption::in_memory_sessions(8);
        let client = Arc::new(client);
        let mut both = shake(&terminator, Arc::clone(&client), "a.example.com").await.unwrap();
        assert!(!both.1.is_resumed());
        talk(&mut both).await;
        let settings = Settings { certificates: vec![files], ..Settings::default() };
        terminator.reload(&settings).unwrap().apply();
        let mut both = shake(&terminator, Arc::clone(&client), "a.example.com").await.unwrap();
        assert!(both.1.is_resumed(), "{versions:?}");
        assert_eq!(both.0.get_ref().1.handshake_kind(), Some(HandshakeKind::Resumed));
        talk(&mut both).await;

        // The certificate of the name is gone, so its tickets are void.
        terminator.reload(&Settings::default()).unwrap().apply();
        let (visitor, server) = self::both(&terminator, client, "a.example.com").await;
        assert!(visitor.is_err() && server.is_err());
    }
}

#[tokio::test]
async fn a_handshake_for_another_name_than_the_route_is_refused() {
    let site = Site::new();
    let terminator = start(vec![site.files("a", &["a.example.com", "b.example.com"])]);
    let (near, far) = tokio::io::duplex(64 << 10);
    let name = ServerName::try_from("a.example.com").unwrap();
    let connector = TlsConnector::from(Arc::new(site.browser()));
    let (_, server) =
        tokio::join!(connector.connect(name, near), terminator.accept(far, "b.example.com"));
    let error = server.unwrap_err().to_string();
    assert_eq!(error, "the handshake is for another name than b.example.com");
}

#[tokio::test]
async fn a_visitor_that_leaves_or_speaks_no_tls_is_told_apart() {
    let site = Site::new();
    let terminator = start(vec![site.files("a", &["a.example.com"])]);
    let (near, far) = tokio::io::duplex(1024);
    drop(near);
    let error = terminator.accept(far, "a.example.com").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(error.to_string(), "the visitor closed before the handshake was complete");
    let (mut near, far) = tokio::io::duplex(1024);
    near.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let error = terminator.accept(far, "a.example.com").await.unwrap_err();
    assert!(error.to_string().starts_with("the visitor sent bytes that are no record"), "{error}");
}

#[test]
fn what_cannot_be_ordered_is_told_and_the_queue_has_an_end() {
    let site = Site::new();
    let acme = Acme {
        directory: "https://ca.example/dir".into(),
        ca: Some(site.authority.save(site.dir.path()).unwrap()),
        ..Acme::default()
    };
    let state_dir = Some(site.dir.path().to_owned());
    let mut settings = Settings { acme: vec![acme], state_dir, ..Settings::default() };
    let terminator = Terminator::new(&settings).unwrap();
    let none = |host: &str| match terminator.covers(host, "home") {
        Cover::None(reason) => reason,
        cover @ (Cover::Configured | Cover::Acme | Cover::Full(_)) => panic!("{cover:?}"),
    };
    assert!(none("a.example.com").contains("neither at port 80 nor at port 443"));
    settings.doors = Doors { http: true, tls: false };
    terminator.reload(&settings).unwrap().apply();
    assert_eq!(terminator.covers("a.example.com", "home"), Cover::Acme);
    assert!(none("*.example.com").contains("neither http-01 nor tls-alpn-01 proves a wildcard"));
    let long = format!("{}.{0}.{0}.{0}.example.com", "a".repeat(58));
    assert!(none(&long).contains("at most 240 characters"));

    let wanted: Vec<_> =
        (0..100).map(|n| terminator.want(&format!("n{n}.example.com"), "home")).collect();
    assert_eq!(terminator.covers("n7.example.com", "home"), Cover::Acme, "it waits already");
    let full = terminator.covers("late.example.com", "home");
    let Cover::Full(reason) = full else { panic!("{full:?}") };
    assert!(reason.starts_with("100 names of this client wait"), "{reason}");
    drop(wanted);
    assert_eq!(terminator.covers("late.example.com", "home"), Cover::Acme);
    assert_eq!(terminator.status(), []);
    assert_eq!(terminator.challenge_token("a.example.com", "token"), None);

    let own = site.dir.path().join("acme");
    fs::remove_dir_all(&own).unwrap();
    std::os::unix::fs::symlink(site.dir.path().join("elsewhere"), &own).unwrap();
    let error = Terminator::new(&settings).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}: ", own.display())), "{error}");
}

#[derive(Clone)]
struct Log(mpsc::Sender<Vec<u8>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).unwrap();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log lines of a reload with these settings.
fn lines_of_reload(terminator: &Arc<Terminator>, settings: &Settings) -> Vec<String> {
    let (to, log) = mpsc::channel();
    let to = Log(to);
    let subscriber = tracing_subscriber::fmt().with_ansi(false).without_time();
    let subscriber = subscriber.with_writer(move || to.clone()).finish();
    tracing::subscriber::with_default(subscriber, || terminator.reload(settings).unwrap().apply());
    let text = String::from_utf8(log.try_iter().flatten().collect()).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_published_name_that_loses_its_certificate_has_an_error_and_the_log_one_line() {
    let site = Site::new();
    let files = site.files("a", &["a.example.com", "b.example.com"]);
    let terminator = start(vec![files.clone()]);
    let _wanted = terminator.want("a.example.com", "home");
    let without = Settings::default();
    let lines = lines_of_reload(&terminator, &without);
    let [line] = &*lines else { panic!("{lines:?}") };
    let shown = "WARN termination::terminator: https://a.example.com stays published without a \
                 certificate: no certificate of this server is for a.example.com, ";
    assert!(line.trim_start().starts_with(shown), "{line}");
    let status = terminator.status();
    let [name] = &*status else { panic!("{status:?}") };
    assert_eq!(
        (&*name.host, name.source, name.expires),
        ("a.example.com", CertificateSource::None, None)
    );
    let error = name.error.as_deref().unwrap();
    assert!(error.starts_with("no certificate of this server is for a.example.com"), "{error}");
    assert_eq!(name.retry_in, None, "no order follows");
    // The names have been told of.
    assert_eq!(lines_of_reload(&terminator, &without), [""; 0]);

    let with = Settings { certificates: vec![files], ..Settings::default() };
    assert_eq!(lines_of_reload(&terminator, &with), [""; 0]);
    assert_eq!(terminator.status()[0].error, None);
    let _more = ["b.example.com", "c.example.com"].map(|host| terminator.want(host, "home"));
    let lines = lines_of_reload(&terminator, &without);
    let [line] = &*lines else { panic!("{lines:?}") };
    let shown = "https://a.example.com and 1 more published name have";
    assert!(line.contains(shown), "c.example.com had no certificate before: {line}");
}

/// The slow runtime may move the driver, and workers share the terminator.
#[test]
fn the_driver_can_move_between_threads() {
    fn moves(_: impl Send + Sync + 'static) {}
    fn runs(_: impl Future<Output = ()> + Send + 'static) {}
    let terminator = start(Vec::new());
    moves(Arc::clone(&terminator));
    runs(terminator.run());
}

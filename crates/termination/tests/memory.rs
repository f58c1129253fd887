//! What an idle terminated connection costs.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "in a test a panic is the verdict, and figures are for people"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use termination::{Files, Settings, Terminator};
use testkit::certs::Authority;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const VISITORS: u32 = 100;

/// The most bytes on the heap of a connection after a request and its answer. A larger figure means
/// that a buffer is kept while nothing moves: a change for a person to judge.
const BYTES_MAX: i64 = 16 << 10;

/// The memory of this thread counts alone, so the visitors are on another thread.
#[test]
fn an_idle_connection_keeps_no_large_buffer() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("test").unwrap();
    let leaf = authority.server(&["a.example.com"]).unwrap();
    let (certificate, key) = leaf.save(dir.path(), "a").unwrap();
    let certificates = vec![Files { certificate, key }];
    let terminator = Terminator::new(&Settings { certificates, ..Settings::default() }).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let (ended, end) = std::sync::mpsc::channel::<()>();
    let visitors = std::thread::spawn(move || {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
        let mut config = ClientConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let visitors: Vec<_> = (0..=VISITORS)
            .map(|_| {
                let name = ServerName::try_from("a.example.com").unwrap();
                let session = ClientConnection::new(Arc::clone(&config), name).unwrap();
                let mut visitor = StreamOwned::new(session, TcpStream::connect(address).unwrap());
                visitor.write_all(&[b'q'; 40_000]).unwrap();
                visitor.read_exact(&mut [0; 20_000]).unwrap();
                visitor
            })
            .collect();
        end.recv().unwrap_err();
        drop(visitors);
    });
    let serve = async || {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = terminator.accept(stream, "a.example.com").await.unwrap();
        stream.read_exact(&mut [0; 40_000]).await.unwrap();
        stream.write_all(&[b'a'; 20_000]).await.unwrap();
        stream.flush().await.unwrap();
        // An idle connection waits for the next request.
        tokio::select! {
            biased;
            _ = stream.read_u8() => panic!("the visitor is silent"),
            () = std::future::ready(()) => {}
        }
        stream
    };
    // The first connection fills what all connections share.
    let first = runtime.block_on(serve());
    let mut streams = Vec::new();
    let cost = allocation_counter::measure(|| {
        for _ in 0..VISITORS {
            streams.push(runtime.block_on(serve()));
        }
    });
    let each = cost.bytes_current / i64::from(VISITORS);
    println!("{each} bytes on the heap per idle connection");
    assert!(each < BYTES_MAX, "{each} bytes");
    drop((first, streams, ended));
    visitors.join().unwrap();
}

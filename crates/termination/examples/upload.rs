//! Measures what the server spends on the TLS of an upload: a visitor on one thread, the terminated
//! connection on another, over loopback.
//!
//! `cargo run --release -p termination --example upload [GB]` prints Gbit/s, and CPU-seconds per GB
//! of the reading thread.

#![allow(clippy::print_stdout, reason = "its purpose")]

use std::error::Error;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use termination::{Files, Settings, Terminator};
use testkit::certs::Authority;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let gigabytes: usize = std::env::args().nth(1).map_or(Ok(2), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let authority = Authority::new("upload").map_err(|error| error.to_string())?;
    let leaf = authority.server(&["a.example.com"]).map_err(|error| error.to_string())?;
    let (certificate, key) = leaf.save(folder.path(), "a").map_err(|error| error.to_string())?;
    let certificates = vec![Files { certificate, key }];
    let settings = Settings { certificates, ..Settings::default() };
    let terminator = Terminator::new(&settings).map_err(|_| "the settings are unusable")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    let visitor = thread::spawn(move || upload(&authority.pem, address, gigabytes * 1_000_000_000));
    let (got, seconds, cpu) = runtime.block_on(async {
        let (stream, _) = listener.accept().await?;
        let mut stream = terminator.accept(stream, "a.example.com").await?;
        let (start, cpu) = (Instant::now(), cpu_seconds()?);
        let (mut got, mut room) = (0, vec![0; 64 << 10]);
        loop {
            match stream.read(&mut room).await? {
                0 => break,
                n => got += n,
            }
        }
        let spent = (got, start.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
        stream.write_all(b"!").await?;
        stream.flush().await?;
        Ok::<_, Failure>(spent)
    })?;
    visitor.join().map_err(|_| "the visitor panicked")??;
    let gigabytes = got as f64 / 1e9;
    println!("{:.2} Gbit/s  {:.3} CPU-s/GB", gigabytes * 8.0 / seconds, cpu / gigabytes);
    Ok(())
}

/// Sends `total` bytes in full records.
fn upload(authority: &str, address: SocketAddr, total: usize) -> Result<(), Failure> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    let config = ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("a.example.com")?;
    let session = ClientConnection::new(Arc::new(config), name)?;
    let mut visitor = StreamOwned::new(session, TcpStream::connect(address)?);
    let chunk = vec![0x5a; 64 << 10];
    let mut sent = 0;
    while sent < total {
        visitor.write_all(&chunk)?;
        sent += chunk.len();
    }
    visitor.conn.send_close_notify();
    visitor.flush()?;
    // Unread bytes, such as a ticket, would make the system send a reset.
    visitor.read_exact(&mut [0])?;
    Ok(())
}

/// The CPU time of this thread, user and system, in seconds (proc(5), 100 ticks per second).
fn cpu_seconds() -> Result<f64, Failure> {
    let stat = fs::read_to_string("/proc/thread-self/stat")?;
    let fields = stat.rsplit_once(')').ok_or("stat")?.1;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>()? as f64 / 100.0)
}

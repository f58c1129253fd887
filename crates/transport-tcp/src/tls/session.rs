//! A rustls session of either side, without rustls' own buffers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::client::{ClientConnectionData, ResolvesClientCert, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::sign::CertifiedKey;
use rustls::unbuffered::UnbufferedStatus;
use rustls::{ClientConfig, CommonState, Error, ProtocolVersion, ServerConfig, SignatureScheme};
use transport::Side;

use super::exporter::{Secret, key_log};

/// The interface that the two sides of rustls' unbuffered connections share.
pub(super) trait Session: fmt::Debug + Send + 'static {
    type Data;
    const SIDE: Side;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn state(&self) -> &CommonState;

    /// Whether the peer has accepted this side. In TLS 1.3 a client completes the handshake before
    /// the server has checked the client's certificate. The server's ticket comes after that check,
    /// and our servers always send one ticket. In TLS 1.2 the server finishes last.
    fn accepted(&self) -> bool;
}

pub(super) struct Client {
    connection: UnbufferedClientConnection,
    certificate: Arc<Asked>,
}

/// Our certificate, and a flag that the server asked for it.
#[derive(Debug)]
struct Asked {
    ours: Arc<dyn ResolvesClientCert>,
    asked: AtomicBool,
}

impl ResolvesClientCert for Asked {
    fn resolve(
        &self,
        root_hint_subjects: &[&[u8]],
        sigschemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.asked.store(true, Ordering::Relaxed);
        self.ours.resolve(root_hint_subjects, sigschemes)
    }

    fn has_certs(&self) -> bool {
        self.ours.has_certs()
    }
}

impl Client {
    pub(super) fn new(
        config: &ClientConfig,
        name: ServerName<'static>,
    ) -> Result<(Self, Arc<Secret>), Error> {
        let secret = key_log(&config.key_log);
        let mut config = config.clone();
        config.key_log = Arc::clone(&secret) as _;
        let ours = Arc::clone(&config.client_auth_cert_resolver);
        let certificate = Arc::new(Asked { ours, asked: AtomicBool::new(false) });
        config.client_auth_cert_resolver = Arc::clone(&certificate) as _;
        let connection = UnbufferedClientConnection::new(Arc::new(config), name)?;
        Ok((Self { connection, certificate }, secret))
    }
}

impl Session for Client {
    type Data = ClientConnectionData;
    const SIDE: Side = Side::Client;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.connection.process_tls_records(incoming)
    }

    fn state(&self) -> &CommonState {
        &self.connection
    }

    fn accepted(&self) -> bool {
        !self.certificate.asked.load(Ordering::Relaxed)
            || self.connection.protocol_version() == Some(ProtocolVersion::TLSv1_2)
            || self.connection.tls13_tickets_received() > 0
    }
}

pub(super) struct Server(UnbufferedServerConnection);

impl Server {
    pub(super) fn new(config: &ServerConfig) -> Result<(Self, Arc<Secret>), Error> {
        let secret = key_log(&config.key_log);
        let mut config = config.clone();
        config.key_log = Arc::clone(&secret) as _;
        Ok((Self(UnbufferedServerConnection::new(Arc::new(config))?), secret))
    }
}

impl Session for Server {
    type Data = ServerConnectionData;
    const SIDE: Side = Side::Server;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.0.process_tls_records(incoming)
    }

    fn state(&self) -> &CommonState {
        &self.0
    }

    fn accepted(&self) -> bool {
        true
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}

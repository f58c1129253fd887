//! TLS of visitors that ends at a listener with one certificate.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::suites::order_suites;
use crate::{Identity, MaterialError, provider};

/// The largest amount of plaintext and of ciphertext of one connection that may wait for a slow
/// visitor, in bytes, each. Four records are sealed and written together; a smaller limit costs
/// system calls.
const WAITING_BYTES: usize = 64 << 10;

/// Ends the TLS of visitors.
#[derive(Clone)]
pub struct VisitorTls(TlsAcceptor);

impl std::fmt::Debug for VisitorTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VisitorTls")
    }
}

impl VisitorTls {
    /// Reads the certificate chain and its key, two PEM files. No protocol is chosen by ALPN (RFC
    /// 7301): the inner protocol is a matter of the visitor and the target.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, MaterialError> {
        let identity = Identity::load(certificate, key)?;
        let shown: Arc<dyn ResolvesServerCert> =
            Arc::new(SingleCertAndKey::from(Arc::clone(identity.key())));
        // The programs of visitors may not support TLS 1.3.
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| MaterialError::Setting(error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(shown);
        // An unread ticket would make the kernel send a reset when the visitor closes.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        order_suites(&mut config);
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Performs the handshake with a visitor.
    ///
    /// # Errors
    /// The handshake failed.
    pub async fn accept<IO>(&self, io: IO) -> io::Result<VisitorStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.0.accept_with(io, |tls| tls.set_buffer_limit(Some(WAITING_BYTES))).await
    }
}

/// The bytes inside the TLS of a visitor. An end without close_notify may be caused by an attacker
/// (RFC 8446 section 6.1), and is an error.
pub type VisitorStream<IO> = TlsStream<IO>;

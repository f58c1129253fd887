//! Whether a server requested the client's certificate.
//!
//! In TLS 1.3 a client completes the handshake before the server has accepted the certificate. A
//! transport that knows of the request waits for the server's response, and only then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};

/// The client's certificate, and the number of times that servers requested it.
#[derive(Debug)]
pub struct Asked {
    ours: Arc<dyn ResolvesClientCert>,
    times: AtomicU64,
}

impl Asked {
    /// Counts from now on how often servers request a certificate in sessions of this
    /// configuration.
    pub fn watch(config: &mut ClientConfig) -> Arc<Self> {
        let ours = Arc::clone(&config.client_auth_cert_resolver);
        let asked = Arc::new(Self { ours, times: AtomicU64::new(0) });
        config.client_auth_cert_resolver = Arc::clone(&asked) as _;
        asked
    }

    /// The number of requests so far.
    #[must_use]
    pub fn times(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }
}

impl ResolvesClientCert for Asked {
    fn resolve(
        &self,
        root_hint_subjects: &[&[u8]],
        sigschemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.times.fetch_add(1, Ordering::Relaxed);
        self.ours.resolve(root_hint_subjects, sigschemes)
    }

    fn has_certs(&self) -> bool {
        self.ours.has_certs()
    }
}

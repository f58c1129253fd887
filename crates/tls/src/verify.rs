//! The verifier for servers whose certificate proves only the possession of a key.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};

use crate::{Pin, provider};

/// Trusts a server by its key, and ignores names and dates of its certificate. The handshake
/// signature, which is verified as usual, proves that the server holds the key.
#[derive(Debug)]
pub(super) struct KeyVerifier {
    trusted: Trusted,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The trusted keys.
#[derive(Debug)]
enum Trusted {
    Pins(Vec<Pin>),
    /// Every key, where a log-in over the session authenticates the server.
    Any,
}

/// The server's key matches no pin; carried inside [`rustls::Error`].
#[derive(Debug, thiserror::Error)]
#[error("the presented key {0} is not pinned")]
pub(super) struct Unpinned(pub(super) Pin);

impl KeyVerifier {
    pub(super) fn of_pins(pins: Vec<Pin>) -> Self {
        Self::new(Trusted::Pins(pins))
    }

    pub(super) fn of_any() -> Self {
        Self::new(Trusted::Any)
    }

    fn new(trusted: Trusted) -> Self {
        Self { trusted, algorithms: provider().signature_verification_algorithms }
    }
}

impl ServerCertVerifier for KeyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Trusted::Pins(pins) = &self.trusted else {
            return Ok(ServerCertVerified::assertion());
        };
        let presented = Pin::of(end_entity)?;
        if pins.contains(&presented) {
            return Ok(ServerCertVerified::assertion());
        }
        let error = OtherError(Arc::new(Unpinned(presented)));
        Err(Error::InvalidCertificate(CertificateError::Other(error)))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

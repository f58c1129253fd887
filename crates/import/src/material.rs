//! Secrets for the new files, which the caller makes.

use std::fmt;

/// A certificate of the server.
#[derive(Clone)]
pub struct Certificate {
    /// The certificate as PEM.
    pub certificate: String,
    /// The private key as PEM.
    pub key: String,
    /// The pin of the key, `sha256:…`.
    pub pin: String,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("pin", &self.pin).finish_non_exhaustive()
    }
}

/// Secrets for the new files.
pub trait Material {
    /// A random token.
    ///
    /// # Errors
    /// The system provides no randomness.
    fn token(&mut self) -> Result<String, String>;

    /// A self-signed certificate for a server with these names.
    ///
    /// # Errors
    /// The system provides no randomness.
    fn certificate(&mut self, hosts: &[String]) -> Result<Certificate, String>;
}

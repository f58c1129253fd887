//! The keys that a server must have again after a restart, so that its clients can reconnect at
//! once. They prove stateless resets, and seal Retry tokens and session tickets.
//!
//! All keys are derived from one secret, which is kept in `state_dir` as `quic.keys`:
//!
//! ```text
//! tunnel quic keys 1
//! 64 hexadecimal digits
//! ```

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::{hkdf, hmac};
use files::secret::{SECRET, Secret, SecretError};
use quinn::crypto::{HandshakeTokenKey, HmacKey};

const VERSION: &str = "tunnel quic keys 1";

const KEPT: Secret = Secret {
    file: "quic.keys",
    title: VERSION,
    meaning: "keys for QUIC that this version can read; a newer version may have made them. Without \
              the file new ones are made, and clients that are connected find the server only after \
              a time-out",
};

/// The keys could not be loaded or made.
pub type KeysError = SecretError;

/// The keys of a server process and of its successor with the same `state_dir`.
#[derive(Clone)]
pub struct Keys {
    pub(crate) reset: hmac::Key,
    token: Arc<hkdf::Prk>,
    pub(crate) tickets: Arc<hkdf::Prk>,
}

impl Keys {
    /// Loads the keys of `folder`, or makes them if the file is missing. The folder must exist, and
    /// two instances must not share it.
    pub fn of(folder: &Path) -> Result<Self, KeysError> {
        Ok(Self::derive(&KEPT.of(folder)?))
    }

    /// Makes keys that are not stored, for a server without a `state_dir` and for tests.
    pub fn fleeting() -> Result<Self, KeysError> {
        Ok(Self::derive(&Secret::random()?))
    }

    /// The key that proves a stateless reset (RFC 9000 section 10.3), for
    /// `quinn::EndpointConfig::new`.
    #[must_use]
    pub fn reset_key(&self) -> Arc<dyn HmacKey> {
        Arc::new(self.reset.clone())
    }

    /// The key that seals Retry tokens (RFC 9000 section 8.1), for `quinn::ServerConfig::new`.
    #[must_use]
    pub fn token_key(&self) -> Arc<dyn HandshakeTokenKey> {
        Arc::clone(&self.token) as _
    }

    /// Derives a key per purpose, each the HMAC-SHA-256 of the purpose. A key reveals nothing about
    /// the other keys.
    fn derive(secret: &[u8; SECRET]) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let derived =
            |purpose: &str| hmac::sign(&secret, format!("{VERSION} {purpose}").as_bytes());
        let expanded = |purpose: &str| {
            Arc::new(hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, derived(purpose).as_ref()))
        };
        Self {
            reset: hmac::Key::new(hmac::HMAC_SHA256, derived("reset").as_ref()),
            token: expanded("token"),
            tickets: expanded("tickets"),
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(keys: &Keys) -> Vec<u8> {
        hmac::sign(&keys.reset, b"an id").as_ref().to_vec()
    }

    #[test]
    fn the_next_process_has_the_same_keys() {
        let folder = tempfile::tempdir().unwrap();
        let first = Keys::of(folder.path()).unwrap();
        let second = Keys::of(folder.path()).unwrap();
        assert_eq!(proof(&first), proof(&second));
        let mut sealed = b"a token".to_vec();
        first.token_key().aead_from_hkdf(b"n").seal(&mut sealed, &[]).unwrap();
        let opened = second.token_key();
        assert_eq!(opened.aead_from_hkdf(b"n").open(&mut sealed, &[]).unwrap(), b"a token");
        assert_ne!(proof(&first), proof(&Keys::fleeting().unwrap()));
    }

    #[test]
    fn keys_are_not_shown() {
        assert!(!format!("{:?}", Keys::fleeting().unwrap()).contains("Prk"));
    }
}

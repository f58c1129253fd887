//! The keys that a server must have again after a restart, so that its clients reconnect at once:
//! they prove Resets, and seal cookies. Both are derived from one secret, which is kept in
//! `state_dir` as `kcp.keys`.

use std::fmt;
use std::path::Path;

use aws_lc_rs::hmac;
use files::secret::{Secret, SecretError};
use kcp::own::wire::ConnectionId;

use crate::wire::{PROOF, Packet};

const KEPT: Secret = Secret {
    file: "kcp.keys",
    title: "tunnel kcp keys 1",
    meaning: "keys for kcp:// that this version can read; a newer version may have made them. \
              Without the file new ones are made, and clients that are connected find the server \
              only after a time-out",
};

/// The keys could not be loaded or made.
pub type KeysError = SecretError;

/// The keys of a server process and of its successor with the same `state_dir`.
#[derive(Clone)]
pub struct Keys {
    reset: hmac::Key,
    pub(crate) cookies: hmac::Key,
}

impl Keys {
    /// Loads the keys of `folder`, or makes them if the file is missing. The folder must exist, and
    /// two instances must not share it.
    ///
    /// # Errors
    /// The file cannot be read or written, or is not a file of keys.
    pub fn of(folder: &Path) -> Result<Self, KeysError> {
        Ok(Self::derive(&KEPT.of(folder)?))
    }

    /// Makes keys that are not stored, for a server without a `state_dir` and for tests.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub fn fleeting() -> Result<Self, KeysError> {
        Ok(Self::derive(&Secret::random()?))
    }

    /// Derives a key per purpose, each the HMAC-SHA-256 of the purpose. A key reveals nothing about
    /// the other keys.
    fn derive(secret: &[u8; 32]) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let derived = |purpose: &str| {
            let text = format!("{} {purpose}", KEPT.title);
            hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&secret, text.as_bytes()).as_ref())
        };
        Self { reset: derived("reset"), cookies: derived("cookies") }
    }

    /// Appends the Reset of a connection.
    pub(crate) fn reset(&self, server: ConnectionId, to: &mut Vec<u8>) {
        Packet::Reset { server, token: self.reset_token(server) }.encode(to);
    }

    /// The proof of a Reset of the connection.
    pub(crate) fn reset_token(&self, server: ConnectionId) -> [u8; PROOF] {
        let tag = hmac::sign(&self.reset, &server.0);
        let mut token = [0; PROOF];
        token.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
        token
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(…)")
    }
}

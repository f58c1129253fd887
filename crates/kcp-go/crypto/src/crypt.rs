//! The names of algorithms.

use std::fmt;
use std::str::FromStr;

use kcp_go::envelope::{Null, Seal, Sealed};

#[cfg(feature = "legacy")]
use super::legacy::Insecure;
#[cfg(feature = "xchacha")]
use crate::XChaCha;
use crate::{AeadKey, Algorithm, KEY};

/// How a session protects its datagrams.
///
/// ```
/// use kcp_go::envelope::Seal as _;
/// use kcp_go_crypto::{Crypt, derive};
///
/// let crypt: Crypt = "aes-128-gcm".parse()?;
/// let envelope = crypt.envelope(&derive("a long passphrase"));
/// assert_eq!(envelope.overhead(), 28);
/// # Ok::<(), kcp_go_crypto::Unknown>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Crypt {
    /// Nothing (`null`). Without protection: datagrams can be read, changed and forged.
    Null,
    /// Authenticated encryption (`aes-128-gcm`; the others are not in kcptun).
    Aead(Algorithm),
    /// `xchacha20-poly1305`, which is not in kcptun.
    #[cfg(feature = "xchacha")]
    XChaCha20Poly1305,
    /// One of the ciphers without authentication. **Insecure.**
    #[cfg(feature = "legacy")]
    Insecure(Insecure),
}

/// No algorithm has this name, or this build lacks it. kcptun takes any unknown name for `aes`,
/// which would surprise a user who mistyped another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no cipher is called {:?}", self.0)?;
        if cfg!(not(feature = "legacy")) {
            f.write_str(" in a build without the insecure ones")?;
        }
        Ok(())
    }
}

impl std::error::Error for Unknown {}

impl Crypt {
    /// The envelope for datagrams under `key`. Shorter keys use the first bytes of it.
    #[must_use]
    pub fn envelope(self, key: &[u8; KEY]) -> Box<dyn Seal> {
        match self {
            Self::Null => Box::new(Null),
            Self::Aead(algorithm) => match AeadKey::new(algorithm, key) {
                Ok(key) => Box::new(Sealed(key)),
                Err(_) => unreachable!("a key of {KEY} bytes is long enough for {algorithm:?}"),
            },
            #[cfg(feature = "xchacha")]
            Self::XChaCha20Poly1305 => Box::new(Sealed(XChaCha::new(key))),
            #[cfg(feature = "legacy")]
            Self::Insecure(cipher) => cipher.envelope(key),
        }
    }
}

impl FromStr for Crypt {
    type Err = Unknown;

    fn from_str(name: &str) -> Result<Self, Unknown> {
        Ok(match name {
            "null" => Self::Null,
            "aes-128-gcm" => Self::Aead(Algorithm::Aes128Gcm),
            "aes-192-gcm" => Self::Aead(Algorithm::Aes192Gcm),
            "aes-256-gcm" => Self::Aead(Algorithm::Aes256Gcm),
            "chacha20-poly1305" => Self::Aead(Algorithm::ChaCha20Poly1305),
            #[cfg(feature = "xchacha")]
            "xchacha20-poly1305" => Self::XChaCha20Poly1305,
            #[cfg(feature = "legacy")]
            name => Self::Insecure(Insecure::named(name).ok_or_else(|| Unknown(name.to_owned()))?),
            #[cfg(not(feature = "legacy"))]
            name => return Err(Unknown(name.to_owned())),
        })
    }
}

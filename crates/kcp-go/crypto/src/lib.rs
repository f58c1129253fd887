//! The encryption of kcp-go's datagrams, by aws-lc, with the key that kcptun derives from its
//! passphrase.
//!
//! | module or type | content |
//! |---|---|
//! | [`Crypt`] | the names |
//! | [`derive()`] | the key of kcptun |
//! | [`AeadKey`] | AES-GCM and ChaCha20-Poly1305 |
//! | `XChaCha` | feature `xchacha`: XChaCha20-Poly1305 |
//! | `legacy` | feature `legacy`: **insecure**, everything that kcp-go had before it had AES-GCM |
//! | `aead`, `crypt`, `key`, `xchacha` | the files of these types |
//!
//! The design of kcp-go limits its envelopes: one key serves both directions and all sessions, and
//! a replayed datagram is not detected. Sensitive traffic needs TLS inside.

mod aead;
mod crypt;
mod key;
#[cfg(feature = "legacy")]
pub mod legacy;
#[cfg(feature = "xchacha")]
mod xchacha;

pub use aead::AeadKey;
pub use crypt::{Crypt, Unknown};
pub use kcp_crypto::Algorithm;
pub use key::{KEY, derive, derive_with_salt};
#[cfg(feature = "xchacha")]
pub use xchacha::XChaCha;

//! The encryption of kcp-go's datagrams: the algorithms behind the envelopes of crate `kcp`, and the
//! key that kcptun derives of its passphrase.
//!
//! [`Crypt`] names an algorithm as kcptun does, and makes the envelope:
//!
//! ```
//! use kcp::envelope::Seal as _;
//! use kcp_crypto::{Crypt, derive};
//!
//! let crypt: Crypt = "aes-128-gcm".parse()?;
//! let envelope = crypt.envelope(&derive("a long passphrase"));
//! assert_eq!(envelope.overhead(), 28);
//! # Ok::<(), kcp_crypto::Unknown>(())
//! ```
//!
//! | module or type | content |
//! |---|---|
//! | [`Crypt`] | the names |
//! | [`SealKeys`] | the keys of the project's own packets, one for each direction |
//! | [`RollingKeys`] | such keys that are updated while the connection lives |
//! | [`derive()`] | the key of kcptun |
//! | [`AeadKey`] | AES-GCM and ChaCha20-Poly1305 by aws-lc |
//! | `XChaCha` | feature `xchacha`: XChaCha20-Poly1305 |
//! | `legacy` | feature `legacy`: **insecure**, everything that kcp-go had before it had AES-GCM |
//!
//! What kcp-go lays down limits all of them: one key serves both directions and all sessions, and
//! nothing notices a datagram that is sent again. Traffic that matters needs TLS inside.

mod aead;
mod crypt;
mod key;
#[cfg(feature = "legacy")]
pub mod legacy;
mod own;
#[cfg(feature = "xchacha")]
mod xchacha;

pub use aead::{AeadKey, Algorithm};
pub use crypt::{Crypt, Unknown};
pub use key::{KEY, derive, derive_with_salt};
pub use own::{DirectionKey, RollingKeys, SealKeys, UPDATE_AFTER};
#[cfg(feature = "xchacha")]
pub use xchacha::XChaCha;

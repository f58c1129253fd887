//! The encryption of kcp-go's datagrams, and the key that kcptun derives from its passphrase.

mod aead;
mod crypt;
mod key;
#[cfg(feature = "legacy")]
pub mod legacy;
#[cfg(feature = "xchacha")]
mod xchacha;

pub use aead::AeadKey;
pub use crypt::{Crypt, Unknown};
pub use key::{KEY, derive, derive_with_salt};
#[cfg(feature = "xchacha")]
pub use xchacha::XChaCha;

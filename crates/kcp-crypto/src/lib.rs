//! The encryption of the packets of crate `kcp`, by aws-lc: of the project's own packets, and with
//! the feature `compat` of kcp-go's datagrams, with the key that kcptun derives from its
//! passphrase.
//!
//! | module or type | content |
//! |---|---|
//! | [`SealKeys`] | the keys of the project's own packets, one for each direction |
//! | [`RollingKeys`] | such keys that are updated while the connection lives |
//! | `Crypt` | feature `compat`: the names |
//! | `derive` | feature `compat`: the key of kcptun |
//! | `AeadKey` | feature `compat`: AES-GCM and ChaCha20-Poly1305 |
//! | `XChaCha` | feature `xchacha`: XChaCha20-Poly1305 |
//! | `legacy` | feature `legacy`: **insecure**, everything that kcp-go had before it had AES-GCM |
//!
//! The design of kcp-go limits its envelopes: one key serves both directions and all sessions, and
//! a replayed datagram is not detected. Sensitive traffic needs TLS inside.

mod algorithm;
#[cfg(feature = "compat")]
mod compat;
mod own;

pub use algorithm::Algorithm;
#[cfg(feature = "compat")]
pub use compat::*;
pub use own::{DirectionKey, RollingKeys, SealKeys, UPDATE_AFTER};

//! The names of authenticated encryption.

/// Algorithms of authenticated encryption. kcptun knows the first alone, and the project's own
/// packets have no AES-192.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// AES-GCM with a key of 16 bytes.
    Aes128Gcm,
    /// AES-GCM with a key of 24 bytes.
    Aes192Gcm,
    /// AES-GCM with a key of 32 bytes.
    Aes256Gcm,
    /// ChaCha20-Poly1305 (RFC 8439), with a key of 32 bytes.
    ChaCha20Poly1305,
}

//! Algorithms for authenticated encryption.

/// Algorithms for authenticated encryption. kcptun supports only the first, and the project's own
/// packets do not use AES-192.
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

//! Authenticated encryption by aws-lc.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce,
    UnboundKey,
};
use kcp_go::envelope::{Aead, Refused};

use crate::{Algorithm, KEY};

/// A key for authenticated encryption with a nonce of 12 bytes and a tag of 16.
///
/// Kcp-go uses random nonces. After 2^32 datagrams under one key the probability of a repeated
/// nonce exceeds the limit of NIST SP 800-38D, and a repeated nonce breaks the protection of
/// AES-GCM.
#[derive(Debug)]
pub struct AeadKey {
    key: LessSafeKey,
    tag: usize,
}

impl AeadKey {
    /// Makes a key from the first bytes of `key`, as many as the algorithm needs.
    ///
    /// # Errors
    ///
    /// The library refuses a key only because of its length, which cannot happen here.
    pub fn new(algorithm: Algorithm, key: &[u8; KEY]) -> Result<Self, Refused> {
        let algorithm = match algorithm {
            Algorithm::Aes128Gcm => &AES_128_GCM,
            Algorithm::Aes192Gcm => &AES_192_GCM,
            Algorithm::Aes256Gcm => &AES_256_GCM,
            Algorithm::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = key.get(..algorithm.key_len()).ok_or(Refused)?;
        let key = UnboundKey::new(algorithm, key).map_err(|_| Refused)?;
        Ok(Self { key: LessSafeKey::new(key), tag: algorithm.tag_len() })
    }
}

impl Aead for AeadKey {
    fn nonce(&self) -> usize {
        NONCE_LEN
    }

    fn tag(&self) -> usize {
        self.tag
    }

    fn seal(&self, nonce: &[u8], text: &mut [u8], tag: &mut [u8]) -> Result<(), Refused> {
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| Refused)?;
        let sealed = self.key.seal_in_place_separate_tag(nonce, Aad::empty(), text);
        let sealed = sealed.map_err(|_| Refused)?;
        if tag.len() != sealed.as_ref().len() {
            return Err(Refused);
        }
        tag.copy_from_slice(sealed.as_ref());
        Ok(())
    }

    fn open(&self, nonce: &[u8], text_and_tag: &mut [u8]) -> Result<(), Refused> {
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| Refused)?;
        let opened = self.key.open_in_place(nonce, Aad::empty(), text_and_tag);
        opened.map(|_| ()).map_err(|_| Refused)
    }
}

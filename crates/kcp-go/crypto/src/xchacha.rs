//! XChaCha20-Poly1305: its nonce of 24 bytes may be random without a practical limit. aws-lc does
//! not provide it.

use std::fmt;

use chacha20poly1305::aead::{AeadInOut as _, KeyInit as _};
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};
use kcp_go::envelope::{Aead, Refused};

use crate::KEY;

const NONCE: usize = 24;
const TAG: usize = 16;

/// A key of XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha).
pub struct XChaCha(XChaCha20Poly1305);

impl XChaCha {
    /// A key of 32 bytes.
    #[must_use]
    pub fn new(key: &[u8; KEY]) -> Self {
        Self(XChaCha20Poly1305::new(key.into()))
    }
}

impl fmt::Debug for XChaCha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XChaCha").finish_non_exhaustive()
    }
}

impl Aead for XChaCha {
    fn nonce(&self) -> usize {
        NONCE
    }

    fn tag(&self) -> usize {
        TAG
    }

    fn seal(&self, nonce: &[u8], text: &mut [u8], tag: &mut [u8]) -> Result<(), Refused> {
        let nonce: &[u8; NONCE] = nonce.try_into().map_err(|_| Refused)?;
        let nonce: &XNonce = nonce.into();
        let sealed = self.0.encrypt_inout_detached(nonce, &[], text.into());
        let sealed = sealed.map_err(|_| Refused)?;
        tag.first_chunk_mut::<TAG>().ok_or(Refused)?.copy_from_slice(&sealed);
        Ok(())
    }

    fn open(&self, nonce: &[u8], text_and_tag: &mut [u8]) -> Result<(), Refused> {
        let nonce: &[u8; NONCE] = nonce.try_into().map_err(|_| Refused)?;
        let nonce: &XNonce = nonce.into();
        let (text, tag) = text_and_tag.split_last_chunk_mut::<TAG>().ok_or(Refused)?;
        let tag: &Tag = (&*tag).into();
        self.0.decrypt_inout_detached(nonce, &[], text.into(), tag).map_err(|_| Refused)
    }
}

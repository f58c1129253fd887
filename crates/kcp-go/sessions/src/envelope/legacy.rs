//! The layout of kcp-go's first ciphers: a nonce that makes the first block random, and a check sum
//! that is encrypted with the rest.
//!
//! ```text
//! encrypt( nonce 16, CRC-32 of the plaintext 4, plaintext )
//! ```

use std::fmt::Debug;
use std::ops::Range;

use super::crc::crc32;
use super::{Refused, Seal};

const NONCE: usize = 16;
const HEAD: usize = NONCE + 4;

/// A cipher for a whole datagram whose first 16 bytes are random.
pub trait Cipher: Debug + Send + Sync {
    /// Encrypts in place.
    fn encrypt(&self, datagram: &mut [u8]);

    /// Decrypts in place.
    fn decrypt(&self, datagram: &mut [u8]);
}

/// The envelope of nonce and check sum around a cipher. It does not authenticate: see the
/// [module](super).
#[derive(Clone, Copy, Debug)]
pub struct Legacy<C>(pub C);

impl<C: Cipher> Seal for Legacy<C> {
    fn head(&self) -> usize {
        HEAD
    }

    fn tail(&self) -> usize {
        0
    }

    fn nonce(&self) -> usize {
        NONCE
    }

    fn seal(&self, nonce: &[u8], buffer: &mut [u8]) -> Result<(), Refused> {
        let nonce = nonce.first_chunk::<NONCE>().ok_or(Refused)?;
        let (head, plaintext) = buffer.split_first_chunk_mut::<HEAD>().ok_or(Refused)?;
        head[..NONCE].copy_from_slice(nonce);
        head[NONCE..].copy_from_slice(&crc32(plaintext).to_le_bytes());
        self.0.encrypt(buffer);
        Ok(())
    }

    fn open(&self, datagram: &mut [u8]) -> Result<Range<usize>, Refused> {
        if datagram.len() < HEAD {
            return Err(Refused);
        }
        self.0.decrypt(datagram);
        let (head, plaintext) = datagram.split_first_chunk::<HEAD>().ok_or(Refused)?;
        if head[NONCE..] != crc32(plaintext).to_le_bytes() {
            return Err(Refused);
        }
        Ok(HEAD..datagram.len())
    }
}

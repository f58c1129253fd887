//! The layout of authenticated encryption: `nonce, encrypted plaintext, tag`, and no associated
//! data.

use std::fmt::Debug;
use std::ops::Range;

use super::{Refused, Seal};

/// Authenticated encryption without associated data, in place.
pub trait Aead: Debug + Send + Sync {
    /// Bytes of the nonce.
    fn nonce(&self) -> usize;

    /// Bytes of the tag.
    fn tag(&self) -> usize;

    /// Encrypts `text` and writes the tag. The slices of nonce and tag have the lengths that
    /// [`nonce`](Self::nonce) and [`tag`](Self::tag) return.
    ///
    /// # Errors
    ///
    /// A length is wrong.
    fn seal(&self, nonce: &[u8], text: &mut [u8], tag: &mut [u8]) -> Result<(), Refused>;

    /// Checks and decrypts the text in front of the tag.
    ///
    /// # Errors
    ///
    /// The text was not sealed with this key.
    fn open(&self, nonce: &[u8], text_and_tag: &mut [u8]) -> Result<(), Refused>;
}

/// The envelope of nonce and tag around authenticated encryption.
#[derive(Clone, Copy, Debug)]
pub struct Sealed<A>(pub A);

impl<A: Aead> Seal for Sealed<A> {
    fn head(&self) -> usize {
        self.0.nonce()
    }

    fn tail(&self) -> usize {
        self.0.tag()
    }

    fn nonce(&self) -> usize {
        self.0.nonce()
    }

    fn seal(&self, nonce: &[u8], buffer: &mut [u8]) -> Result<(), Refused> {
        let nonce = nonce.get(..self.head()).ok_or(Refused)?;
        let (head, rest) = buffer.split_at_mut_checked(self.head()).ok_or(Refused)?;
        let text = rest.len().checked_sub(self.tail()).ok_or(Refused)?;
        let (text, tag) = rest.split_at_mut_checked(text).ok_or(Refused)?;
        head.copy_from_slice(nonce);
        self.0.seal(nonce, text, tag)
    }

    fn open(&self, datagram: &mut [u8]) -> Result<Range<usize>, Refused> {
        let end = datagram.len().checked_sub(self.tail()).ok_or(Refused)?;
        let (nonce, rest) = datagram.split_at_mut_checked(self.head()).ok_or(Refused)?;
        if rest.len() < self.tail() {
            return Err(Refused);
        }
        self.0.open(nonce, rest)?;
        Ok(self.head()..end)
    }
}

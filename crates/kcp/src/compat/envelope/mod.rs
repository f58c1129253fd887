//! Envelopes: how a datagram of kcp-go is encrypted around its shard or its segments.
//!
//! | envelope | in front | behind | what is encrypted |
//! |---|---|---|---|
//! | [`Null`] | nothing | nothing | nothing |
//! | [`Legacy`] | nonce 16, CRC-32 4 | nothing | the whole datagram |
//! | [`Sealed`] | nonce | tag | what is between them |
//!
//! [`Seal`] is what a session uses: it works in place in the one buffer of a datagram, with room in
//! front and behind. The algorithms are outside of this crate: they implement [`Cipher`] for the
//! legacy layout or [`Aead`] for the other, and crate `kcp-crypto` has all of kcp-go.
//!
//! Only [`Sealed`] protects anything. A CRC inside a stream of XOR can be kept right while bytes are
//! changed, so that [`Legacy`] hides, at best, and proves nothing. None of the three notices a
//! datagram that is sent again, and the key of kcp-go serves both directions, all sessions, forever.

mod crc;
#[doc(hidden)]
pub mod fuzz;
mod legacy;
mod opener;
mod sealed;
mod sizes;

use std::fmt::Debug;
use std::ops::Range;

pub use crate::Refused;
pub use legacy::{Cipher, Legacy};
pub use opener::{Counters, Opener};
pub use sealed::{Aead, Sealed};
pub use sizes::{LONGEST_DATAGRAM, Sizes, TooSmall};

/// Seals and opens datagrams in place.
pub trait Seal: Debug + Send + Sync {
    /// Bytes in front of the plaintext.
    fn head(&self) -> usize;

    /// Bytes behind the plaintext.
    fn tail(&self) -> usize;

    /// Random bytes that each datagram needs. They must not be used twice with the same key.
    fn nonce(&self) -> usize;

    /// Seals the plaintext between [`head`](Self::head) and [`tail`](Self::tail) bytes of room. The
    /// whole buffer is the datagram then. `nonce` has as many bytes as [`nonce`](Self::nonce) says.
    ///
    /// # Errors
    ///
    /// `nonce` or the buffer is too short, which is the caller's mistake; nothing may be sent.
    fn seal(&self, nonce: &[u8], buffer: &mut [u8]) -> Result<(), Refused>;

    /// Opens a datagram, and says where its plaintext is.
    ///
    /// # Errors
    ///
    /// It is not what was sealed with this key. The buffer may have changed.
    fn open(&self, datagram: &mut [u8]) -> Result<Range<usize>, Refused>;

    /// Bytes of a datagram that are not plaintext.
    fn overhead(&self) -> usize {
        self.head() + self.tail()
    }
}

impl<S: Seal + ?Sized> Seal for Box<S> {
    fn head(&self) -> usize {
        (**self).head()
    }

    fn tail(&self) -> usize {
        (**self).tail()
    }

    fn nonce(&self) -> usize {
        (**self).nonce()
    }

    fn seal(&self, nonce: &[u8], buffer: &mut [u8]) -> Result<(), Refused> {
        (**self).seal(nonce, buffer)
    }

    fn open(&self, datagram: &mut [u8]) -> Result<Range<usize>, Refused> {
        (**self).open(datagram)
    }
}

/// No envelope: plaintext.
#[derive(Clone, Copy, Debug, Default)]
pub struct Null;

impl Seal for Null {
    fn head(&self) -> usize {
        0
    }

    fn tail(&self) -> usize {
        0
    }

    fn nonce(&self) -> usize {
        0
    }

    fn seal(&self, _: &[u8], _: &mut [u8]) -> Result<(), Refused> {
        Ok(())
    }

    fn open(&self, datagram: &mut [u8]) -> Result<Range<usize>, Refused> {
        Ok(0..datagram.len())
    }
}

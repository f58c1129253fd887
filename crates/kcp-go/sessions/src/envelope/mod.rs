//! Envelopes: how a datagram of kcp-go is encrypted around its shard or its segments.
//!
//! | envelope | in front | behind | what is encrypted |
//! |---|---|---|---|
//! | [`Null`] | nothing | nothing | nothing |
//! | [`Legacy`] | nonce 16, CRC-32 4 | nothing | the whole datagram |
//! | [`Sealed`] | nonce | tag | what is between them |
//!
//! A session uses [`Seal`]. It works in place in the buffer of a datagram, with room in front of
//! and behind the plaintext. The algorithms are outside of this crate: they implement [`Cipher`]
//! for the legacy layout or [`Aead`] for the other layout. Crate `kcp-crypto` has all algorithms of
//! kcp-go.
//!
//! Only [`Sealed`] authenticates. An attacker can change bytes of a stream cipher and correct the
//! CRC, so [`Legacy`] at best hides the plaintext. No envelope detects a repeated datagram, and
//! kcp-go uses one key for both directions, for all sessions and for ever.

mod crc;
#[doc(hidden)]
pub mod fuzz;
mod legacy;
mod opener;
mod sealed;
mod sizes;

use std::fmt::Debug;
use std::ops::Range;

pub use kcp::Refused;
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
    /// `nonce` or the buffer is too short, which is a mistake of the caller. Nothing may be sent.
    fn seal(&self, nonce: &[u8], buffer: &mut [u8]) -> Result<(), Refused>;

    /// Opens a datagram, and returns the range of its plaintext.
    ///
    /// # Errors
    ///
    /// The datagram was not sealed with this key. The buffer may have changed.
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

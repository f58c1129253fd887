//! The methods that are not block ciphers: Salsa20, the table of `xor`, and `none`.

use std::fmt;
use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;
use cipher::{KeyIvInit as _, StreamCipher as _};
use kcp_go::envelope::Cipher;
use salsa20::Salsa20;

use crate::KEY;

/// Salsa20 with its nonce in the clear: the first 8 bytes of the datagram.
pub(super) struct Salsa([u8; KEY]);

impl Salsa {
    pub(super) const fn new(key: &[u8; KEY]) -> Self {
        Self(*key)
    }
}

impl fmt::Debug for Salsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Salsa").finish_non_exhaustive()
    }
}

impl Cipher for Salsa {
    fn encrypt(&self, datagram: &mut [u8]) {
        if let Some((nonce, rest)) = datagram.split_first_chunk_mut::<8>() {
            Salsa20::new(&self.0.into(), &(*nonce).into()).apply_keystream(rest);
        }
    }

    fn decrypt(&self, datagram: &mut [u8]) {
        self.encrypt(datagram);
    }
}

/// The bytes of the table: the longest datagram of kcp-go.
const TABLE: usize = 1500;

const ROUNDS: NonZeroU32 = NonZeroU32::MIN.saturating_add(31);

/// The same bytes for all datagrams. Bytes beyond the table are sent unchanged.
pub(super) struct Table(Box<[u8; TABLE]>);

impl Table {
    pub(super) fn new(key: &[u8; KEY]) -> Self {
        let mut table = Box::new([0; TABLE]);
        let salt = b"sH3CIVoF#rWLtJo6";
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA1, ROUNDS, salt, key, &mut table[..]);
        Self(table)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}

impl Cipher for Table {
    fn encrypt(&self, datagram: &mut [u8]) {
        for (byte, table) in datagram.iter_mut().zip(&self.0[..]) {
            *byte ^= table;
        }
    }

    fn decrypt(&self, datagram: &mut [u8]) {
        self.encrypt(datagram);
    }
}

/// No encryption.
#[derive(Debug)]
pub(super) struct Plain;

impl Cipher for Plain {
    fn encrypt(&self, _: &mut [u8]) {}

    fn decrypt(&self, _: &mut [u8]) {}
}

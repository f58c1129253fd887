//! **Insecure**: the ciphers of kcp-go that do not authenticate. They are for peers that support
//! nothing else.
//!
//! A weakness of all: a CRC-32 is the only protection against changes. In CFB and in every XOR
//! stream, an attacker without the key can change bytes and keep the CRC valid. A captured datagram
//! can be replayed. On top of that:
//!
//! | cipher | further |
//! |---|---|
//! | `aes`, `aes-192`, `aes-128`, `twofish`, `sm4` | one fixed vector for all datagrams: the first block hides nothing but a random number |
//! | `blowfish`, `cast5`, `3des` | blocks of 64 bits: repeated blocks tell about the plaintext after some gigabytes |
//! | `tea` | eight cycles of 32; it has equivalent keys |
//! | `xtea` | blocks of 64 bits |
//! | `salsa20` | a nonce of 64 random bits, which repeats after some billions of datagrams |
//! | `xor` | one table of 1,500 bytes for all datagrams; the known heads of segments give it away |
//! | `none` | no encryption at all |

mod cfb;
mod stream;
mod tea;

use aes::{Aes128, Aes192, Aes256};
use blowfish::Blowfish;
use cast5::Cast5;
use cipher::{BlockCipherEncrypt, KeyInit};
use des::TdesEde3;
use kcp_go::envelope::{self, Seal};
use sm4::Sm4;
use twofish::Twofish;

use crate::KEY;
use cfb::{Cfb, Foreign};
use stream::{Plain, Salsa, Table};
use tea::{Tea, Xtea};

/// A cipher without authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insecure {
    /// `aes`, kcptun's default: AES-256.
    Aes256,
    /// `aes-192`.
    Aes192,
    /// `aes-128`.
    Aes128,
    /// `twofish`, with a key of 32 bytes.
    Twofish,
    /// `sm4`.
    Sm4,
    /// `blowfish`, with a key of 32 bytes.
    Blowfish,
    /// `cast5`.
    Cast5,
    /// `3des`, with three keys.
    TripleDes,
    /// `tea`, with 8 cycles.
    Tea,
    /// `xtea`.
    Xtea,
    /// `salsa20`.
    Salsa20,
    /// `xor`.
    Xor,
    /// `none`: nonce and check sum without encryption.
    None,
}

impl Insecure {
    /// The cipher with this name in kcptun.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "aes" => Self::Aes256,
            "aes-192" => Self::Aes192,
            "aes-128" => Self::Aes128,
            "twofish" => Self::Twofish,
            "sm4" => Self::Sm4,
            "blowfish" => Self::Blowfish,
            "cast5" => Self::Cast5,
            "3des" => Self::TripleDes,
            "tea" => Self::Tea,
            "xtea" => Self::Xtea,
            "salsa20" => Self::Salsa20,
            "xor" => Self::Xor,
            "none" => Self::None,
            _ => return None,
        })
    }

    /// The envelope for datagrams under `key`. Shorter keys use the first bytes of it.
    #[must_use]
    pub fn envelope(self, key: &[u8; KEY]) -> Box<dyn Seal> {
        match self {
            Self::Aes256 => block::<Aes256, 16>(key, 32),
            Self::Aes192 => block::<Aes192, 16>(key, 24),
            Self::Aes128 => block::<Aes128, 16>(key, 16),
            Self::Twofish => block::<Twofish, 16>(key, 32),
            Self::Sm4 => block::<Sm4, 16>(key, 16),
            Self::Blowfish => block::<Blowfish, 8>(key, 32),
            Self::Cast5 => block::<Cast5, 8>(key, 16),
            Self::TripleDes => block::<TdesEde3, 8>(key, 24),
            Self::Tea => legacy(Cfb::new(Tea::new(key))),
            Self::Xtea => legacy(Cfb::new(Xtea::new(key))),
            Self::Salsa20 => legacy(Salsa::new(key)),
            Self::Xor => legacy(Table::new(key)),
            Self::None => legacy(Plain),
        }
    }
}

fn legacy(cipher: impl envelope::Cipher + 'static) -> Box<dyn Seal> {
    Box::new(envelope::Legacy(cipher))
}

/// A cipher for blocks of `N` bytes, with the first `length` bytes of the key.
fn block<C, const N: usize>(key: &[u8; KEY], length: usize) -> Box<dyn Seal>
where
    C: KeyInit + BlockCipherEncrypt + Send + Sync + 'static,
    Foreign<C>: cfb::Block<N>,
{
    match C::new_from_slice(&key[..length]) {
        Ok(cipher) => legacy(Cfb::new(Foreign(cipher))),
        Err(_) => unreachable!("each cipher is given a key of its length"),
    }
}

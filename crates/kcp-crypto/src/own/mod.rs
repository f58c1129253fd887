//! The keys of the project's own packets, by aws-lc.

mod rolling;

pub use rolling::{RollingKeys, UPDATE_AFTER};

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use kcp::Refused;
use kcp::own::Keys;
use kcp::own::wire::PacketNumber;

use crate::Algorithm;

/// The size of the authentication tag after the content, in bytes.
const TAG: usize = 16;

/// The key of one direction, and the IV to which the packet number is added (as RFC 9001 section
/// 5.3 builds its nonces).
#[derive(Debug)]
pub struct DirectionKey {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
}

impl DirectionKey {
    /// A key of 16 bytes for [`Algorithm::Aes128Gcm`], of 32 for [`Algorithm::Aes256Gcm`] and
    /// [`Algorithm::ChaCha20Poly1305`].
    ///
    /// # Errors
    ///
    /// The key has a different length, or the algorithm is not supported.
    pub fn new(algorithm: Algorithm, key: &[u8], iv: [u8; NONCE_LEN]) -> Result<Self, Refused> {
        let algorithm = match algorithm {
            Algorithm::Aes128Gcm => &AES_128_GCM,
            Algorithm::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            Algorithm::Aes256Gcm => &AES_256_GCM,
            Algorithm::Aes192Gcm => return Err(Refused),
        };
        let key = UnboundKey::new(algorithm, key).map_err(|_| Refused)?;
        Ok(Self { key: LessSafeKey::new(key), iv })
    }

    fn seal(
        &self,
        number: PacketNumber,
        head: &[u8],
        text: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Refused> {
        let nonce = self.nonce(number);
        let sealed = self.key.seal_in_place_separate_tag(nonce, Aad::from(head), text);
        let sealed = sealed.map_err(|_| Refused)?;
        if tag.len() != sealed.as_ref().len() {
            return Err(Refused);
        }
        tag.copy_from_slice(sealed.as_ref());
        Ok(())
    }

    fn open(
        &self,
        number: PacketNumber,
        head: &[u8],
        text_and_tag: &mut [u8],
    ) -> Result<usize, Refused> {
        let opened = self.key.open_in_place(self.nonce(number), Aad::from(head), text_and_tag);
        opened.map(|text| text.len()).map_err(|_| Refused)
    }

    fn nonce(&self, number: PacketNumber) -> Nonce {
        let mut nonce = self.iv;
        let (_, low) = nonce.split_at_mut(NONCE_LEN - 8);
        for (byte, number) in low.iter_mut().zip(number.0.to_be_bytes()) {
            *byte ^= number;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

/// The keys of a connection at one end, in one phase, without updates.
#[derive(Debug)]
pub struct SealKeys {
    /// The key with which this end seals.
    pub seal: DirectionKey,
    /// The key with which the peer seals.
    pub open: DirectionKey,
    /// The phase of both. Packets with the other phase bit are refused.
    pub phase: bool,
}

impl Keys for SealKeys {
    fn tag(&self) -> usize {
        TAG
    }

    fn phase(&mut self, _: PacketNumber) -> bool {
        self.phase
    }

    fn seal(
        &mut self,
        number: PacketNumber,
        head: &[u8],
        text: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Refused> {
        self.seal.seal(number, head, text, tag)
    }

    fn open(
        &mut self,
        phase: bool,
        number: PacketNumber,
        head: &[u8],
        text_and_tag: &mut [u8],
    ) -> Result<usize, Refused> {
        if phase != self.phase {
            return Err(Refused);
        }
        self.open.open(number, head, text_and_tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(algorithm: Algorithm, length: usize) -> [SealKeys; 2] {
        let key = |of: u8| DirectionKey::new(algorithm, &vec![of; length], [of; 12]).unwrap();
        let end = |seal, open| SealKeys { seal: key(seal), open: key(open), phase: false };
        [end(1, 2), end(2, 1)]
    }

    #[test]
    fn a_packet_opens_at_the_other_end_with_its_number_head_and_phase_alone() {
        for (algorithm, length) in [
            (Algorithm::Aes128Gcm, 16),
            (Algorithm::Aes256Gcm, 32),
            (Algorithm::ChaCha20Poly1305, 32),
        ] {
            let [mut one, mut other] = ends(algorithm, length);
            let number = PacketNumber(u64::MAX - 5);
            let mut packet = *b"hello there, and the tag.......!";
            let (text, tag) = packet.split_at_mut(16);
            one.seal(number, b"head", text, tag).unwrap();
            let mut open = |phase, number, head: &[u8]| {
                let mut packet = packet;
                other.open(phase, number, head, &mut packet).map(|length| packet[..length].to_vec())
            };
            assert_eq!(open(false, number, b"head").unwrap(), b"hello there, and");
            assert_eq!(open(true, number, b"head"), Err(Refused));
            assert_eq!(open(false, PacketNumber(5), b"head"), Err(Refused));
            assert_eq!(open(false, number, b"tail"), Err(Refused));
            assert_eq!(one.open(false, number, b"head", &mut packet.clone()), Err(Refused));
        }
    }
}

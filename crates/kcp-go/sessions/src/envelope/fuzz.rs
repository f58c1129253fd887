//! The harness of the fuzz target, which the replay of its corpus uses as well.

use super::{Aead, Cipher, Legacy, Null, Opener, Refused, Seal, Sealed};

/// A cipher that accepts any input of a fuzzer.
#[derive(Debug)]
pub(crate) struct Toy;

const MASK: u8 = 0x5a;

impl Cipher for Toy {
    fn encrypt(&self, datagram: &mut [u8]) {
        datagram.iter_mut().for_each(|byte| *byte ^= MASK);
    }

    fn decrypt(&self, datagram: &mut [u8]) {
        self.encrypt(datagram);
    }
}

impl Aead for Toy {
    fn nonce(&self) -> usize {
        12
    }

    fn tag(&self) -> usize {
        16
    }

    fn seal(&self, nonce: &[u8], text: &mut [u8], tag: &mut [u8]) -> Result<(), Refused> {
        self.encrypt(text);
        tag.fill(nonce.iter().fold(MASK, |sum, byte| sum ^ byte));
        Ok(())
    }

    fn open(&self, nonce: &[u8], text_and_tag: &mut [u8]) -> Result<(), Refused> {
        let (text, tag) = text_and_tag.split_last_chunk_mut::<16>().ok_or(Refused)?;
        let sum = nonce.iter().fold(MASK, |sum, byte| sum ^ byte);
        if tag.iter().any(|byte| *byte != sum) {
            return Err(Refused);
        }
        self.encrypt(text);
        Ok(())
    }
}

/// Opens `data` as a datagram, and seals and opens `data` as a plaintext, which must stay
/// unchanged.
pub fn datagrams(data: &[u8]) {
    let envelopes: [Box<dyn Seal>; 3] =
        [Box::new(Null), Box::new(Legacy(Toy)), Box::new(Sealed(Toy))];
    for envelope in envelopes {
        let mut opener = Opener::new(envelope);
        let _ = opener.open(&mut data.to_vec());
        let counted = opener.counters();
        assert_eq!(counted.opened + counted.refused + counted.malformed, 1);
        // A datagram that passes the check is read without changes.
        let envelope = opener.seal();
        let nonce = &[7; 16][..envelope.nonce()];
        let mut sealed = vec![0; envelope.head()];
        sealed.extend_from_slice(data);
        sealed.resize(sealed.len() + envelope.tail(), 0);
        assert_eq!(envelope.seal(nonce, &mut sealed), Ok(()));
        let opened = envelope.open(&mut sealed);
        assert_eq!(opened.map(|at| &sealed[at]), Ok(data));
    }
}

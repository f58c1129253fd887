//! Harness of the fuzz target `control` and of the replay of its corpus.

use bytes::{Bytes, BytesMut};

use super::{ControlDecoder, ControlError, ControlMessage};

/// Decodes `data` whole and in pieces whose length is its first byte: the results must be equal,
/// and each decoded message must survive encoding and decoding.
pub fn fuzz(data: &[u8]) {
    let Some((&piece, data)) = data.split_first() else { return };
    let whole = decode(data, data.len().max(1));
    assert_eq!(whole, decode(data, usize::from(piece).max(1)));
    for message in whole.0 {
        // Our encoding may be longer than the peer's, and thus be refused.
        if let Ok(bytes) = message.encode() {
            assert_eq!(decode(&bytes, bytes.len()), (vec![message], None));
        }
    }
}

fn decode(data: &[u8], piece: usize) -> (Vec<ControlMessage>, Option<ControlError>) {
    let mut decoder = ControlDecoder::new();
    let mut messages = Vec::new();
    let mut arrived = BytesMut::from(data);
    while !arrived.is_empty() {
        let mut piece: Bytes = arrived.split_to(piece.min(arrived.len())).freeze();
        loop {
            match decoder.decode(&mut piece) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
        assert!(piece.is_empty(), "a decoder that wants more takes all");
    }
    (messages, None)
}

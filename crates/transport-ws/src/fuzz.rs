//! The harnesses of the fuzz targets, which the replay of their corpora uses as well.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use transport::{Producer as _, Side};

use crate::handshake;
use crate::receive::{Closed, Fault, Notes, Receive};
use crate::send::Send;

/// The output of the incoming half of a connection.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    payload: Vec<u8>,
    ping: Option<Vec<u8>>,
    closed: Option<Closed>,
}

/// Frames of a peer must mean the same however they are cut into pieces. The first byte of `data`
/// chooses the side and the size of the pieces.
pub fn frames(data: &[u8]) {
    let Some((&first, bytes)) = data.split_first() else { return };
    let side = if first & 1 == 0 { Side::Server } else { Side::Client };
    let whole = hear(side, bytes.chunks(bytes.len().max(1)));
    let pieces = hear(side, bytes.chunks(usize::from(first >> 1) + 1));
    match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces),
        (whole, pieces) => assert_eq!(whole.err(), pieces.err()),
    }
    // The bytes that this end sends must reach the other end unchanged.
    let mut send = Send::new(side);
    let mut said: VecDeque<Bytes> =
        bytes.chunks(usize::from(first) * 8 + 1).map(Bytes::copy_from_slice).collect();
    let other = if side == Side::Server { Side::Client } else { Side::Server };
    if let Some(mut masked) = send.masked(&mut said.clone(), bytes.len()) {
        let (mut room, mut wire) = (vec![0; 1024 + usize::from(first)], Vec::new());
        let size = masked.size();
        loop {
            match masked.fill(&mut room) {
                0 => break,
                filled => wire.extend_from_slice(&room[..filled]),
            }
        }
        if masked.outcome().is_err() {
            return;
        }
        // The head of a short message is shorter than its size says.
        assert!(wire.len() <= size && masked.left() == 0);
        let heard = hear(other, std::iter::once(&wire[..]));
        assert_eq!(heard.map(|heard| heard.payload), Ok(bytes.to_vec()));
    }
    let (mut sent, mut wire) = (0, Vec::new());
    while sent < bytes.len() {
        let Ok(packed) = send.pack(&mut said, 1 + usize::from(first) * 1000) else { return };
        assert!(packed > 0);
        sent += packed;
        wire.extend(send.queue().drain(..).flatten());
        send.written();
    }
    let heard = hear(other, std::iter::once(&wire[..]));
    assert_eq!(heard.map(|heard| heard.payload), Ok(bytes.to_vec()));
}

/// What this side hears, decoded in place and into another buffer, which must be the same.
fn hear<'a>(side: Side, pieces: impl Iterator<Item = &'a [u8]>) -> Result<Heard, Fault> {
    let (mut receive, mut heard) = (Receive::new(side), Heard::default());
    let mut copying = Receive::new(side);
    for piece in pieces {
        let (mut bytes, mut notes) = (BytesMut::from(piece), Notes::default());
        let (mut copied, mut others) = (BytesMut::new(), Notes::default());
        let kept = receive.decode(&mut bytes, &mut notes);
        let copy = copying.decode_into(piece, &mut copied, &mut others);
        assert_eq!(kept.err(), copy.err());
        let kept = kept?;
        assert_eq!(bytes[..kept], copied[..]);
        assert_eq!(notes.closed, others.closed);
        heard.payload.extend_from_slice(&bytes[..kept]);
        heard.ping = notes.ping.map(|ping| ping.bytes().to_vec()).or(heard.ping);
        heard.closed = notes.closed.or(heard.closed);
    }
    Ok(heard)
}

/// Reads `data` as the head of a request and of an answer.
pub fn heads(data: &[u8]) {
    handshake::fuzz(data);
}

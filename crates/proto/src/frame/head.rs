//! The 8-byte head of every frame.
//!
//! ```text
//!  0        1                  4                    8
//!  | flags  | length, u24 BE   | stream, u32 BE     | `length` bytes …
//!  | + kind |
//! ```
//! `length` counts everything behind the head, so a frame can be skipped without being understood.

use crate::StreamId;

/// Bytes of a head.
pub const HEAD: usize = 8;

/// Most payload bytes of one DATA or CONTROL frame (protocol decision 1).
pub const MAX_PAYLOAD: usize = 1 << 20;

/// Longest body of an OPEN: a target of 255 + 6 bytes, an address, and room for later fields.
pub const MAX_OPEN: usize = 1024;

/// DATA, CONTROL and FIN start with the low half of their offset.
pub(crate) const OFFSET_LENGTH: usize = 4;

/// Longest body of one RESUME frame; a longer list continues in the next one.
pub(crate) const MAX_RESUME: usize = 16 << 10;

/// Flag of any kind: a receiver that does not know the kind skips the frame.
const FLAG_IGNORABLE: u8 = 0x80;
/// Flag of CREDIT: the sender has seen the peer's FIN or RESET.
pub(crate) const FLAG_ACK_END: u8 = 0x40;
/// Flag of DATA: the sender has memory for little more and waits for CREDIT.
pub(crate) const FLAG_WAITING: u8 = 0x40;
/// Flag of RESUME: the list goes on in the next frame.
pub(crate) const FLAG_MORE: u8 = 0x40;
/// The bits of the first byte that are the kind.
const KIND_MASK: u8 = 0x1f;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Opens a stream.
    Open = 1,
    /// Bytes of a stream.
    Data = 2,
    /// No more bytes.
    Fin = 3,
    /// The sender's direction is aborted.
    Reset = 4,
    /// The sender wants no more bytes.
    Stop = 5,
    /// How far the peer may send, and what was consumed.
    Credit = 6,
    /// A datagram of a flow. Only where the feature Flows is in use.
    Datagram = 7,
    /// Asks for a PONG.
    Ping = 8,
    /// Answers a PING.
    Pong = 9,
    /// The receiver's view of all streams after a carrier changed.
    Resume = 10,
    /// No further streams; or the link ends.
    GoAway = 11,
    /// Bytes of the control stream.
    Control = 12,
}

impl Kind {
    const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            1 => Self::Open,
            2 => Self::Data,
            3 => Self::Fin,
            4 => Self::Reset,
            5 => Self::Stop,
            6 => Self::Credit,
            7 => Self::Datagram,
            8 => Self::Ping,
            9 => Self::Pong,
            10 => Self::Resume,
            11 => Self::GoAway,
            12 => Self::Control,
            _ => return None,
        })
    }
}

/// A decoded head. `kind` is `None` for an unknown kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it is; `None` when this version does not know it.
    pub kind: Option<Kind>,
    /// The flag bits (0xe0).
    pub flags: u8,
    /// Bytes behind the head.
    pub length: usize,
    /// Which stream; 0 for frames of the link.
    pub stream: StreamId,
}

impl Head {
    /// A head of this version.
    #[must_use]
    pub const fn new(kind: Kind, flags: u8, length: usize, stream: StreamId) -> Self {
        Self { kind: Some(kind), flags, length, stream }
    }

    /// Whether a receiver that does not know the kind may skip the frame.
    #[must_use]
    pub const fn is_ignorable(self) -> bool {
        self.flags & FLAG_IGNORABLE != 0
    }

    /// The bytes on the wire. `length` is below 2^24 by construction of all callers.
    #[must_use]
    pub fn encode(self) -> [u8; HEAD] {
        let kind = self.kind.map_or(0, |kind| kind as u8);
        let [_, l0, l1, l2] = u32::try_from(self.length).unwrap_or(u32::MAX).to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.raw().to_be_bytes();
        [kind | self.flags, l0, l1, l2, s0, s1, s2, s3]
    }

    /// Reads a head; every pattern of bits is one.
    #[must_use]
    pub fn decode(raw: [u8; HEAD]) -> Self {
        let [first, l0, l1, l2, s0, s1, s2, s3] = raw;
        Self {
            kind: Kind::from_raw(first & KIND_MASK),
            flags: first & !KIND_MASK,
            length: crate::offset::memory(u32::from_be_bytes([0, l0, l1, l2]).into()),
            stream: StreamId::new(u32::from_be_bytes([s0, s1, s2, s3])),
        }
    }
}

/// Writes the 12 bytes in front of a payload of DATA or CONTROL, in place.
pub(crate) fn write_data_head(
    room: &mut [u8],
    (kind, flags): (Kind, u8),
    stream: StreamId,
    low: u32,
    n: usize,
) {
    let head = Head::new(kind, flags, n + OFFSET_LENGTH, stream).encode();
    for (to, from) in room.iter_mut().zip(head.into_iter().chain(low.to_be_bytes())) {
        *to = from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_first_byte_survives_decode_and_encode_of_known_kinds() {
        for first in 0..=255u8 {
            let head = Head::decode([first, 1, 2, 3, 4, 5, 6, 7]);
            assert_eq!(head.length, 0x01_0203);
            assert_eq!(head.stream.raw(), 0x0405_0607);
            if head.kind.is_some() {
                assert_eq!(head.encode(), [first, 1, 2, 3, 4, 5, 6, 7]);
            }
        }
    }

    #[test]
    fn the_ignorable_bit_is_told_apart_from_the_kind() {
        assert!(Head::decode([0x9f, 0, 0, 0, 0, 0, 0, 0]).is_ignorable());
        assert!(!Head::decode([0x1f, 0, 0, 0, 0, 0, 0, 0]).is_ignorable());
    }
}

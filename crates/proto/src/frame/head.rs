//! The 8-byte header of every frame.
//!
//! ```text
//!  0        1                  4                    8
//!  | flags  | length, u24 BE   | stream, u32 BE     | `length` bytes …
//!  | + kind |
//! ```
//! `length` counts everything after the header, so a receiver can skip a frame of unknown kind.

use crate::StreamId;

/// Length of the header, in bytes.
pub const HEAD: usize = 8;

/// Maximum payload of one DATA or CONTROL frame, in bytes (protocol decision 1).
pub const MAX_PAYLOAD: usize = 1 << 20;

/// Maximum body of an OPEN: a target of up to 300 bytes, an address, and room for later fields.
pub const MAX_OPEN: usize = 1024;

/// DATA, CONTROL and FIN start with the low half of their offset.
pub(crate) const OFFSET_LENGTH: usize = 4;

/// Maximum body of one RESUME frame; a longer list continues in the next frame.
pub(crate) const MAX_RESUME: usize = 16 << 10;

/// Flag of any kind: a receiver that does not know the kind skips the frame.
const FLAG_IGNORABLE: u8 = 0x80;
/// Flag of CREDIT: the sender has seen the peer's FIN or RESET.
pub(crate) const FLAG_ACK_END: u8 = 0x40;
/// Flag of DATA: the sender is nearly out of memory and waits for CREDIT.
pub(crate) const FLAG_WAITING: u8 = 0x40;
/// Flag of RESUME: the list continues in the next frame.
pub(crate) const FLAG_MORE: u8 = 0x40;
/// The bits of the first byte that encode the kind.
const KIND_MASK: u8 = 0x1f;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Opens a stream.
    Open = 1,
    /// Bytes of a stream.
    Data = 2,
    /// The end of the sender's direction.
    Fin = 3,
    /// The sender's direction is aborted.
    Reset = 4,
    /// The sender discards further bytes.
    Stop = 5,
    /// The offset up to which the peer may send, and the offset up to which bytes were consumed.
    Credit = 6,
    /// A datagram of a flow. Only if the feature Flows is negotiated.
    Datagram = 7,
    /// Requests a PONG.
    Ping = 8,
    /// Answers a PING.
    Pong = 9,
    /// The receiver's view of all streams after a carrier changed.
    Resume = 10,
    /// No new streams, or the link ends.
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

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The kind of the frame; `None` if this version does not know it.
    pub kind: Option<Kind>,
    /// The flag bits (0xe0).
    pub flags: u8,
    /// Bytes after the header.
    pub length: usize,
    /// The stream of the frame; 0 for frames of the link.
    pub stream: StreamId,
}

impl Head {
    /// A header with a known kind.
    #[must_use]
    pub const fn new(kind: Kind, flags: u8, length: usize, stream: StreamId) -> Self {
        Self { kind: Some(kind), flags, length, stream }
    }

    /// Whether a receiver that does not know the kind may skip the frame.
    #[must_use]
    pub const fn is_ignorable(self) -> bool {
        self.flags & FLAG_IGNORABLE != 0
    }

    /// Encodes the header. All callers keep `length` below 2^24.
    #[must_use]
    pub fn encode(self) -> [u8; HEAD] {
        let kind = self.kind.map_or(0, |kind| kind as u8);
        let [_, l0, l1, l2] = u32::try_from(self.length).unwrap_or(u32::MAX).to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.raw().to_be_bytes();
        [kind | self.flags, l0, l1, l2, s0, s1, s2, s3]
    }

    /// Decodes a header; every bit pattern is valid.
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

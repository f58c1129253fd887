//! The heads of FEC shards and of out-of-band datagrams, and the content of a datagram.

use super::{Conversation, bytes};

/// The length of a shard's head, in bytes: sequence id, kind, size. A parity shard has parity in
/// the place of the size.
pub const SHARD_HEAD: usize = 8;

/// The length of the head of an out-of-band datagram, in bytes: the head of a shard, and the
/// conversation.
pub const OOB_HEAD: usize = SHARD_HEAD + 4;

/// The kinds, at offset 4.
const DATA: u16 = 0xf1;
const PARITY: u16 = 0xf2;
const OOB: u16 = 0xf3;

/// The length of the size field, which the size includes.
const SIZE: u16 = 2;

/// kcp-go drops shorter datagrams. The length is the smaller one of the head of a segment and the
/// heads of an out-of-band datagram.
const LEAST: usize = 12;

/// The number of a shard. Group and position follow from it by the number of shards in a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShardId(pub u32);

/// The content of a decrypted datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// Segments without FEC. A session with FEC takes them as well.
    Segments(&'a [u8]),
    /// A shard of segments.
    Data {
        /// The number of the shard.
        id: ShardId,
        /// The size and the segments, which the parity covers.
        body: &'a [u8],
        /// The segments alone. Empty if the size exceeds the datagram.
        segments: &'a [u8],
    },
    /// A shard of parity.
    Parity {
        /// The number of the shard.
        id: ShardId,
        /// The parity.
        body: &'a [u8],
    },
    /// A datagram out of band, which is neither acknowledged nor repeated.
    OutOfBand {
        /// The session.
        conversation: Conversation,
        /// The payload.
        payload: &'a [u8],
    },
}

impl<'a> Content<'a> {
    /// The content of `datagram`. `None` if the datagram is too short, or its size is not its
    /// length.
    #[must_use]
    pub fn of(datagram: &'a [u8]) -> Option<Self> {
        if datagram.len() < LEAST {
            return None;
        }
        let id = ShardId(u32::from_le_bytes(bytes(datagram, 0)?));
        let kind = u16::from_le_bytes(bytes(datagram, 4)?);
        let body = datagram.get(6..)?;
        match kind {
            DATA => Some(Self::Data { id, body, segments: sized(body).unwrap_or_default() }),
            PARITY => Some(Self::Parity { id, body }),
            OOB => {
                let (conversation, payload) = sized(body)?.split_first_chunk()?;
                let conversation = Conversation(u32::from_le_bytes(*conversation));
                Some(Self::OutOfBand { conversation, payload })
            }
            _ => Some(Self::Segments(datagram)),
        }
    }
}

/// The part of `body` that its size states. `None` if the body is shorter. Further bytes are the
/// padding of a rebuilt shard.
#[must_use]
pub fn sized(body: &[u8]) -> Option<&[u8]> {
    let size = u16::from_le_bytes(bytes(body, 0)?);
    body.get(usize::from(SIZE)..usize::from(size))
}

/// The head of a data shard with `length` bytes of segments. `None` beyond 65,533 bytes.
#[must_use]
pub fn data_head(id: ShardId, length: usize) -> Option<[u8; SHARD_HEAD]> {
    let size = u16::try_from(length).ok()?.checked_add(SIZE)?;
    let mut head = [0; SHARD_HEAD];
    head[..4].copy_from_slice(&id.0.to_le_bytes());
    head[4..6].copy_from_slice(&DATA.to_le_bytes());
    head[6..].copy_from_slice(&size.to_le_bytes());
    Some(head)
}

/// The head of a parity shard: 6 bytes, which the parity follows.
#[must_use]
pub fn parity_head(id: ShardId) -> [u8; SHARD_HEAD - 2] {
    let mut head = [0; SHARD_HEAD - 2];
    head[..4].copy_from_slice(&id.0.to_le_bytes());
    head[4..].copy_from_slice(&PARITY.to_le_bytes());
    head
}

/// The head of an out-of-band datagram with `length` bytes of payload. `None` beyond 65,529 bytes.
#[must_use]
pub fn oob_head(conversation: Conversation, length: usize) -> Option<[u8; OOB_HEAD]> {
    let size = u16::try_from(length).ok()?.checked_add(SIZE + 4)?;
    let mut head = [0xff; OOB_HEAD];
    head[4..6].copy_from_slice(&OOB.to_le_bytes());
    head[6..8].copy_from_slice(&size.to_le_bytes());
    head[8..].copy_from_slice(&conversation.0.to_le_bytes());
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ShardId = ShardId(0x0403_0201);

    #[test]
    fn each_kind_is_read_as_it_was_written() {
        let segments = [9; 24];
        let data = [&data_head(ID, 24).unwrap()[..], &segments].concat();
        assert_eq!(data[..8], [1, 2, 3, 4, 0xf1, 0, 26, 0]);
        let read = Content::Data { id: ID, body: &data[6..], segments: &segments };
        assert_eq!(Content::of(&data), Some(read));

        let parity = [&parity_head(ID)[..], &segments].concat();
        let read = Content::Parity { id: ID, body: &segments };
        assert_eq!(Content::of(&parity), Some(read));

        let conversation = Conversation(7);
        let oob = [&oob_head(conversation, 3).unwrap()[..], b"abc"].concat();
        let read = Content::OutOfBand { conversation, payload: b"abc" };
        assert_eq!(Content::of(&oob), Some(read));

        assert_eq!(Content::of(&segments), Some(Content::Segments(&segments)));
    }

    #[test]
    fn a_size_beyond_the_datagram_is_refused() {
        let conversation = Conversation(7);
        let oob = [&oob_head(conversation, 4).unwrap()[..], b"abc"].concat();
        assert_eq!(Content::of(&oob), None);
        let data = [&data_head(ID, 5).unwrap()[..], b"abcd"].concat();
        let Some(Content::Data { segments, .. }) = Content::of(&data) else { panic!("{data:?}") };
        assert!(segments.is_empty());
        for length in 0..LEAST {
            assert_eq!(Content::of(&oob[..length]), None);
        }
        assert_eq!(sized(&[1, 0, 5, 5]), None, "a size that does not count itself");
        assert_eq!(data_head(ID, 65_534), None);
        assert_eq!(oob_head(conversation, 65_530), None);
    }
}

//! The kind of a data shard, and the size in front of it.

/// Length of the size field in front of each data shard, in bytes. The size is a part of the sum,
/// so that shards may differ in length.
pub const SIZE: usize = 2;

/// The bit of the size that marks a datagram. No content of a packet is long enough to need this
/// bit.
const IS_DATAGRAM: u16 = 1 << 15;

/// The kind of a data shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Load {
    /// Segments of the stream.
    Segments,
    /// A datagram of the user.
    Datagram,
}

impl Load {
    /// The size in front of a body. `None` if the body is too long.
    pub(super) fn size(self, length: usize) -> Option<[u8; SIZE]> {
        let size = u16::try_from(length).ok().filter(|size| size & IS_DATAGRAM == 0)?;
        let bit = if self == Self::Datagram { IS_DATAGRAM } else { 0 };
        Some((size | bit).to_be_bytes())
    }

    /// The kind and the length that a size encodes.
    pub(super) fn of(size: [u8; SIZE]) -> (Self, usize) {
        let size = u16::from_be_bytes(size);
        let load = if size & IS_DATAGRAM == 0 { Self::Segments } else { Self::Datagram };
        (load, usize::from(size & !IS_DATAGRAM))
    }
}

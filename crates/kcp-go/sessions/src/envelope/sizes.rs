//! The room in a datagram for segments, payload and out-of-band messages.

use crate::wire::{HEAD, OOB_HEAD, SHARD_HEAD};

/// kcp-go reads datagrams into buffers of this length. A longer datagram is cut, and then refused.
pub const LONGEST_DATAGRAM: usize = 1500;

/// The least room for the segments of a datagram: a head and a byte.
const LEAST: usize = HEAD + 1;

/// The room in datagrams of one length. All sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// A whole datagram: the payload of UDP.
    pub datagram: usize,
    /// The segments of a datagram (`mtu` of the state machine).
    pub segments: usize,
    /// The payload of the only segment of a datagram (`mss`).
    pub payload: usize,
    /// The payload of an out-of-band datagram. 0 without FEC, which such datagrams need.
    pub out_of_band: usize,
}

/// No byte of payload fits into a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a datagram of {datagram} bytes leaves no room for payload")]
pub struct TooSmall {
    /// The length of a datagram.
    pub datagram: usize,
}

impl Sizes {
    /// The sizes for datagrams of `mtu` bytes, at most [`LONGEST_DATAGRAM`], with `overhead` bytes
    /// of an envelope.
    ///
    /// # Errors
    ///
    /// There is no room for a byte of payload.
    pub fn new(mtu: usize, overhead: usize, with_fec: bool) -> Result<Self, TooSmall> {
        let datagram = mtu.min(LONGEST_DATAGRAM);
        let shard = if with_fec { SHARD_HEAD } else { 0 };
        let segments = datagram
            .checked_sub(overhead + shard)
            .filter(|segments| *segments >= LEAST)
            .ok_or(TooSmall { datagram })?;
        // With FEC the head of a shard is already subtracted.
        let out_of_band = if with_fec { segments - (OOB_HEAD - SHARD_HEAD) } else { 0 };
        Ok(Self { datagram, segments, payload: segments - HEAD, out_of_band })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_kcp_go() {
        // A legacy cipher takes 20 bytes, AES-GCM 28.
        for (overhead, with_fec, segments, payload) in [
            (0, false, 1350, 1326),
            (0, true, 1342, 1318),
            (20, false, 1330, 1306),
            (20, true, 1322, 1298),
            (28, false, 1322, 1298),
            (28, true, 1314, 1290),
        ] {
            let sizes = Sizes::new(1350, overhead, with_fec).unwrap();
            assert_eq!((sizes.segments, sizes.payload), (segments, payload));
            assert_eq!(sizes.out_of_band, if with_fec { segments - 4 } else { 0 });
        }
    }

    #[test]
    fn a_datagram_has_room_for_a_byte_and_at_most_1500() {
        assert_eq!(Sizes::new(9000, 20, true), Sizes::new(1500, 20, true));
        assert_eq!(Sizes::new(33 + 28, 28, true).unwrap().payload, 1);
        assert_eq!(Sizes::new(32 + 28, 28, true), Err(TooSmall { datagram: 60 }));
        assert!(Sizes::new(0, 28, true).is_err());
    }
}

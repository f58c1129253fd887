//! The keys that seal the packets of one connection. The handshake derives them.

use std::fmt::Debug;

use crate::Refused;

use super::wire::PacketNumber;

/// The keys of both directions of a connection at one end. The nonce is computed from the packet
/// number, which is never used twice in a direction. The keys decide when they are updated: the
/// session queries the phase before it seals, and reports acknowledged packets.
///
/// A session owns its keys, so that no method needs a lock.
pub trait Keys: Debug + Send + Sync {
    /// Length of the tag after the content, in bytes.
    fn tag(&self) -> usize;

    /// The phase of the keys with which the next call of [`seal`](Self::seal) seals packet
    /// `number`. An update of the keys happens here.
    fn phase(&mut self, number: PacketNumber) -> bool {
        _ = number;
        false
    }

    /// Records that the peer has acknowledged packet `number`, so it has the keys that sealed this
    /// packet.
    fn acknowledged(&mut self, number: PacketNumber) {
        _ = number;
    }

    /// Encrypts `text` in place and fills `tag`, which has [`tag`](Self::tag) bytes; `head` is
    /// authenticated with them.
    ///
    /// # Errors
    ///
    /// The number exceeds the limit of the keys. The packet must not be sent.
    fn seal(
        &mut self,
        number: PacketNumber,
        head: &[u8],
        text: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Refused>;

    /// Decrypts a content with its tag in place, and returns the length of the content.
    ///
    /// # Errors
    ///
    /// The peer did not seal this content with this number, header and phase. The keys are
    /// unchanged.
    fn open(
        &mut self,
        phase: bool,
        number: PacketNumber,
        head: &[u8],
        text_and_tag: &mut [u8],
    ) -> Result<usize, Refused>;
}

//! What seals packets: the keys of one connection, which the handshake makes.

use std::fmt::Debug;

use crate::Refused;

use super::wire::PacketNumber;

/// The keys of both directions of a connection at one end. The nonce is made of the packet number,
/// which is never used twice in a direction. The keys decide when they are updated: the session asks
/// for the phase before it seals, and tells which packets were acknowledged.
///
/// A session owns its keys, so that no method needs a lock.
pub trait Keys: Debug + Send + Sync {
    /// Bytes behind the content.
    fn tag(&self) -> usize;

    /// The phase of the keys with which [`seal`](Self::seal) seals packet `number`, which is called
    /// next. Keys that are to be updated are updated here.
    fn phase(&mut self, number: PacketNumber) -> bool {
        _ = number;
        false
    }

    /// The peer has acknowledged packet `number`: it has the keys that sealed it.
    fn acknowledged(&mut self, number: PacketNumber) {
        _ = number;
    }

    /// Encrypts `text` in place and fills `tag`, which has [`tag`](Self::tag) bytes; `head` is
    /// authenticated with them.
    ///
    /// # Errors
    ///
    /// The number is beyond what the keys may seal; nothing may be sent.
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
    /// It is not what the peer sealed under this number, head and phase. The keys are as they were.
    fn open(
        &mut self,
        phase: bool,
        number: PacketNumber,
        head: &[u8],
        text_and_tag: &mut [u8],
    ) -> Result<usize, Refused>;
}

//! The layout of a decrypted datagram of kcp-go. All integers are little endian.
//!
//! A datagram holds one of the following contents. The 16-bit word at offset 4 shows which
//! ([`Content`]):
//!
//! ```text
//! segments         head 24, payload, head 24, payload, …
//! data shard       sequence id 4, 0x00f1, size 2, segments
//! parity shard     sequence id 4, 0x00f2, parity of size and segments
//! out of band      0xffffffff,    0x00f3, size 2, conversation 4, payload
//! ```
//!
//! A segment cannot be mistaken for a shard, because its command (81 to 84) is at offset 4.

mod content;
mod number;
mod segment;

pub use content::{
    Content, OOB_HEAD, SHARD_HEAD, ShardId, data_head, oob_head, parity_head, sized,
};
pub use kcp::Sn;
pub use number::{Conversation, Millis};
pub use segment::{Command, HEAD, Head, Malformed, Segment, Segments};

/// The `N` bytes of `from` from offset `at` on. `None` if `from` is too short.
fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..)?.first_chunk().copied()
}

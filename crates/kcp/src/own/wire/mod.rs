//! The layout of the project's own packets. All integers are big endian.
//!
//! ```text
//! packet      header 17: type 1, connection id 8, packet number 8; AEAD(content); the header is
//!             associated data. Type 0x50 and 0x51: sealed, the lowest bit is the phase of the
//!             keys; 0x52: of the bootstrap, which carries the TLS handshake
//! content     flags 1, [pad 3], [acknowledgement], body to the end
//! flags       1, 2, 4: the body; 8: has an acknowledgement; 16: requests one at once; 32: the
//!             acknowledgement has congestion marks; 64: has padding
//! body        0 nothing
//!             1 segments                                     unprotected
//!             2 group 2, index 1, segments                   data shard
//!             3 group 2, index 1, k 1, parity                parity shard; bit 128 of k: final
//!             4 payload                                      datagram, unprotected
//!             5 group 2, index 1, payload                    data shard that is a datagram
//!             6 signal 1, 8 bytes                            0: path challenge, 1: its response
//!               signal 1, code 2, reason 0 to 200            2: close
//!               signal 1, padding                            3: probe of the packet size
//! segments    sn 4, then for each: form 1, [fragments 1], [offset 2], [length 2], payload
//! parity      sum of: size 2, body of a data shard; the highest bit of a size is 1 for a datagram
//! form        1 has a length, 2 has fragments, 4 ends the stream and has no payload, 8 is a part
//!             of a segment from an offset on, whose highest bit is set if more parts follow
//! ```
//!
//! Fields of a kcp-go segment header that this header does not need: the conversation is the
//! connection id, and the command follows from the body. `una` and the window are in the
//! acknowledgement. Acknowledgements contain packet numbers, so there is no timestamp. Segments of
//! a packet have consecutive numbers, and the last segment ends with the packet.
//!
//! | | kcp-go, AES-128-GCM | here |
//! |---|---|---|
//! | headers inside of the envelope, per full packet of a group | 32 | 9 |
//! | the same without FEC | 24 | 6 |
//! | payload of a full packet of 1,472 bytes in a group | 1,412 | 1,427 |
//! | the same without FEC | 1,420 | 1,427 |
//! | an acknowledgement of one packet, with its envelope | 52 | 49 |
//! | of 90 packets among 100 | 2,216 (two datagrams) | 69 |
//!
//! The envelope has 33 bytes here (header 17, tag 16) and 28 bytes in kcp-go (nonce 12, tag 16). A
//! segment has the same size with and without FEC, because a retransmission may or may not use FEC.
//! 3 bytes stay free in a group, which the header of the parity needs, and 6 bytes stay free
//! without a group. The padding fills the 3 bytes of a full data shard, which then has the length
//! of its parity: one system call sends packets of one length only.

mod ack;
mod content;
mod head;
mod number;
mod reader;
mod segments;

pub use ack::{Ack, RANGES, REBUILT, Ranges};
pub use content::{Body, Content, Control, PAD, PARITY_HEAD, REASON, SHARD_HEAD, Shard};
pub use head::{PACKET_HEAD, PacketHead, PacketKind, peek};
pub use number::{ConnectionId, Group, PacketNumber};
pub use segments::{PART_HEAD, Part, RUN_HEAD, Run, SEGMENT_HEAD, Segment, put_segment};

/// The bytes are not a packet of this project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet is malformed")]
pub struct Malformed;

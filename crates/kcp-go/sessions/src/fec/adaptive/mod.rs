//! Decides how much parity is sent to a stock peer, and when.
//!
//! The ratio is fixed: a peer that receives another ratio stops decoding until it has detected the
//! new ratio. But ids of parity may stay unused, which looks like loss, and a group may be filled
//! with shards without a meaning. So three decisions are free:
//!
//! 1. **How much parity of a group is sent**, from none to all. [`Controller`] adapts to the loss.
//! 2. **When a group ends.** kcp-go waits until traffic has filled the group, so that sparse
//!    traffic and the end of a transfer are never protected. [`EarlyClose`] has a timer and a
//!    budget, because fillers cost datagrams: nine datagrams if one of ten shards carries data.
//! 3. **Which datagrams are shards.** Datagrams with acknowledgements alone are sent without the
//!    head of a shard. The session decides this.
//!
//! # What is known of the loss
//!
//! The peer does not report repairs. A packet that the peer rebuilds is acknowledged like other
//! packets, but late: after packets that were sent later. So a sender sees
//!
//! - packets that it had to send again, which were lost and not rebuilt;
//! - packets that were *overtaken*: their first copy was acknowledged after packets that were sent
//!   much later. They were rebuilt, or the path reorders.
//!
//! Groups without parity distinguish the two cases, because no packet is rebuilt in them: an
//! overtaken packet was reordered. So one group of [`PROBE`] has no parity while the other groups
//! have parity, and the driver reports packets of groups without parity separately ([`Report`]).
//!
//! # How much parity follows
//!
//! A packet stays lost if at least `parity` other packets of its group are lost with it. The
//! controller uses the smallest parity that keeps this share below [`Limits::residual`]. At a low
//! loss parity costs more than retransmissions, because a retransmission costs one packet and
//! parity costs one packet per group. So the redundancy is limited to the loss, `p / (1 - p)`, plus
//! [`Limits::margin`]. It rises at once, and falls by one shard after a while, so that a following
//! burst is covered. It begins with all parity, because a peer that has to detect the ratio needs
//! several hundred ids without a hole.

mod controller;
mod early;

pub use controller::{Controller, Limits, PROBE, Report, Tally};
pub use early::EarlyClose;

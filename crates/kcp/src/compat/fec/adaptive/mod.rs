//! How much parity a stock peer is sent, and when.
//!
//! The ratio is fixed: a peer that sees another one stops decoding until it has found it. But ids of
//! parity may pass unused, which looks like loss, and a group may be filled up with shards that mean
//! nothing. So three things are free:
//!
//! 1. **How much parity of a group is sent**, 0 to all of it. [`Controller`] follows the loss.
//! 2. **When a group ends.** kcp-go waits until traffic has filled it, so that sparse traffic and
//!    the tail of a transfer are never protected. [`EarlyClose`] has a timer and a budget: fillers
//!    cost datagrams, nine of them where one of ten shards carries data.
//! 3. **What is a shard at all.** Datagrams that only acknowledge leave without a shard's head. That
//!    is the session's business.
//!
//! # What is known of the loss
//!
//! The peer says nothing about it. A packet that the peer rebuilds is acknowledged like any other,
//! only late: after packets that were sent behind it. So a sender sees
//!
//! - packets that it had to send again: lost, and not rebuilt;
//! - packets that were *overtaken*: acknowledged for their first copy, after packets that were sent
//!   distinctly later. They were rebuilt, or the path reorders.
//!
//! Groups without parity tell the two apart, since nothing is rebuilt in them: what is overtaken
//! there is reordered. Hence one group of [`PROBE`] goes bare while the others have parity, and the
//! driver reports packets of bare groups apart ([`Report`]).
//!
//! # How much parity follows
//!
//! A packet stays lost when it is lost itself and at least `parity` of the others of its group are.
//! The controller takes the least parity that keeps this below [`Limits::residual`]. Parity is worth
//! less than it costs where the loss is low, since a retransmission costs one packet and parity
//! costs one per group; so the redundancy is capped at what the loss alone needs, `p / (1 - p)`,
//! and [`Limits::margin`]. It rises at once, and falls by one shard after a while, so that a burst
//! finds it raised. It begins with all parity: several hundred ids without a hole are what a peer
//! needs that must find the ratio itself.

mod controller;
mod early;

pub use controller::{Controller, Limits, PROBE, Report, Tally};
pub use early::EarlyClose;

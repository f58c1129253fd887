//! Groups of shards whose number follows the path: any `k` data shards get any number of parity
//! shards, and both are known only when the group ends.
//!
//! The code is Reed-Solomon with a Cauchy matrix ([`coefficient`]): the factor of data shard `i` in
//! parity shard `j` depends on neither `k` nor the count of parity. So the sum is made while data
//! passes, parity may leave when ever it is useful, and more data may follow in the same group: a
//! later parity shard then covers it as well, and what is left of the earlier. Each parity shard
//! tells how many data shards were added up (`k`), and whether the group has ended.
//!
//! Sparse traffic gets its parity at once, and each further parity shard protects all packets before
//! it once more, as a sliding window does; a bulk transfer gets groups of [`DATA_MAX`] shards. What
//! is protected by how much is decided by [`Policy`].

mod code;
mod decoder;
mod encoder;
mod policy;
#[cfg(test)]
mod tests;

pub use code::{DATA_MAX, PARITY_MAX, coefficient};
pub use decoder::{Counters, Decoder, Rebuilt};
pub use encoder::{Encoder, Load, Parity, SIZE};
pub use policy::{Policy, Protection};

//! Groups of shards that adapt to the path: a group has a variable number `k` of data shards and a
//! variable number of parity shards. Both numbers are known only at the end of the group.
//!
//! The code is Reed-Solomon with a Cauchy matrix ([`coefficient`]): the factor of data shard `i` in
//! parity shard `j` depends on neither `k` nor the count of parity. So the sum is computed while
//! data is sent, and parity may be sent at any time. More data may follow in the same group: a
//! later parity shard covers the later data as well as the earlier data. Each parity shard states
//! the number of data shards in its sum (`k`), and whether the group has ended.
//!
//! Sparse traffic gets parity at once. Each additional parity shard protects all packets before it
//! again, as a sliding window does. A bulk transfer gets groups of [`DATA_MAX`] shards. [`Policy`]
//! decides the amount of parity.

mod code;
mod decoder;
mod encoder;
mod load;
mod policy;
#[cfg(test)]
mod tests;

pub use code::{DATA_MAX, PARITY_MAX, coefficient};
pub use decoder::{Counters, Decoder, Rebuilt};
pub use encoder::{Encoder, Parity};
pub use load::{Load, SIZE};
pub use policy::{Policy, Protection};

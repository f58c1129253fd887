//! The encryption of the packets of crate `kcp`, by aws-lc.
//!
//! | module or type | content |
//! |---|---|
//! | [`SealKeys`] | the keys of packets, one for each direction |
//! | [`RollingKeys`] | such keys that are updated while the connection lives |
//! | [`Algorithm`] | the algorithms, which datagrams of kcp-go have as well |
//! | `algorithm`, `own` | the files of these types |

mod algorithm;
mod own;

pub use algorithm::Algorithm;
pub use own::{DirectionKey, RollingKeys, SealKeys, UPDATE_AFTER};

//! The project's own packets, between two ends that both are of this project.
//!
//! They carry the same streams as kcp-go's, and do without its costs: heads are a third, each
//! transmission is known by its packet number, acknowledgements stand outside of FEC and tell what
//! the path has lost in truth, and FEC follows that loss.
//!
//! | module | content |
//! |---|---|
//! | [`wire`] | the layout |
//! | [`fec`] | groups of shards, and how much parity they get |
//! | [`session`] | the stream: packets in and out, one timer |
//! | [`Keys`] | what seals packets; the handshake is outside |
//! | [`Replay`] | no packet is taken twice |

pub mod fec;
#[doc(hidden)]
pub mod fuzz;
mod keys;
mod replay;
pub mod session;
pub mod wire;

pub use keys::Keys;
pub use replay::{REPLAY_WINDOW, Replay};
pub use session::{Closed, Config, Counters, Heard, PathUse, Session, Transmit, Unsent};

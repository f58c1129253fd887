//! The project's own packets, for two ends of this project.
//!
//! They carry the same streams as the packets of kcp-go at a lower cost. Headers have a third of
//! the size, and each transmission has its own packet number. Acknowledgements are not protected by
//! FEC and show the real loss of the path, and FEC adapts to that loss.
//!
//! | module | content |
//! |---|---|
//! | [`wire`] | the layout |
//! | [`fec`] | groups of shards, and how much parity they get |
//! | [`session`] | the stream: packets in and out, one timer |
//! | `keys` | [`Keys`]: seals packets; the handshake is outside |
//! | `replay` | [`Replay`]: no packet is accepted twice |
//! | `fuzz` | the harness of the fuzz target |

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

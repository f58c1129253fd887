//! The client's half. A client maintains one link after another, and each link survives the loss of
//! its carriers.
//!
//! ```text
//!   connect --> greet, new link --> watch --carrier lost--> connect, greet, attach --+
//!      ^                             |  ^------------------------------------------- +
//!      +--ended, expired, forgotten--+  |--silence of 3 s: the next path replaces it
//!      |                             |  +--every 60 s: a preferred path replaces it; with a
//!      |                             |  |  standby after growing pauses, or on request of a path
//!      |                             |  +--with a standby: silence of 3 s or loss: it takes over
//!      |                             |  +--low rate: the next path is tried, the faster is kept
//!      +--asked to retire------------+
//!           the old link is supervised until its last stream ends
//! ```
//! Where the paths are chosen by measurement ([`PathChoice`]), the link tries no path on its own
//! while its path works: it moves on command, and dials a path as a probe on command.
//!
//! A link that received GOAWAY takes streams until its successor is live. So there is always a link
//! that takes streams.

mod attempt;
mod enroll;
mod error;
mod keeper;
mod moving;
mod plan;
mod preference;
mod probing;
mod rates;
mod redial;
mod run;
mod standby;
mod watch;

pub use enroll::enroll;
pub use error::DialError;
pub use plan::{Client, OnLink, PathChange, PathChoice, Report, SPREAD_MAX, StandbyPath};
pub use redial::Redial;
pub use run::run;

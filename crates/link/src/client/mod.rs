//! The client's half: one link after another for ever, each kept alive over carriers that come
//! and go.
//!
//! ```text
//!   connect --> greet, new link --> watch --carrier lost--> connect, greet, attach --+
//!      ^                             |  ^------------------------------------------- +
//!      +--ended, expired, forgotten--+  |--silence of 3 s: the next path replaces it
//!      |                             |  +--every 60 s: a preferred path replaces it
//!      |                             |  +--little carried: the next path is tried, the quicker one kept
//!      +--told to go away------------+
//!           the old link is watched on, until its last stream ends
//! ```
//! A link that is told to go takes streams until its successor lives, so that there is always one
//! that does.

mod attempt;
mod enroll;
mod error;
mod keeper;
mod plan;
mod rates;
mod run;
mod watch;

pub use enroll::enroll;
pub use error::DialError;
pub use plan::{Client, OnLink, Report};
pub use run::run;

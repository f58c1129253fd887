//! The log of a daemon: for a person, as JSON, in a file or in the journal.
//!
//! | module | what |
//! |---|---|
//! | `log` | what is logged, where to, and how it is changed while the daemon runs |
//! | `levels` | which levels and directives are accepted |
//! | `file` | a log file that does not grow without end |
//! | `journal` | the journal of systemd |
//! | `repeat` | at most one line per key and 10 s for what a peer can cause at will |

mod file;
mod journal;
mod levels;
mod log;
mod repeat;

pub use journal::trouble;
pub use levels::levels;
pub use log::{AUDIT, Format, Settings, change, current, follow, start};
pub use repeat::RepeatLimit;

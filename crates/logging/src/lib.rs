//! The log of a daemon: text or JSON, on standard error, in a file or in the journal.
//!
//! | module | content |
//! |---|---|
//! | `log` | settings, start and changes of the log |
//! | `levels` | the check of levels and directives |
//! | `file` | a log file of limited size |
//! | `journal` | the journal of systemd |
//! | `access` | the access log: one line per ended visitor |
//! | `requests` | the log of requests: one line per request of HTTP |
//! | `named` | the name of the daemon in each line |
//! | `fields` | message and fields without control characters |
//! | `quota` | the number of lines that a peer may cause |
//! | `recent` | the last lines, in memory |
//! | `repeat` | at most one line per key and 10 s for events that a peer can cause at will |

mod access;
mod fields;
mod file;
mod journal;
mod levels;
mod log;
mod named;
mod quota;
mod recent;
mod repeat;
pub mod requests;

pub use access::{ACCESS, Access, access, follow_access, has_access_log};
pub use journal::trouble;
pub use levels::levels;
pub use log::{Format, NAME_VARIABLE, Settings, change, current, follow, start};
pub use ops::AUDIT;
pub use quota::{left_out, tell_left_out};
pub use recent::recent;
pub use repeat::RepeatLimit;

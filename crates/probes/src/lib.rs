//! `tunnel ping` and `tunnel speedtest`: measurements of the tunnel itself, without a service.
//!
//! ```text
//!   command line --control socket--> daemon --OPEN, one stream per link--> its peer
//!        `show`                   `ping`, `near`                            `far`
//! ```
//!
//! | module | content |
//! |---|---|
//! | `ping` | round trips over all links, by a client or a server |
//! | `near` | the client's end of a speed test, one at a time |
//! | `far` | the other end: echo, sink and source; a client serves the echo, and tests of its targets |
//! | `test` | a server requests a test of the targets of a service from a client |
//! | `signals` | the outlet of a measuring stream: counts, keeps the last bytes, wakes its task |
//! | `send` | sends at full speed, and samples the reason of each block |
//! | `busy` | the share of time in which this thread ran or waited for a processor |
//! | `verdict` | from counts to the limit that bounded a transfer |
//!
//! A measurement is a stream like any other, but it has no socket, and it is bounded in time and
//! number. A ping has the highest priority, a speed test the lowest. A server serves the speed test
//! of one client at a time.

mod busy;
mod far;
mod near;
mod ping;
mod send;
mod signals;
mod test;
mod verdict;

use std::time::Duration;

pub use far::{serve, serve_echo, serve_test};
pub use near::speedtest;
pub use ping::{PingRotation, ping as ping_links, ping_clients};
pub use test::ask_client;

/// The time after the end of a test within which its last bytes and its tally may arrive. A window
/// of 16 MiB takes 13 s at 10 Mbit/s.
const GRACE: Duration = Duration::from_secs(15);

/// The maximum length of the outcome of a test of targets, in bytes.
const TESTED: u64 = 16 << 10;

//! `tunnel ping` and `tunnel speedtest`: what the tunnel itself can do, without a service behind
//! it.
//!
//! ```text
//!   command line --control socket--> daemon --OPEN of a measurement, one stream per link--> its peer
//!        `show`                   `ping`, `near`                                            `far`
//! ```
//!
//! | module | what |
//! |---|---|
//! | `ping` | round trips over all links, by a client or a server |
//! | `near` | the client's end of a speed test, one at a time |
//! | `far` | the other end: echo, sink and source, bounded in time and number; of a client only the echo |
//! | `signals` | the outlet of a measuring stream: counts, keeps the last bytes, wakes its task |
//! | `send` | bytes as fast as they go, and why they do not go faster |
//! | `busy` | how much of its time this thread ran or waited for a processor |
//! | `verdict` | from counts to the limit that was hit |
//!
//! A measurement is a stream like any other - opened, counted, its priority the lowest - but for
//! the sockets. A server serves the speed test of one client at a time.

mod busy;
mod far;
mod near;
mod ping;
mod send;
mod signals;
mod verdict;

use std::time::Duration;

pub(crate) use far::{serve, serve_echo};
pub(crate) use near::speedtest;
pub(crate) use ping::{Turn, ping as ping_links, ping_clients};

/// How long after its end the last bytes of a test and its tally may take: a window of 16 MiB at
/// 10 Mbit/s is 13 s.
const GRACE: Duration = Duration::from_secs(15);

//! The journal of systemd. A line reaches it in one of two ways.
//!
//! ```text
//!   standard error   systemd makes an entry of each line; `<N>` in front of it is its priority
//!   native           entries with fields, sent to journald's own socket (`log.format: journald`)
//! ```
//!
//! This crate has its own native layer instead of tracing-journald, for three reasons.
//! tracing-journald puts the fields of an event only beside the MESSAGE, where `journalctl` does
//! not show them. It waits without a limit for a blocked journal. It drops entries that it cannot
//! send, and does not report the loss.
//!
//! | module | content |
//! |---|---|
//! | `native` | an event as a journal entry |
//! | `socket` | sends entries to a journald that may hang, disappear and return |

mod native;
mod socket;

use std::env;
use std::fmt::{self, Write as _};
use std::io;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

pub(crate) use native::Native;

/// The path of the socket on which journald receives entries.
pub(crate) const SOCKET: &str = "/run/systemd/journal/socket";

/// The priority of a level by syslog(3): `journalctl -p warning` shows priorities 0 to 4.
const fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// Whether standard error leads to the journal. The variable alone is no proof: it is also set for
/// a daemon whose unit or shell redirects standard error (systemd.exec(5)).
pub(crate) fn is_stderr() -> bool {
    let Ok(stream) = env::var("JOURNAL_STREAM") else { return false };
    rustix::fs::fstat(io::stderr())
        .is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// An error text for standard error. If standard error is the journal, each line gets the priority
/// of an error.
pub fn trouble(text: &str) -> String {
    if is_stderr() { prefixed(text, Level::ERROR) } else { text.to_owned() }
}

/// Prefixes each line with its priority, as sd-daemon(3) describes: journald makes an entry of each
/// line.
fn prefixed(text: &str, level: Level) -> String {
    let number = priority(level);
    text.split_inclusive('\n').fold(String::new(), |mut all, line| {
        // Writing to a string cannot fail.
        let _ = write!(all, "<{number}>{line}");
        all
    })
}

/// A format that prefixes each line with its priority.
#[derive(Debug)]
pub(crate) struct Prefixed<F>(pub(crate) F);

impl<S, N, F> FormatEvent<S, N> for Prefixed<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        writer.write_str(&prefixed(&text, *event.metadata().level()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_an_event_has_its_priority() {
        assert_eq!(prefixed("one\ntwo\n", Level::WARN), "<4>one\n<4>two\n");
        assert_eq!(prefixed("no end", Level::ERROR), "<3>no end");
        assert_eq!([Level::INFO, Level::DEBUG, Level::TRACE].map(priority), [6, 7, 7]);
    }
}

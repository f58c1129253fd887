//! The journal of systemd, in both ways that a daemon's lines get there.
//!
//! ```text
//!   standard error   systemd makes an entry of each line; `<N>` in front of it is its priority
//!   native           entries with fields, sent to journald's own socket (`log.format: journald`)
//! ```
//!
//! The native layer is ours and not tracing-journald: that one has an event's fields beside the
//! MESSAGE only, where `journalctl` does not show them, waits without end for a journal that hangs,
//! and drops without a word what cannot be sent.
//!
//! | module | what |
//! |---|---|
//! | `native` | an event as an entry |
//! | `socket` | sending it: journald may hang, be away, and come back |

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

/// Where journald takes entries.
pub(crate) const SOCKET: &str = "/run/systemd/journal/socket";

/// As syslog(3) counts: `journalctl -p warning` shows 4 and less.
const fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// Whether standard error leads into the journal; a daemon whose unit or shell sends it elsewhere
/// has the variable as well (systemd.exec(5)).
pub(crate) fn is_stderr() -> bool {
    let Ok(stream) = env::var("JOURNAL_STREAM") else { return false };
    rustix::fs::fstat(io::stderr())
        .is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Text for standard error that tells of trouble: where that is the journal with its priority.
pub fn trouble(text: &str) -> String {
    if is_stderr() { prefixed(text, Level::ERROR) } else { text.to_owned() }
}

/// Lines as journald reads them from standard error (sd-daemon(3)): each of them is an entry.
fn prefixed(text: &str, level: Level) -> String {
    let number = priority(level);
    text.split_inclusive('\n').fold(String::new(), |mut all, line| {
        // Writing into a string cannot fail.
        let _ = write!(all, "<{number}>{line}");
        all
    })
}

/// A format whose lines have their priority in front.
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

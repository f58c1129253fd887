//! The latest log lines, for remote inspection of the daemon. The number and size of the lines are
//! bounded, so their memory is constant whatever a peer causes.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ops::log::{Line, Lines};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::access::ACCESS;
use crate::fields::SERVER;

/// The number of kept lines.
const LINES: usize = 1_000;

/// The total size of all kept texts, in bytes. A usual log line has 100 bytes.
const BYTES: usize = 256 << 10;

/// The longest text of a line, in bytes.
const TEXT: usize = 2 << 10;

static RECENT: Mutex<Recent> = Mutex::new(Recent::new());

/// The lines numbered above `after`, at most `limit` of the newest.
pub fn recent(after: u64, limit: usize) -> Lines {
    locked(&RECENT).after(after, limit)
}

fn locked(recent: &Mutex<Recent>) -> MutexGuard<'_, Recent> {
    recent.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
pub(crate) struct Recent {
    lines: VecDeque<Line>,
    bytes: usize,
    /// The number of the last line.
    last: u64,
}

impl Recent {
    const fn new() -> Self {
        Self { lines: VecDeque::new(), bytes: 0, last: 0 }
    }

    fn keep(&mut self, level: &str, target: &str, text: String) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last += 1;
        self.bytes += text.len();
        self.lines.push_back(Line {
            seq: self.last,
            unix_millis: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            level: level.to_owned(),
            target: target.to_owned(),
            text,
        });
        while self.lines.len() > LINES || self.bytes > BYTES {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.text.len();
        }
    }

    fn after(&self, after: u64, limit: usize) -> Lines {
        let newer = self.lines.iter().filter(|line| line.seq > after).count();
        let skipped = self.lines.len() - newer.min(limit);
        let lines: Vec<_> = self.lines.iter().skip(skipped).cloned().collect();
        let first = lines.first().map_or(self.last + 1, |line| line.seq);
        Lines { lost: first.saturating_sub(after.saturating_add(1)), last: self.last, lines }
    }
}

/// The layer that keeps the lines. The filter of the log wraps it.
#[derive(Debug)]
pub(crate) struct Keep(&'static Mutex<Recent>);

impl Keep {
    /// Keeps the lines of this process.
    pub(crate) const fn new() -> Self {
        Self(&RECENT)
    }
}

impl<S: Subscriber> Layer<S> for Keep {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // The access log contains visitor addresses, and has its own switch.
        if event.metadata().target() == ACCESS {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        let Text { mut message, fields } = text;
        message.push_str(&fields);
        if message.len() > TEXT {
            let end = message.floor_char_boundary(TEXT);
            message.truncate(end);
            message.push('…');
        }
        let of = event.metadata();
        locked(self.0).keep(of.level().as_str(), of.target(), message);
    }
}

/// The message of an event, and its fields as ` name=value`.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            SERVER => Ok(()),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::Registry;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn number_and_bytes_are_bounded_and_what_is_missing_is_counted() {
        let mut recent = Recent::new();
        for n in 0..LINES + 10 {
            recent.keep("INFO", "a", n.to_string());
        }
        let all = recent.after(0, usize::MAX);
        assert_eq!((all.lines.len(), all.lost), (LINES, 10));
        assert_eq!((all.lines[0].seq, all.last), (11, LINES as u64 + 10));
        let two = recent.after(all.last - 5, 2);
        assert_eq!((two.lines.len(), two.lost, two.lines[1].seq), (2, 3, all.last));
        let none = recent.after(all.last, 2);
        assert_eq!((none.lines.len(), none.lost, none.last), (0, 0, all.last));
        for _ in 0..LINES {
            recent.keep("INFO", "a", "x".repeat(TEXT));
        }
        assert_eq!(recent.lines.len(), BYTES / TEXT);
        assert_eq!(recent.bytes, BYTES);
    }

    #[test]
    fn a_line_has_level_target_message_and_fields_and_a_bound() {
        let kept = Box::leak(Box::new(Mutex::new(Recent::new())));
        tracing::subscriber::with_default(Registry::default().with(Keep(kept)), || {
            tracing::info!(target: ACCESS, "not this");
            tracing::warn!(target: "audit", link = 3, client = "<script>", server = "x", "up {}", 1);
            tracing::info!("{}", "é".repeat(TEXT));
        });
        let lines = locked(kept).after(0, 10).lines;
        assert_eq!(lines.len(), 2);
        assert_eq!((&*lines[0].level, &*lines[0].target), ("WARN", "audit"));
        assert_eq!(lines[0].text, "up 1 link=3 client=<script>");
        assert!(lines[1].text.len() <= TEXT + '…'.len_utf8() && lines[1].text.ends_with('…'));
    }
}

//! Sends events as entries to the journal: <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>.
//!
//! MESSAGE is the line of the text format, without time and level, which the journal stores
//! itself. Each field of the event is also a field of the entry, with its name in capitals and
//! without a prefix: `journalctl LINK=3`. This program uses no spans, so an event has its ids in
//! its own fields.

use std::fmt::{Debug, Write as _};
use std::io;
use std::path::Path;

use ops::term::escaped;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::priority;
use super::socket::Journal;

/// Longest MESSAGE, in bytes: journald's own limit for a line from standard error.
const MESSAGE_MAX: usize = 48 << 10;

/// Longest value of another field, in bytes. An event has at most 32 fields, so an entry fits into
/// a datagram of about 200 KiB.
const FIELD_MAX: usize = 4 << 10;

/// The SYSLOG_IDENTIFIER of every entry, for `journalctl -t tunnel`: without units, it is the only
/// sign of a tunnel daemon.
const IDENTIFIER: &str = "tunnel";

/// A layer that sends every event to the journal.
#[derive(Debug)]
pub(crate) struct Native(Journal);

impl Native {
    /// # Errors
    /// No journal listens at `path`.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        Journal::connect(path).map(Self)
    }
}

impl<S: Subscriber> Layer<S> for Native {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut entry = Entry::default();
        event.record(&mut entry);
        let metadata = event.metadata();
        let text = entry.message + &entry.more;
        let mut datagram = datagram(priority(*metadata.level()), metadata.target(), &text);
        datagram.extend(entry.fields);
        self.0.send(&datagram, &text);
    }
}

/// The fields that every entry has.
pub(super) fn datagram(priority: u8, target: &str, message: &str) -> Vec<u8> {
    let mut fields = Vec::with_capacity(256);
    append(&mut fields, "PRIORITY", &priority.to_string(), FIELD_MAX);
    append(&mut fields, "SYSLOG_IDENTIFIER", IDENTIFIER, FIELD_MAX);
    append(&mut fields, "TARGET", target, FIELD_MAX);
    append(&mut fields, "MESSAGE", message, MESSAGE_MAX);
    fields
}

/// Appends a field. A value with a line break is preceded by its length.
fn append(fields: &mut Vec<u8>, name: &str, value: &str, most: usize) {
    let value = &value[..value.floor_char_boundary(most)];
    fields.extend(name.bytes());
    if value.contains('\n') {
        fields.push(b'\n');
        fields.extend((value.len() as u64).to_le_bytes());
    } else {
        fields.push(b'=');
    }
    fields.extend(value.bytes());
    fields.push(b'\n');
}

/// A field name that journald accepts: capitals, digits and `_`, and a letter first. journald
/// ignores fields with other names.
fn name(field: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = field.chars().map(letter).collect();
    name.trim_start_matches(|c: char| !c.is_ascii_uppercase()).to_owned()
}

#[derive(Default)]
struct Entry {
    message: String,
    /// The other fields as ` name=value`.
    more: String,
    fields: Vec<u8>,
}

impl Entry {
    /// Adds a field. `shown` is the value in the form of the text format.
    fn put(&mut self, field: &Field, shown: &dyn Debug, value: &str) {
        let value = &*escaped(value);
        if field.name() == "message" {
            value.clone_into(&mut self.message);
            return;
        }
        // Writing to a string cannot fail.
        let shown = format!("{shown:?}");
        let _ = write!(self.more, " {}={}", field.name(), escaped(&shown));
        append(&mut self.fields, &name(field.name()), value, FIELD_MAX);
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, &value, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, value, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_journal_takes() {
        let names = ["link", "socket.peer", "_private", "0th", "r2d2", "naïve"].map(name);
        assert_eq!(names, ["LINK", "SOCKET_PEER", "PRIVATE", "TH", "R2D2", "NA_VE"]);
    }

    #[test]
    fn a_value_is_bounded_and_what_has_line_ends_goes_by_length() {
        let mut fields = Vec::new();
        append(&mut fields, "A", "one", 10);
        append(&mut fields, "B", "one\ntwo", 10);
        append(&mut fields, "C", "naïve", 3);
        assert_eq!(fields, b"A=one\nB\n\x07\0\0\0\0\0\0\0one\ntwo\nC=na\n");
    }
}

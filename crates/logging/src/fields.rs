//! Message and fields of an event without control characters. Any of them may contain text of a
//! peer; a line break would forge a line, and ESC would control the terminal that shows the log.

use std::fmt;

use ops::term::escaped;
use tracing::field::{Field, Visit};
use tracing_subscriber::field::{MakeVisitor as _, RecordFields, VisitOutput as _};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};

/// The fields as `tracing` formats them, escaped.
#[derive(Debug, Default)]
pub(crate) struct EscapedFields(DefaultFields);

impl<'w> FormatFields<'w> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut text = String::new();
        let mut visitor = self.0.make_visitor(Writer::new(&mut text));
        fields.record(&mut WithoutServer(&mut visitor));
        visitor.finish()?;
        writer.write_str(&escaped(&text))
    }
}

/// The field that charges a client's line to the quota of its server ([`crate::quota`]). A client
/// has only one server, so text lines omit the field; JSON and the journal have it.
pub(crate) const SERVER: &str = "server";

/// Forwards all fields except [`SERVER`].
struct WithoutServer<'v>(&'v mut dyn Visit);

impl Visit for WithoutServer<'_> {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.record_i64(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.record_u64(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.record_bool(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() != SERVER {
            self.0.record_str(field, value);
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.0.record_error(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() != SERVER {
            self.0.record_debug(field, value);
        }
    }
}

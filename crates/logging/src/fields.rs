//! Message and fields of an event without control characters. Text of a peer may be in any of them;
//! a line end would forge a line, and ESC would command the terminal that shows the log.

use std::fmt;

use ops::term::escaped;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};

/// The fields as `tracing` formats them, escaped.
#[derive(Debug, Default)]
pub(crate) struct EscapedFields(DefaultFields);

impl<'w> FormatFields<'w> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut text = String::new();
        self.0.format_fields(Writer::new(&mut text), fields)?;
        writer.write_str(&escaped(&text))
    }
}

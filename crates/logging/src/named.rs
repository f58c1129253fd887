//! The name of a daemon in each of its lines, for daemons that share standard error.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// A format that puts the name before a line of text (`home: …`), and into the object of a line of
/// JSON (`"daemon":"home"`).
#[derive(Debug)]
pub(crate) struct Named<F> {
    pub(crate) inner: F,
    /// `None`: lines are left unchanged.
    pub(crate) name: Option<String>,
    pub(crate) is_json: bool,
}

impl<S, N, F> FormatEvent<S, N> for Named<F>
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
        let Some(name) = &self.name else {
            return self.inner.format_event(context, writer, event);
        };
        if !self.is_json {
            write!(writer, "{name}: ")?;
            return self.inner.format_event(context, writer, event);
        }
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        writer.write_str(&with_name(&line, name))
    }
}

/// The object of JSON with the name as its first field.
fn with_name(line: &str, name: &str) -> String {
    let quoted = name.replace('\\', r"\\").replace('"', "\\\"");
    let rest = line.strip_prefix('{').unwrap_or(line);
    format!("{{\"daemon\":\"{quoted}\",{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_the_name_as_its_first_field() {
        let line = with_name("{\"level\":\"INFO\"}\n", r#"a"b\"#);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["daemon"], r#"a"b\"#);
        assert_eq!(value["level"], "INFO");
    }
}

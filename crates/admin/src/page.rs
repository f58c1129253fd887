//! Writes metrics in the Prometheus text exposition format 0.0.4.

use std::fmt::Write as _;

use super::metrics::{Kind, Metric, Sample, Value};

/// The media type of the page.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes the page of these metrics.
pub(super) fn page(metrics: &[Metric<'_>]) -> String {
    let mut page = String::new();
    for Metric { name, kind, help, samples } in metrics {
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        };
        // Writing into a string cannot fail.
        let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for sample in samples {
            line(&mut page, name, sample);
        }
    }
    page
}

fn line(page: &mut String, name: &str, Sample { labels, value }: &Sample<'_>) {
    page.push_str(name);
    for (n, (label, text)) in labels.iter().enumerate() {
        let open = if n == 0 { '{' } else { ',' };
        let _ = write!(page, "{open}{label}=\"");
        for c in text.chars() {
            match c {
                '\\' => page.push_str("\\\\"),
                '"' => page.push_str("\\\""),
                '\n' => page.push_str("\\n"),
                c => page.push(c),
            }
        }
        page.push('"');
    }
    let close = if labels.is_empty() { "" } else { "}" };
    let _ = match value {
        Value::Whole(value) => writeln!(page, "{close} {value}"),
        Value::Real(value) => writeln!(page, "{close} {value}"),
    };
}

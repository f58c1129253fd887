//! Writes metrics in the Prometheus text exposition format 0.0.4.

use std::fmt::{Display, Write as _};

use ops::figures::{Buckets, Figure, Metric, Sample, Value};

/// The media type of the page.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes the page of these metrics.
pub(super) fn page(metrics: &[Metric<'_>]) -> String {
    let mut page = String::new();
    for Metric { figure: Figure { name, kind, help, .. }, samples } in metrics {
        let kind = kind.name();
        // Writing into a string cannot fail.
        let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for sample in samples {
            line(&mut page, name, sample);
        }
    }
    page
}

fn line(page: &mut String, name: &str, Sample { labels, value }: &Sample<'_>) {
    match value {
        Value::Whole(value) => series(page, (name, ""), labels, value),
        Value::Real(value) => series(page, (name, ""), labels, value),
        Value::Buckets(Buckets { bounds, counts, sum }) => {
            let bounds = bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
            let mut total = 0;
            for (bound, count) in bounds.zip(counts) {
                // Each bucket includes the events of the previous buckets.
                total += count;
                let labels: Vec<_> = labels.iter().copied().chain([("le", &*bound)]).collect();
                series(page, (name, "_bucket"), &labels, &total);
            }
            series(page, (name, "_sum"), labels, sum);
            series(page, (name, "_count"), labels, &total);
        }
    }
}

/// Writes one series: the name and the text after it.
fn series(
    page: &mut String,
    (name, suffix): (&str, &str),
    labels: &[(&str, &str)],
    value: &dyn Display,
) {
    page.push_str(name);
    page.push_str(suffix);
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
    // Writing into a string cannot fail.
    let _ = writeln!(page, "{close} {value}");
}

//! The line of JSON that a program says on standard output. The fields are those of its report.

use std::io::{self, Write as _};

use serde::Serialize;

/// Writes one line.
pub fn print(report: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, report)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Rounds for people: three digits behind the point are more than any measurement here is worth.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

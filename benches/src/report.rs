//! The line of JSON that a program prints on standard output. Its fields are the fields of the
//! program's report.

use std::io::{self, Write as _};

use serde::Serialize;

/// Writes one line.
pub fn print(report: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, report)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Rounds for readers: no measurement here is exact to more than three decimal places.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

//! The output of the program for a person. Everything except log lines goes through here: results
//! to stdout, problems to stderr. A closed pipe (`tunnel status | head -1`) is no error.

use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;

/// Writes a line to stdout: a result.
pub fn out(text: impl Display) {
    line(io::stdout().lock(), text);
}

/// Writes text to stdout without a line end, for `generate token -n`.
pub fn out_bare(text: impl Display) {
    let mut stdout = io::stdout().lock();
    drop(write!(stdout, "{text}").and_then(|()| stdout.flush()));
}

/// Writes a line to stderr: a problem, or a hint that must not mix with the result.
pub fn err(text: impl Display) {
    line(io::stderr().lock(), text);
}

fn line(mut to: impl Write, text: impl Display) {
    // A failure cannot be reported anywhere.
    drop(writeln!(to, "{text}").and_then(|()| to.flush()));
}

/// An address as text, without an unknown port (0): a reverse proxy reports only the IP address of
/// its client.
pub fn address(address: SocketAddr) -> String {
    if address.port() == 0 { address.ip().to_string() } else { address.to_string() }
}

/// A number with its word: `1 link`, `2 links`. The plural of the word must end in an added `s`.
pub fn count(n: u64, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}

/// A table with aligned columns: each column is as wide as its widest cell, with two spaces in
/// between.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, &width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!([0, 1, 2].map(|n| count(n, "link")), ["0 links", "1 link", "2 links"]);
    }

    #[test]
    fn columns_line_up_and_no_line_ends_in_blanks() {
        let rows = [vec!["a".into(), "bb".into()], vec!["ccc".into(), "d".into()]];
        assert_eq!(table(&rows), "a    bb\nccc  d\n");
    }
}

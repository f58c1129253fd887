//! What the program says to a person. Everything that is not a log line goes through here: results
//! to stdout, trouble to stderr, and a closed pipe (`tunnel status | head -1`) is no trouble.

use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;

/// A line for whoever or whatever asked: stdout.
pub fn out(text: impl Display) {
    line(io::stdout().lock(), text);
}

/// Text to stdout without an end of line, for `generate token -n`.
pub fn out_bare(text: impl Display) {
    let mut stdout = io::stdout().lock();
    drop(write!(stdout, "{text}").and_then(|()| stdout.flush()));
}

/// A line about trouble, or a hint that must not mix with the result: stderr.
pub fn err(text: impl Display) {
    line(io::stderr().lock(), text);
}

fn line(mut to: impl Write, text: impl Display) {
    // Nobody is left to tell when this fails.
    drop(writeln!(to, "{text}").and_then(|()| to.flush()));
}

/// An address; without the port where that is not known: a reverse proxy tells its client's address
/// only.
pub fn address(address: SocketAddr) -> String {
    if address.port() == 0 { address.ip().to_string() } else { address.to_string() }
}

/// `1 link`, `2 links`: for words whose plural is made by an `s`.
pub fn count(n: u64, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}

/// Lines up columns: each cell as wide as the widest of its column, two spaces in between.
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

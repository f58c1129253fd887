//! The output of the program for a person. Everything except log lines goes through here: results
//! to stdout, problems to stderr. A closed pipe (`tunnel status | head -1`) is no error.
//!
//! Text may come from a peer, so control characters other than line ends and tabs are escaped here.
//! In a table line ends and tabs are escaped as well.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;

pub use proto::text::escaped;
use proto::text::escaped_but;

/// Writes a line to stdout: a result.
pub fn out(text: impl Display) {
    line(io::stdout().lock(), text);
}

/// Writes text of this program to stdout as it is and without a line end: a token for `generate
/// token -n`, a command of the terminal.
pub fn out_bare(text: impl Display) {
    let mut stdout = io::stdout().lock();
    drop(write!(stdout, "{text}").and_then(|()| stdout.flush()));
}

/// The text without control characters other than line ends and tabs.
pub fn clean(text: &str) -> Cow<'_, str> {
    escaped_but(text, &['\n', '\t'])
}

/// Writes a line to stderr: a problem, or a hint that must not mix with the result.
pub fn err(text: impl Display) {
    line(io::stderr().lock(), text);
}

fn line(mut to: impl Write, text: impl Display) {
    let text = text.to_string();
    let text = clean(&text);
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

/// The most parts that [`few`] shows: a person reads no more of a list of like reasons.
const FEW: usize = 4;

/// The first parts of a list in one line, and the number of the others.
pub fn few(parts: impl ExactSizeIterator<Item = String>) -> String {
    let more = parts.len().saturating_sub(FEW);
    let mut text = parts.take(FEW).collect::<Vec<_>>().join("; ");
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

/// A table with aligned columns: each column is as wide as its widest cell, with two spaces in
/// between.
pub fn table(rows: &[Vec<String>]) -> String {
    let clean = |cell: &String| escaped(cell).into_owned();
    let rows: Vec<Vec<_>> = rows.iter().map(|row| row.iter().map(clean).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
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
    fn a_long_list_is_cut_with_its_count() {
        let of = |n: usize| few((0..n).map(|n| n.to_string()));
        assert_eq!([of(0), of(4), of(6)], ["", "0; 1; 2; 3", "0; 1; 2; 3; and 2 more"]);
    }

    #[test]
    fn a_cell_of_a_peer_commands_no_terminal_and_forges_no_row() {
        let rows = [vec!["a\nb  running".into(), "\u{1b}[2J".into()]];
        assert_eq!(table(&rows), "a\\nb  running  \\u{1b}[2J\n");
        let mut out = Vec::new();
        line(&mut out, "one\n\ttwo\u{1b}[2J");
        assert_eq!(String::from_utf8(out).unwrap(), "one\n\ttwo\\u{1b}[2J\n");
    }

    #[test]
    fn columns_line_up_and_no_line_ends_in_blanks() {
        let rows = [vec!["a".into(), "bb".into()], vec!["ccc".into(), "d".into()]];
        assert_eq!(table(&rows), "a    bb\nccc  d\n");
    }
}

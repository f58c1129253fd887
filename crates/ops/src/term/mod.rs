//! The readable output of the program. Everything except log lines goes through here: results to
//! stdout, problems to stderr. A result that stdout does not accept is [`Unwritten`]; a closed pipe
//! (`tunnel status | head -1`) then ends the command without an error.
//!
//! Text may come from a peer, so control characters other than line ends and tabs are escaped here.
//! In a table, line ends and tabs are escaped as well.
//!
//! [`Sheet`] draws every table and every longer text of a command: it takes the number of columns
//! from the [`Screen`].

mod screen;
mod sheet;
mod table;
mod tone;
mod units;
mod unwritten;
mod waiting;
mod width;

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;

pub use proto::text::escaped;
use proto::text::escaped_but;
pub use screen::Screen;
use serde::Serialize;
pub use sheet::{Drawn, Sheet};
pub use table::{Column, Table};
pub use tone::Tone;
pub use units::{bytes, duration};
pub use unwritten::{Unwritten, pause, wait_for};
pub use waiting::Waiting;
pub use width::natural;

/// Writes a line to stdout: a result.
///
/// # Errors
/// Stdout does not accept the line.
pub fn out(text: impl Display) -> Result<(), Unwritten> {
    Ok(line(io::stdout().lock(), text)?)
}

/// Writes text of this program to stdout unchanged and without a line end: a token for `generate
/// token -n`, a control sequence for the terminal.
///
/// # Errors
/// Stdout does not accept the text.
pub fn out_bare(text: impl Display) -> Result<(), Unwritten> {
    let mut stdout = io::stdout().lock();
    Ok(write!(stdout, "{text}").and_then(|()| stdout.flush())?)
}

/// Prints an answer to stdout: as JSON for programs, or as `draw` draws it.
///
/// # Errors
/// Stdout does not accept the text, or the answer is no JSON.
pub fn show<T: Serialize>(
    answer: &T,
    json: bool,
    draw: impl FnOnce(&T) -> Drawn,
) -> anyhow::Result<()> {
    if json {
        out(serde_json::to_string_pretty(answer)?)?;
    } else {
        draw(answer).show("", "")?;
    }
    Ok(())
}

/// The text without control characters other than line ends and tabs.
pub fn clean(text: &str) -> Cow<'_, str> {
    escaped_but(text, &['\n', '\t'])
}

/// Writes a line to stderr: a problem, or a hint that must not mix with the result. On a terminal
/// the line is wrapped at blanks.
pub fn err(text: impl Display) {
    // A failure cannot be reported anywhere.
    drop(line(io::stderr().lock(), broken(&text.to_string(), Screen::of_stderr())));
}

/// Whether [`err`] would wrap a line of the text.
pub fn is_wide(text: &str) -> bool {
    let columns = Screen::of_stderr().columns();
    columns.is_some_and(|columns| text.lines().any(|line| width::width(line) > columns))
}

/// The text in lines that fit the screen. A line that begins with a blank is a list or a command,
/// and is left unchanged.
fn broken(text: &str, screen: Screen) -> Cow<'_, str> {
    let Some(columns) = screen.columns() else { return Cow::Borrowed(text) };
    let fits = |line: &str| line.starts_with(' ') || width::width(line) <= columns;
    let of = |line: &str| match fits(line) {
        true => line.to_owned(),
        false => width::wrap(line, columns - 2).join("\n  "),
    };
    Cow::Owned(text.split('\n').map(of).collect::<Vec<_>>().join("\n"))
}

fn line(mut to: impl Write, text: impl Display) -> io::Result<()> {
    let text = text.to_string();
    let text = clean(&text);
    writeln!(to, "{text}").and_then(|()| to.flush())
}

/// An address as text, without an unknown port (0): a reverse proxy reports only the IP address of
/// its client.
pub fn address(address: SocketAddr) -> String {
    if address.port() == 0 { address.ip().to_string() } else { address.to_string() }
}

/// A number with its noun: `1 link`, `2 links`. The plural must be formed by an added `s`.
pub fn count(n: u64, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}

/// The largest number of parts that [`few`] shows: a longer list of similar reasons is not
/// readable.
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
    fn text_of_a_peer_commands_no_terminal() {
        let mut out = Vec::new();
        line(&mut out, "one\n\ttwo\u{1b}[2J").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "one\n\ttwo\\u{1b}[2J\n");
    }

    #[test]
    fn a_long_problem_is_broken_at_blanks_and_its_lists_stay() {
        let text = "tunnel: a long word\n  --control a-long-path   server";
        let broken = broken(text, Screen::narrow(20));
        assert_eq!(broken, text);
        let text = "tunnel: a longer word or two";
        assert_eq!(super::broken(text, Screen::narrow(20)), "tunnel: a longer\n  word or two");
        assert_eq!(super::broken(text, Screen::PLAIN), text);
    }
}

//! The properties of the output: the width of the terminal, and whether states are coloured. A pipe
//! and a file get the full output without colours, so that a script never misses a column.

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// The width that is assumed for a terminal that reports none.
const USUAL: usize = 80;

/// The smallest width for which tables are drawn: below it nothing is readable.
const LEAST: usize = 20;

/// The columns and colours of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Screen {
    /// Absent: lines may have any length.
    pub(super) columns: Option<usize>,
    pub(super) colour: bool,
    /// Columns and rows of the terminal; absent: there is no terminal, or it reports no rows.
    pub(super) window: Option<(usize, usize)>,
}

impl Screen {
    /// Lines of any length, without colours.
    pub const PLAIN: Self = Self { columns: None, colour: false, window: None };

    /// The screen of standard output. With `wide`, lines may have any length.
    pub fn of_stdout(wide: bool) -> Self {
        let screen = Self::of(&io::stdout(), |key| env::var_os(key));
        if wide { Self { columns: None, ..screen } } else { screen }
    }

    /// The screen of standard error.
    pub fn of_stderr() -> Self {
        Self::of(&io::stderr(), |key| env::var_os(key))
    }

    /// The screen without colours and with this number of columns.
    pub fn narrow(columns: usize) -> Self {
        Self { columns: Some(columns.max(LEAST)), colour: false, window: None }
    }

    fn of(stream: &(impl AsFd + IsTerminal), var: impl Fn(&str) -> Option<OsString>) -> Self {
        if stream.is_terminal() {
            let size = tcgetwinsize(stream).ok();
            let reported = size.map(|size| [size.ws_col, size.ws_row].map(usize::from));
            Self::of_terminal(reported, var)
        } else {
            Self::PLAIN
        }
    }

    /// `COLUMNS` and `LINES` take precedence over the values of the terminal, as in the programs of
    /// POSIX. Colours follow `NO_COLOR` (no-color.org) and `TERM`.
    fn of_terminal(reported: Option<[usize; 2]>, var: impl Fn(&str) -> Option<OsString>) -> Self {
        let size = |key: &str, reported: Option<usize>| {
            let chosen = var(key).and_then(|text| text.to_str()?.trim().parse().ok());
            [chosen, reported].into_iter().flatten().find(|&size| size > 0)
        };
        let columns = size("COLUMNS", reported.map(|[columns, _]| columns));
        let rows = size("LINES", reported.map(|[_, rows]| rows));
        let none = var("NO_COLOR").is_some_and(|text| !text.is_empty());
        let dumb = var("TERM").is_some_and(|text| text == "dumb");
        let columns = columns.unwrap_or(USUAL);
        let window = rows.map(|rows| (columns, rows));
        Self { colour: !none && !dumb, window, ..Self::narrow(columns) }
    }

    /// The number of columns; absent: lines may have any length.
    pub const fn columns(&self) -> Option<usize> {
        self.columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_width_is_the_chosen_then_the_reported_then_the_usual_one() {
        let of = |reported: Option<usize>, chosen: Option<&str>| {
            let var = |key: &str| chosen.filter(|_| key == "COLUMNS").map(OsString::from);
            Screen::of_terminal(reported.map(|columns| [columns, 24]), var).columns
        };
        assert_eq!(of(Some(120), Some("100")), Some(100));
        assert_eq!(of(Some(120), None), Some(120));
        assert_eq!(of(Some(0), None), Some(80));
        assert_eq!(of(None, Some("many")), Some(80));
        assert_eq!(of(Some(120), Some("0")), Some(120));
        assert_eq!(of(Some(3), None), Some(20));
    }

    #[test]
    fn the_height_is_the_chosen_or_the_reported_one_or_not_known() {
        let of = |reported, chosen: Option<&str>| {
            let var = |key: &str| chosen.filter(|_| key == "LINES").map(OsString::from);
            Screen::of_terminal(reported, var).window
        };
        assert_eq!(of(Some([100, 30]), None), Some((100, 30)));
        assert_eq!(of(Some([100, 30]), Some("12")), Some((100, 12)));
        assert_eq!(of(Some([100, 0]), None), None);
        assert_eq!(of(None, None), None);
    }

    #[test]
    fn colours_are_for_terminals_whose_user_wants_them() {
        let of = |set: &'static str, value: &'static str| {
            let var = |key: &str| (key == set).then(|| OsString::from(value));
            Screen::of_terminal(None, var).colour
        };
        assert!(of("TERM", "xterm") && of("NO_COLOR", ""));
        assert!(!of("TERM", "dumb") && !of("NO_COLOR", "1"));
        let reader = std::os::fd::OwnedFd::from(io::pipe().unwrap().0);
        assert_eq!(Screen::of(&reader, |_| Some("80".into())), Screen::PLAIN);
    }
}

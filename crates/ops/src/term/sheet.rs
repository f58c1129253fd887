//! A readable text, made of lines and tables that fit a screen.

use std::fmt::{self, Display};
use std::io::{self, Write};

use super::escaped;
use super::screen::Screen;
use super::table::Table;
use super::tone::Tone;
use super::unwritten::Unwritten;
use super::width::{width, wrap};

/// The indentation of lines that belong to the line above, and of the continuation of a long line.
const INDENT: usize = 2;

/// The line below a text with missing columns.
const MISSING: &str = "columns are left out or cut: --wide shows all";

/// A text that grows line by line. Control characters in it are escaped.
#[derive(Debug)]
pub struct Sheet {
    screen: Screen,
    indent: usize,
    text: String,
    is_cut: bool,
}

impl Sheet {
    /// An empty text for this screen.
    pub const fn new(screen: Screen) -> Self {
        Self { screen, indent: 0, text: String::new(), is_cut: false }
    }

    /// A blank line.
    pub fn gap(&mut self) {
        self.text.push('\n');
    }

    /// A line of words.
    pub fn line(&mut self, text: impl Display) {
        self.hang(0, &text.to_string(), INDENT);
    }

    /// A line of words with a state in it.
    pub fn state(
        &mut self,
        before: impl Display,
        (tone, state): (Tone, impl Display),
        after: impl Display,
    ) {
        let [before, state, after] = [before.to_string(), state.to_string(), after.to_string()];
        let from = self.text.len();
        self.line(format_args!("{before}{state}{after}"));
        let (before, state) = (escaped(&before), escaped(&state));
        // A state that is wrapped over two lines, such as a long reason, has no colour.
        let at = from + self.indent + before.len();
        let is_there = self.text.get(at..).is_some_and(|rest| rest.starts_with(&*state));
        if self.screen.colour && is_there {
            let painted = tone.paint(&state);
            self.text.replace_range(at..at + state.len(), &painted);
        }
    }

    /// A table; nothing if it has no row.
    pub fn table(&mut self, table: &Table) {
        if table.is_empty() {
            return;
        }
        let room = self.screen.columns.map(|columns| columns.saturating_sub(self.indent));
        let (lines, is_cut) = table.draw(room, self.screen.colour);
        self.is_cut |= is_cut;
        for line in lines {
            self.push(self.indent, &line);
        }
    }

    /// Keys with their values, with the values aligned.
    pub fn pairs(&mut self, pairs: &[(String, String)]) {
        let escaped: Vec<_> = pairs.iter().map(|(key, value)| (escaped(key), value)).collect();
        let widest = escaped.iter().map(|(key, _)| width(key)).max().unwrap_or(0);
        for (key, value) in escaped {
            let blanks = " ".repeat(widest - width(&key));
            let from = self.text.len();
            self.hang(widest + INDENT, value, 0);
            // The value is already in its place: the key replaces the blanks before it.
            let start = from + self.indent;
            let end = start + widest + INDENT;
            self.text.replace_range(start..end, &format!("{key}{blanks}  "));
        }
    }

    /// The output of `part` is indented.
    pub fn indented(&mut self, part: impl FnOnce(&mut Self)) {
        self.indent += INDENT;
        part(self);
        self.indent -= INDENT;
    }

    /// A line of words whose first line is indented by `first` columns, and the others by `rest`
    /// more columns.
    fn hang(&mut self, first: usize, text: &str, rest: usize) {
        let text = escaped(text);
        let start = self.indent + first;
        let Some(columns) = self.screen.columns else {
            return self.push(start, &text);
        };
        // A line that fits keeps its blanks.
        if start + width(&text) <= columns {
            return self.push(start, &text);
        }
        let room = columns.saturating_sub(start + rest);
        for (n, line) in wrap(&text, room).iter().enumerate() {
            self.push(if n == 0 { start } else { start + rest }, line);
        }
    }

    fn push(&mut self, indent: usize, line: &str) {
        self.text.push_str(&" ".repeat(indent));
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// The text.
    pub fn finish(mut self) -> Drawn {
        if self.is_cut {
            self.line(MISSING);
        }
        Drawn(self.text)
    }
}

/// A text that a [`Sheet`] has drawn: its only control characters are line ends and the colours of
/// this program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawn(String);

impl Drawn {
    /// Writes the text to stdout, with text of this program before and after it.
    ///
    /// # Errors
    /// Stdout does not accept the text.
    pub fn show(&self, before: &str, after: &str) -> Result<(), Unwritten> {
        let mut stdout = io::stdout().lock();
        Ok(write!(stdout, "{before}{}{after}", self.0).and_then(|()| stdout.flush())?)
    }

    /// The text in the rows of the window, with the number of lines that do not fit. The last row
    /// is reserved for the cursor.
    #[must_use]
    pub fn in_window(self, screen: Screen) -> Self {
        let Some((columns, rows)) = screen.window else { return self };
        let rows_of = |line: &str| width(&bare(line)).div_ceil(columns).max(1);
        let room = rows.saturating_sub(1);
        if self.0.lines().map(rows_of).sum::<usize>() <= room {
            return self;
        }
        let mut left = room.saturating_sub(1);
        let fits = |line: &&str| {
            let enough = left.checked_sub(rows_of(line));
            left = enough.unwrap_or(0);
            enough.is_some()
        };
        let kept: Vec<_> = self.0.lines().take_while(fits).collect();
        let more = self.0.lines().count() - kept.len();
        let more = if more == 1 { "1 more line".to_owned() } else { format!("{more} more lines") };
        Self(
            kept.into_iter().flat_map(|line| [line, "\n"]).collect::<String>()
                + "… and "
                + &more
                + "\n",
        )
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The line without colours.
fn bare(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |bare, part| bare + part.split_once('m').map_or("", |(_, text)| text))
}

impl Display for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Column;
    use super::*;

    #[test]
    fn long_lines_and_values_are_broken_and_hang() {
        let mut sheet = Sheet::new(Screen::narrow(20));
        sheet.line("refused by ssh: 3 too many");
        sheet.indented(|sheet| {
            sheet.pairs(&[
                ("may publish".into(), "1, 2, 3, 4".into()),
                ("from".into(), "file".into()),
            ]);
        });
        let expected = "\
refused by ssh: 3
  too many
  may publish  1, 2,
               3, 4
  from         file
";
        assert_eq!(sheet.finish().as_str(), expected);
    }

    #[test]
    fn a_state_is_coloured_where_it_stands_and_nowhere_else() {
        let of = |colour, tone, state: &str| {
            let mut sheet = Sheet::new(Screen { columns: None, colour, window: None });
            sheet.state("up: ", (tone, state), ", up 3s");
            sheet.finish().to_string()
        };
        assert_eq!(of(false, Tone::Good, "up"), "up: up, up 3s\n");
        assert_eq!(of(true, Tone::Good, "up"), "up: \u{1b}[32mup\u{1b}[0m, up 3s\n");
        let forged = "\u{1b}[2J";
        assert_eq!(of(true, Tone::Bad, forged), "up: \u{1b}[31m\\u{1b}[2J\u{1b}[0m, up 3s\n");
    }

    #[test]
    fn a_text_fits_the_rows_of_its_window_and_tells_how_much_is_missing() {
        let text = |lines: usize, window| {
            let screen = Screen { columns: None, colour: true, window };
            let mut sheet = Sheet::new(screen);
            for n in 0..lines {
                sheet.state(format_args!("{n} "), (Tone::Good, "x".repeat(18)), "");
            }
            bare(sheet.finish().in_window(screen).as_str())
        };
        let rows = |text: &str| text.lines().count();
        assert_eq!(rows(&text(9, None)), 9);
        assert_eq!(rows(&text(9, Some((20, 10)))), 9, "one row is that of the cursor");
        let cut = text(10, Some((20, 10)));
        assert_eq!(rows(&cut), 9);
        assert!(cut.contains("\n7 x") && cut.ends_with("xx\n… and 2 more lines\n"), "{cut}");
        // A line that is wider than the window takes two rows.
        assert!(text(9, Some((19, 12))).ends_with("\n… and 4 more lines\n"));
        assert_eq!(text(3, Some((20, 1))), "… and 3 more lines\n");
    }

    #[test]
    fn missing_columns_are_told_once() {
        let mut table = Table::new(vec![Column::new("a"), Column::new("b").worth(1)]);
        table.row(["a".repeat(15), "b".repeat(15)]);
        let drawn = |screen| {
            let mut sheet = Sheet::new(screen);
            sheet.table(&table);
            sheet.table(&table);
            sheet.finish().to_string()
        };
        assert_eq!(drawn(Screen::narrow(24)).matches("left out").count(), 1);
        assert!(!drawn(Screen::PLAIN).contains("left out"));
    }
}

//! Readable tables. Each column is as wide as its widest cell, with two blanks in between. On a
//! narrow terminal long names and addresses are shortened first, then columns are omitted by their
//! worth, least first.

use super::escaped;
use super::tone::Tone;
use super::width::{Keep, cut, width};

/// The width that a long cell keeps before another column is omitted for it: most addresses and
/// names are shorter.
const ENOUGH: usize = 24;

/// The blanks between two columns.
const GAP: usize = 2;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    title: &'static str,
    /// Columns with the lowest worth are omitted first, all with the same worth together. Absent:
    /// the column is always shown.
    worth: Option<u8>,
    /// The part of a long cell that is kept. Absent: cells are short.
    keep: Option<Keep>,
    /// Whether the cells have the colour of their row.
    is_state: bool,
}

impl Column {
    /// A column of short cells.
    pub const fn new(title: &'static str) -> Self {
        Self { title, worth: None, keep: None, is_state: false }
    }

    /// On a narrow terminal, the column is omitted before columns with a higher worth.
    #[must_use]
    pub const fn worth(self, worth: u8) -> Self {
        Self { worth: Some(worth), ..self }
    }

    /// Long cells keep their beginning.
    #[must_use]
    pub const fn text(self) -> Self {
        Self { keep: Some(Keep::Start), ..self }
    }

    /// Long cells keep their beginning and end.
    #[must_use]
    pub const fn address(self) -> Self {
        Self { keep: Some(Keep::Ends), ..self }
    }

    /// The cells are states.
    #[must_use]
    pub const fn state(self) -> Self {
        Self { is_state: true, ..self }
    }
}

/// A table: columns, and rows of cells.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    tone: Option<Tone>,
    cells: Vec<String>,
}

impl Table {
    /// A table without rows.
    pub const fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row. Cells beyond the columns are not shown.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.push(None, cells);
    }

    /// Adds a row whose state has this tone.
    pub fn row_of(&mut self, tone: Tone, cells: impl IntoIterator<Item = String>) {
        self.push(Some(tone), cells);
    }

    fn push(&mut self, tone: Option<Tone>, cells: impl IntoIterator<Item = String>) {
        // Text of a peer can neither control the terminal nor forge a row.
        let cells = cells.into_iter().map(|cell| escaped(&cell).into_owned()).collect();
        self.rows.push(Row { tone, cells });
    }

    /// Whether the table has no row.
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, each in at most `room` columns, and whether anything is missing in them.
    pub(super) fn draw(&self, room: Option<usize>, colour: bool) -> (Vec<String>, bool) {
        let full: Vec<usize> = (0..self.columns.len()).map(|n| self.width(n)).collect();
        let widths = match room {
            Some(room) => self.fit(&full, room),
            None => full.iter().copied().map(Some).collect(),
        };
        let titles = self.columns.iter().map(|column| column.title).collect::<Vec<_>>();
        let mut lines = vec![self.line(&titles, &widths, None)];
        for row in &self.rows {
            let cells: Vec<&str> = row.cells.iter().map(String::as_str).collect();
            lines.push(self.line(&cells, &widths, row.tone.filter(|_| colour)));
        }
        let is_cut = widths.iter().zip(&full).any(|(width, &full)| *width != Some(full));
        (lines, is_cut)
    }

    /// The width of the widest cell of a column.
    fn width(&self, n: usize) -> usize {
        let title = self.columns.get(n).map_or(0, |column| width(column.title));
        let cells = self.rows.iter().filter_map(|row| row.cells.get(n)).map(|cell| width(cell));
        cells.max().unwrap_or(0).max(title)
    }

    /// The width of each column in at most `room` columns; absent: the column is omitted.
    fn fit(&self, full: &[usize], room: usize) -> Vec<Option<usize>> {
        let mut widths: Vec<Option<usize>> = full.iter().copied().map(Some).collect();
        let least = |n: usize, width: usize| {
            if self.columns[n].keep.is_some() { width.min(ENOUGH) } else { width }
        };
        let at_least = |widths: &[Option<usize>]| {
            let least = |(n, width): (usize, &Option<usize>)| width.map(|width| least(n, width));
            total(widths.iter().enumerate().filter_map(least))
        };
        while at_least(&widths) > room {
            let worths = self.columns.iter().zip(&widths);
            let there = worths.filter(|(_, width)| width.is_some());
            let Some(lowest) = there.filter_map(|(column, _)| column.worth).min() else { break };
            for (column, width) in self.columns.iter().zip(&mut widths) {
                if column.worth == Some(lowest) {
                    *width = None;
                }
            }
        }
        while total(widths.iter().flatten().copied()) > room && self.shrink(&mut widths) {}
        widths
    }

    /// Takes one character from the widest column with long cells, or from the widest of all
    /// columns if the long cells are already short.
    fn shrink(&self, widths: &mut [Option<usize>]) -> bool {
        const SHORT: usize = 8;
        let wider = |least: usize, any: bool| {
            let may = move |n: usize| any || self.columns[n].keep.is_some();
            move |(n, width): (usize, &Option<usize>)| {
                width.filter(|&width| width > least && may(n)).map(|width| (width, n))
            }
        };
        let widest = widths.iter().enumerate().filter_map(wider(SHORT, false)).max();
        let widest = widest.or_else(|| widths.iter().enumerate().filter_map(wider(1, true)).max());
        let Some((width, n)) = widest else { return false };
        widths[n] = Some(width - 1);
        true
    }

    fn line(&self, cells: &[&str], widths: &[Option<usize>], tone: Option<Tone>) -> String {
        let mut line = String::new();
        let mut blanks = 0;
        for ((cell, column), room) in cells.iter().zip(&self.columns).zip(widths) {
            let Some(room) = *room else { continue };
            let cell = cut(cell, room, column.keep.unwrap_or(Keep::Start));
            // No line ends in blanks.
            if !cell.is_empty() {
                line.push_str(&" ".repeat(blanks));
                blanks = 0;
            }
            blanks += room - width(&cell) + GAP;
            match tone.filter(|_| column.is_state) {
                Some(tone) => line.push_str(&tone.paint(&cell)),
                None => line.push_str(&cell),
            }
        }
        line
    }
}

/// The total width of a line.
fn total(widths: impl Iterator<Item = usize>) -> usize {
    widths.map(|width| width + GAP).sum::<usize>().saturating_sub(GAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 5] = [
        Column::new("name").text(),
        Column::new("address").address(),
        Column::new("state").state(),
        Column::new("in").worth(20),
        Column::new("total").worth(10),
    ];

    fn table(rows: &[[&str; 5]]) -> Table {
        let mut table = Table::new(COLUMNS.to_vec());
        for row in rows {
            table.row(row.map(str::to_owned));
        }
        table
    }

    fn drawn(table: &Table, room: usize) -> (String, bool) {
        let (lines, is_cut) = table.draw(Some(room), false);
        for line in &lines {
            assert!(width(line) <= room, "{room}: {line}");
        }
        (lines.join("\n"), is_cut)
    }

    #[test]
    fn columns_line_up_and_no_line_ends_in_blanks() {
        let mut table = Table::new(vec![Column::new("a"), Column::new("b"), Column::new("c")]);
        table.row(["日本", "", ""].map(str::to_owned));
        table.row(["x", "", "y"].map(str::to_owned));
        assert_eq!(table.draw(None, false).0, ["a     b  c", "日本", "x        y"]);
    }

    #[test]
    fn a_cell_of_a_peer_commands_no_terminal_and_forges_no_row() {
        let mut table = Table::new(vec![Column::new("x"), Column::new("y")]);
        table.row(["a\nb  running", "\u{1b}[2J"].map(str::to_owned));
        assert_eq!(table.draw(None, true).0[1], "a\\nb  running  \\u{1b}[2J");
    }

    #[test]
    fn columns_leave_in_the_order_of_their_worth_and_at_last_long_cells_are_cut() {
        let table = table(&[
            ["ssh", "tcp://0.0.0.0:10022", "up", "1.5 KiB", "20"],
            [
                "日本語のウェブサイト",
                "https://a-long-name-of-a-service.example.com",
                "target down",
                "3.0 GiB",
                "1",
            ],
        ]);
        let (wide, is_cut) = drawn(&table, 120);
        assert!(!is_cut && wide.contains("a-long-name-of-a-service.example.com"), "{wide}");
        let (text, is_cut) = drawn(&table, 80);
        let expected = "\
name                  address                        state        in       total
ssh                   tcp://0.0.0.0:10022            up           1.5 KiB  20
日本語のウェブサイト  https://a-long…ce.example.com  target down  3.0 GiB  1";
        assert_eq!(text, expected);
        assert!(is_cut);
        let (text, _) = drawn(&table, 60);
        let titles: Vec<_> = text.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(titles, ["name", "address", "state"], "{text}");
        let (text, _) = drawn(&table, 40);
        let expected = "\
name           address       state
ssh            tcp://…10022  up
日本語のウェ…  https:…e.com  target down";
        assert_eq!(text, expected);
        for room in 10..130 {
            drawn(&table, room);
        }
    }

    #[test]
    fn only_states_are_coloured_and_colours_take_no_room() {
        let mut table = Table::new(COLUMNS.to_vec());
        table.row_of(Tone::Good, ["up", "a", "up", "1 B", "1"].map(str::to_owned));
        table.row_of(Tone::Waits, ["b", "b", "waiting", "2 B", "2"].map(str::to_owned));
        let (plain, _) = table.draw(None, false);
        let (painted, _) = table.draw(None, true);
        let expected = "up    a        \u{1b}[32mup\u{1b}[0m       1 B  1";
        assert_eq!(painted[1], expected);
        let bare = painted.join("\n").replace("\u{1b}[32m", "").replace("\u{1b}[33m", "");
        assert_eq!(bare.replace("\u{1b}[0m", ""), plain.join("\n"));
    }
}

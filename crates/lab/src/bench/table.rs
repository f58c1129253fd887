//! A case as a table for the terminal.

use std::fmt::Write as _;

use super::figure::{Figure, number};
use super::outcome::Outcome;
use super::spread::Spread;

/// All systems of a case: the median of each figure, and the ranges of rate and ratio.
pub(super) fn table(outcome: &Outcome) -> String {
    let case = outcome.case;
    let mut lines = vec![headings(outcome)];
    let mut errors = vec![None];
    for row in &outcome.rows {
        let mut cells = vec![row.system.to_owned()];
        for figure in case.figures() {
            let spread = row.spread(*figure);
            cells.push(middle(spread));
            if *figure == Figure::Rate {
                cells.push(range(spread));
                let ratio = outcome.of_direct(row);
                cells.extend([middle(ratio), range(ratio)]);
            }
        }
        lines.push(cells);
        errors.push(row.error());
    }
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|column| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = format!("{}: {}\n", case.name, case.what);
    for (cells, error) in lines.iter().zip(errors) {
        // Names are aligned left, numbers right.
        let _ = write!(text, "  {:width$}", cells[0], width = widths[0]);
        if let Some(error) = error {
            let _ = writeln!(text, "  {error}");
            continue;
        }
        for (cell, width) in cells.iter().zip(&widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

fn headings(outcome: &Outcome) -> Vec<String> {
    let mut cells = vec!["system".to_owned()];
    for figure in outcome.case.figures() {
        if *figure == Figure::Rate {
            cells.extend([outcome.case.unit(), "range", "of direct", "range"].map(str::to_owned));
        } else {
            cells.push(figure.heading().to_owned());
        }
    }
    cells
}

pub(super) fn middle(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "-".to_owned(), |spread| number(spread.median))
}

pub(super) fn range(spread: Option<Spread>) -> String {
    spread.map_or_else(String::new, |spread| {
        format!("{} .. {}", number(spread.least), number(spread.most))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::outcome::tests::{outcome, row};

    #[test]
    fn columns_are_aligned_and_an_error_takes_the_place_of_numbers() {
        let rows = vec![
            row("direct", &[144_649.0, 150_000.0, 140_000.0]),
            row("tunnel-tcp", &[70_000.0, 80_000.0, 70_000.0]),
            row("rathole-tcp", &[46_000.0, f64::NAN, 46_000.0]),
        ];
        let wanted = "\
http-100: HTTP, 100 keep-alive connections
  system       requests/s               range  of direct         range  p50 ms  p99 ms  CPU µs/request  peak RSS MiB
  direct          144,649  140,000 .. 150,000          -                     -     145               -             -
  tunnel-tcp       70,000    70,000 .. 80,000       0.50  0.48 .. 0.53       -    70.0               -             -
  rathole-tcp  error in 1 of 3 rounds: wrk: Socket errors: read 3
";
        assert_eq!(table(&outcome("http-100", rows)), wanted);
    }
}

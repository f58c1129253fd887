//! The tables of the manual page `coming-from.md` are those of the programs.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test reads its files itself, and ends where it cannot"
)]

use std::fs;
use std::path::Path;

use import::{Fate, Program, Row, tables};

fn line(row: &Row) -> String {
    let here = match row.fate {
        Fate::Mapped(ours) => ours.to_owned(),
        Fate::Already(why) => format!("nothing to write: {why}"),
        Fate::Lacks(why, "") => format!("–: {why}"),
        Fate::Lacks(why, nearest) => format!("–: {why}. Nearest: {nearest}"),
    };
    assert!(!here.contains('|') && !row.key.contains('|'), "{row:?}");
    format!("| `{}` | {here} |\n", row.key)
}

fn table(program: Program, rows: &[Row]) -> String {
    let rows: String = rows.iter().map(line).collect();
    format!("<!-- table: {program} -->\n| key there | here |\n|---|---|\n{rows}<!-- end -->")
}

/// `UPDATE=1` writes the tables into the page.
#[test]
fn the_manual_has_the_table_of_each_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tunnel/docs/coming-from.md");
    let mut text = fs::read_to_string(&path).unwrap();
    for (program, rows) in tables() {
        let begin = text.find(&format!("<!-- table: {program} -->")).expect("a table");
        let end = begin + text[begin..].find("<!-- end -->").expect("its end");
        let expected = table(program, rows);
        let actual = &text[begin..end + "<!-- end -->".len()];
        if std::env::var_os("UPDATE").is_some() {
            text = text.replace(actual, &expected);
        } else {
            assert!(*actual == expected, "{program}: the table should be\n{expected}");
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, text).unwrap();
    }
}

#[test]
fn a_key_has_one_row() {
    for (program, rows) in tables() {
        for (n, row) in rows.iter().enumerate() {
            let twice = rows[..n].iter().any(|other| other.key.eq_ignore_ascii_case(row.key));
            assert!(!twice, "{program}: {}", row.key);
        }
    }
}

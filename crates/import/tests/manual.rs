//! The tables of the manual page `coming-from.md` are those of the programs.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test reads its files itself, and ends where it cannot"
)]

use std::collections::BTreeSet;
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

/// The keys of our files as REFERENCE.md lists them, without their roles: `services[].limits.up`.
fn known() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/REFERENCE.md");
    let text = fs::read_to_string(path).unwrap();
    let key = |line: &str| {
        let (_, key) = line.strip_prefix("| `")?.split_once('`')?.0.split_once(": ")?;
        Some(key.to_owned())
    };
    text.lines().filter_map(key).collect()
}

/// The texts in backticks that have the form of a key of ours with at least two steps.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let keys = quoted.map(|text| text.split(": ").next().unwrap_or(text));
    let is_step = |byte: u8| byte.is_ascii_lowercase() || b"_.[]".contains(&byte);
    let is_file = |text: &str| [".yaml", ".token", ".conf"].iter().any(|end| text.ends_with(end));
    keys.filter(move |text| text.bytes().all(is_step) && text.contains('.') && !is_file(text))
}

#[test]
fn the_tables_name_keys_that_exist() {
    let known = known();
    assert!(known.contains("services[].limits.up"), "{known:?}");
    let exists = |named: &str| {
        let below = format!(".{named}");
        known.iter().any(|key| key == named || key.ends_with(&below))
    };
    for (program, rows) in tables() {
        for row in rows {
            let texts = match row.fate {
                Fate::Mapped(text) | Fate::Already(text) => [text, ""],
                Fate::Lacks(why, nearest) => [why, nearest],
            };
            for key in texts.into_iter().flat_map(named) {
                assert!(exists(key), "{program}: {}: we have no key `{key}`", row.key);
            }
            // A reason that was true of an earlier version only.
            let former = ["this version", "no rate", "inspector", "one client;"];
            if let Fate::Lacks(why, _) = row.fate {
                let stale = former.iter().find(|words| why.contains(**words));
                assert_eq!(stale, None, "{program}: {}: {why}", row.key);
            }
        }
    }
}

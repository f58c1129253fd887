//! The tables of REFERENCE.md, which are made from the rows of the keys.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::keys::{KeyMap, KeyPlace, KeyRow, ROLES};
use crate::model::Change;

/// A key at its place in the file.
#[derive(Clone, Debug)]
pub(crate) struct PlacedKey {
    /// The role, or `both` for server and client.
    pub(crate) role: &'static str,
    /// The path in the file: `clients[].limits.streams`.
    pub(crate) path: String,
    /// When a changed value takes effect.
    pub(crate) change: Change,
    /// The meaning of the key.
    pub(crate) sentence: String,
    /// The row of the key.
    pub(crate) row: &'static KeyRow,
}

/// The keys of one map of the file.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The role, a colon and the path of the map, such as `server:clients[].allow`. For the top
    /// level of the file, nothing follows the colon.
    pub(crate) path: String,
    /// The keys.
    pub(crate) keys: Vec<&'static str>,
}

/// All keys of the files. A map that server and client have in common is listed once.
pub(crate) fn all() -> Vec<PlacedKey> {
    let mut found = Vec::new();
    for (role, place, map) in ROLES {
        let top =
            Walk { role, place, path: "", of: "", change: Change::Live, group: SharedBy::Own };
        top.map(map, &mut found);
    }
    found
}

/// Whether server and client have the key.
fn is_of_both(row: &KeyRow) -> bool {
    [KeyPlace::Server, KeyPlace::Client].into_iter().all(|place| row.is_at(Some(place)))
}

/// A map on the way through a file.
struct Walk<'a> {
    role: &'static str,
    place: KeyPlace,
    path: &'a str,
    of: &'static str,
    change: Change,
    group: SharedBy,
}

/// The files that have a map.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SharedBy {
    /// The files of one role.
    Own,
    /// The top level of all files.
    Top,
    /// A map of all files, with the same keys for server and client.
    Both,
}

impl Walk<'_> {
    fn map(&self, map: KeyMap, found: &mut Vec<PlacedKey>) {
        let place = map.at.unwrap_or(self.place);
        for row in map.rows.iter().filter(|row| row.is_at(Some(place))) {
            if row.key.is_empty() {
                let top = Walk { place, group: SharedBy::Top, ..*self };
                row.map.into_iter().for_each(|map| top.map(map, found));
                continue;
            }
            let is_of_both = self.group != SharedBy::Own && is_of_both(row);
            let role = if self.group == SharedBy::Both && is_of_both { "both" } else { self.role };
            // The map of a server stands for that of a client and of a proxy.
            let is_listed = self.group != SharedBy::Both || self.role == "server";
            let dot = if self.path.is_empty() { "" } else { "." };
            let path = format!("{}{dot}{}", self.path, row.key);
            let change = row.change.unwrap_or(self.change);
            if is_listed {
                let sentence = row.sentence.replace("{of}", self.of);
                found.push(PlacedKey { role, path: path.clone(), change, sentence, row });
            }
            let Some(map) = row.map else { continue };
            let path = if map.is_list { format!("{path}[]") } else { path };
            let of = if map.of.is_empty() { self.of } else { map.of };
            let group = match self.group {
                SharedBy::Top | SharedBy::Both if is_of_both || self.role == "proxy" => {
                    SharedBy::Both
                }
                SharedBy::Own | SharedBy::Top | SharedBy::Both => SharedBy::Own,
            };
            Walk { path: &path, place, of, change, group, ..*self }.map(map, found);
        }
    }
}

/// The maps of the files with their keys.
pub(crate) const TABLES: Tables = Tables;

/// See [`TABLES`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables;

impl IntoIterator for Tables {
    type Item = Table;
    type IntoIter = std::vec::IntoIter<Table>;

    fn into_iter(self) -> Self::IntoIter {
        let mut tables: Vec<Table> = Vec::new();
        for key in all() {
            let cut = key.path.len() - key.row.key.len();
            let path = format!("{}:{}", key.role, key.path[..cut].trim_end_matches('.'));
            match tables.iter_mut().find(|table| table.path == path) {
                Some(table) => table.keys.push(key.row.key),
                None => tables.push(Table { path, keys: vec![key.row.key] }),
            }
        }
        tables.into_iter()
    }
}

/// The tables of all keys in REFERENCE.md, as Markdown: the second has their meanings.
pub(crate) fn reference() -> String {
    let mut keys = all();
    keys.sort_by_cached_key(|key| format!("{}: {}", key.role, key.path));
    let head = "| role: key | type | default | unit | change |\n|---|---|---|---|---|\n".to_owned();
    let rows = keys.iter().map(line);
    // Without a blank in front, which marks the rows of the first table.
    let list = keys
        .iter()
        .map(|PlacedKey { role, path, sentence, .. }| format!("|`{role}: {path}`|{sentence}|\n"));
    let title = "\n## The meaning of each key\n\n|role: key|meaning|\n|---|---|\n".to_owned();
    std::iter::once(head).chain(rows).chain([title]).chain(list).collect()
}

fn line(key: &PlacedKey) -> String {
    let PlacedKey { role, path, change, row, .. } = key;
    let is = if row.map.is_some() && row.is.is_empty() { "map" } else { row.is };
    let default = match row.default {
        number if number.starts_with(|c: char| c.is_ascii_digit()) => number.to_owned(),
        word if row.is_value => format!("`{word}`"),
        words => words.to_owned(),
    };
    let note = if row.note.is_empty() { String::new() } else { format!(" ({})", row.note) };
    let (unit, change) = (row.unit(), change.name());
    format!("| `{role}: {path}` | {is} | {default}{note} | {unit} | {change} |\n")
}

/// `UPDATE=1` writes the table.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test writes the document of this crate")]
fn the_reference_has_the_table_of_keys() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("REFERENCE.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once("<!-- table: keys -->\n").expect("a table");
    let (table, after) = rest.split_once("<!-- end -->").expect("its end");
    let expected = reference();
    if std::env::var_os("UPDATE").is_some() {
        let whole = [before, "<!-- table: keys -->\n", &expected, "<!-- end -->", after];
        fs::write(path, whole.concat()).unwrap();
    } else {
        assert!(table == expected, "run `cargo xtask docs`");
    }
}

#[test]
fn the_reference_has_exactly_the_keys_of_the_decoder() {
    let mut known: Vec<String> = Vec::new();
    for table in TABLES {
        let (role, path) = table.path.split_once(':').unwrap();
        let dot = if path.is_empty() { "" } else { "." };
        known.extend(table.keys.iter().map(|key| format!("{role}: {path}{dot}{key}")));
    }
    let lines = include_str!("../REFERENCE.md").lines().filter(|line| line.starts_with("| `"));
    let keys =
        lines.map(|line| line.split('|').nth(1).unwrap().trim().trim_matches('`').to_owned());
    known.sort_unstable();
    let keys: BTreeSet<_> = keys.collect();
    assert_eq!(keys.into_iter().collect::<Vec<_>>(), known);
}

//! The tables of REFERENCE.md, which are made from the rows of the keys.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::keys::{KeyRow, PlacedKey, ROLES, of_role};
use crate::model::Change;

/// A key of REFERENCE.md.
#[derive(Clone, Debug)]
pub(crate) struct ListedKey {
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

/// All keys of the files. A key below the top level that server and client have in common is listed
/// once, and stands for that of a proxy as well.
pub(crate) fn all() -> Vec<ListedKey> {
    let [server, client] = ["server", "client"].map(of_role);
    let is_in = |keys: &[PlacedKey], key: &PlacedKey| {
        keys.iter().any(|other| other.path == key.path && other.sentence == key.sentence)
    };
    let is_of_both =
        |key: &PlacedKey| key.path.contains('.') && is_in(&server, key) && is_in(&client, key);
    let mut all = Vec::new();
    for (name, _, _) in ROLES {
        for key in of_role(name) {
            let role = if is_of_both(&key) { "both" } else { name };
            let PlacedKey { path, sentence, change, row } = key;
            if role == name || name == "server" {
                all.push(ListedKey { role, path, change, sentence, row });
            }
        }
    }
    all
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
        .map(|ListedKey { role, path, sentence, .. }| format!("|`{role}: {path}`|{sentence}|\n"));
    let title = "\n## The meaning of each key\n\n|role: key|meaning|\n|---|---|\n".to_owned();
    std::iter::once(head).chain(rows).chain([title]).chain(list).collect()
}

fn line(key: &ListedKey) -> String {
    let ListedKey { role, path, change, row, .. } = key;
    let default = match row.default {
        number if number.starts_with(|c: char| c.is_ascii_digit()) => number.to_owned(),
        word if row.is_value => format!("`{word}`"),
        words => words.to_owned(),
    };
    let note = if row.note.is_empty() { String::new() } else { format!(" ({})", row.note) };
    let (is, unit, change) = (row.kind(), row.unit(), change.name());
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

#[test]
fn each_role_has_its_keys_of_the_reference_once() {
    let listed = all();
    // The maps that server, client and proxy have in common (REFERENCE.md).
    let of_all = ["admin.", "log.", "otlp.", "upgrade."];
    for (role, _, _) in ROLES {
        let is_of_role = |key: &&ListedKey| match key.role {
            "both" if role == "proxy" => of_all.iter().any(|map| key.path.starts_with(map)),
            listed => listed == "both" || listed == role,
        };
        let mut expected: Vec<_> =
            listed.iter().filter(is_of_role).map(|key| (&key.path, &key.sentence)).collect();
        let found = of_role(role);
        let mut found: Vec<_> = found.iter().map(|key| (&key.path, &key.sentence)).collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert!(found.len() > 60, "{role}: {}", found.len());
        assert_eq!(found, expected, "{role}");
    }
    assert!(of_role("run").is_empty());
}

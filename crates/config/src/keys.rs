//! All keys of the files: the maps of the three roles, and the maps in them.

use crate::key_table::KeyTable as _;
pub use crate::key_table::{KeyMap, KeyPlace, KeyRow};
use crate::model::{Change, ClientConfig, KeptLists, ProxyConfig, ServerConfig};

/// A key at its place in the file.
#[derive(Clone, Debug)]
pub struct PlacedKey {
    /// The role, or `both` for server and client.
    pub role: &'static str,
    /// The path in the file: `clients[].limits.streams`.
    pub path: String,
    /// When a changed value takes effect.
    pub change: Change,
    /// The meaning of the key.
    pub sentence: String,
    /// The row of the key.
    pub row: &'static KeyRow,
}

/// The keys of one map of the file.
#[derive(Clone, Debug)]
pub struct Table {
    /// The role, a colon and the path of the map, such as `server:clients[].allow`. For the top
    /// level of the file, nothing follows the colon.
    pub path: String,
    /// The keys.
    pub keys: Vec<&'static str>,
}

/// The files of the three roles.
const ROLES: [(&str, KeyPlace, KeyMap); 3] = [
    ("server", KeyPlace::Server, ServerConfig::MAP),
    ("client", KeyPlace::Client, ClientConfig::MAP),
    ("proxy", KeyPlace::Proxy, ProxyConfig::MAP),
];

/// All keys of the files. A map that server and client have in common is listed once.
#[must_use]
pub fn all() -> Vec<PlacedKey> {
    let mut found = Vec::new();
    for (role, place, map) in ROLES {
        let top =
            Walk { role, place, path: "", of: "", change: Change::Live, group: SharedBy::Own };
        top.map(map, &mut found);
    }
    found
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
            let is_of_both = self.group != SharedBy::Own && row.is_of_both();
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
pub const TABLES: Tables = Tables;

/// See [`TABLES`].
#[derive(Clone, Copy, Debug)]
pub struct Tables;

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

/// Whether `is` holds for a map of any file, or of the lists that a client keeps.
pub(crate) fn any(mut is: impl FnMut(&KeyMap) -> bool) -> bool {
    fn within(map: KeyMap, is: &mut impl FnMut(&KeyMap) -> bool) -> bool {
        is(&map) || map.rows.iter().filter_map(|row| row.map).any(|map| within(map, is))
    }
    let maps = ROLES.iter().map(|(_, _, map)| *map).chain([KeptLists::MAP]);
    maps.into_iter().any(|map| within(map, &mut is))
}

/// The tables of all keys in REFERENCE.md, as Markdown: the second has their meanings.
#[must_use]
pub fn reference() -> String {
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// `UPDATE=1` writes the table.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test writes the document of this crate")]
    fn the_reference_has_the_table_of_keys() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("REFERENCE.md");
        let page = fs::read_to_string(&path).unwrap();
        let (before, rest) = page.split_once("<!-- table: keys -->\n").expect("a table");
        let (table, after) = rest.split_once("<!-- end -->").expect("its end");
        let expected = super::reference();
        if std::env::var_os("UPDATE").is_some() {
            let whole = [before, "<!-- table: keys -->\n", &expected, "<!-- end -->", after];
            fs::write(path, whole.concat()).unwrap();
        } else {
            assert!(table == expected, "run `cargo xtask docs`");
        }
    }
}

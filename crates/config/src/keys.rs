//! All keys of the files: the maps of the three roles, and the maps in them.

use crate::key_table::KeyTable as _;
pub use crate::key_table::{KeyMap, KeyPlace, KeyRow};
use crate::model::{Change, ClientConfig, KeptLists, ProxyConfig, ServerConfig};

/// The files of the three roles.
pub const ROLES: [(&str, KeyPlace, KeyMap); 3] = [
    ("server", KeyPlace::Server, ServerConfig::MAP),
    ("client", KeyPlace::Client, ClientConfig::MAP),
    ("proxy", KeyPlace::Proxy, ProxyConfig::MAP),
];

/// Whether `is` holds for a map of any file, or of the lists that a client keeps.
pub(crate) fn any(mut is: impl FnMut(&KeyMap) -> bool) -> bool {
    fn within(map: KeyMap, is: &mut impl FnMut(&KeyMap) -> bool) -> bool {
        is(&map) || map.rows.iter().filter_map(|row| row.map).any(|map| within(map, is))
    }
    let maps = ROLES.iter().map(|(_, _, map)| *map).chain([KeptLists::MAP]);
    maps.into_iter().any(|map| within(map, &mut is))
}

/// A key at its place in a file.
#[derive(Clone, Debug)]
pub struct PlacedKey {
    /// The path in the file: `clients[].limits.streams`.
    pub path: String,
    /// The meaning of the key.
    pub sentence: String,
    /// When a changed value takes effect.
    pub change: Change,
    /// The row of the key.
    pub row: &'static KeyRow,
}

/// The keys of the file of a role, a map before the keys in it. A name that no role has gives none.
#[must_use]
pub fn of_role(name: &str) -> Vec<PlacedKey> {
    let mut found = Vec::new();
    if let Some((_, place, map)) = ROLES.into_iter().find(|(role, _, _)| *role == name) {
        Walk { place, path: "", of: "", change: Change::Live }.map(map, &mut found);
    }
    found
}

/// A map on the way through a file.
struct Walk<'a> {
    place: KeyPlace,
    path: &'a str,
    of: &'static str,
    change: Change,
}

impl Walk<'_> {
    fn map(&self, map: KeyMap, found: &mut Vec<PlacedKey>) {
        let place = map.at.unwrap_or(self.place);
        for row in map.rows.iter().filter(|row| row.is_at(Some(place))) {
            if row.key.is_empty() {
                row.map.into_iter().for_each(|map| Walk { place, ..*self }.map(map, found));
                continue;
            }
            let dot = if self.path.is_empty() { "" } else { "." };
            let path = format!("{}{dot}{}", self.path, row.key);
            let change = row.change.unwrap_or(self.change);
            let sentence = row.sentence.replace("{of}", self.of);
            found.push(PlacedKey { path: path.clone(), sentence, change, row });
            let Some(map) = row.map else { continue };
            let path = if map.is_list { format!("{path}[]") } else { path };
            let of = if map.of.is_empty() { self.of } else { map.of };
            Walk { path: &path, place, of, change }.map(map, found);
        }
    }
}

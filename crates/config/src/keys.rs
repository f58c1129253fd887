//! All keys of the files: the maps of the three roles, and the maps in them.

use crate::key_table::KeyTable as _;
pub use crate::key_table::{KeyMap, KeyPlace, KeyRow};
use crate::model::{ClientConfig, KeptLists, ProxyConfig, ServerConfig};

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

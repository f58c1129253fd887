//! What a key of the configuration is: a row of a table. A struct of the model with
//! `#[derive(KeyTable)]` declares the keys of a map of the file; the crate `config-derive` lists
//! the attributes of a key.
//!
//! From the rows come the check of unknown keys, the reading of values, the classes of secrets, the
//! comparison of two files, and the rows of REFERENCE.md.

pub(crate) use config_derive::KeyTable;

use crate::model::change::Change;

/// The keys of a map, and how its values are read.
pub(crate) trait KeyTable: Sized {
    /// The keys in the order of error messages.
    const ROWS: &'static [KeyRow];
    /// The keys of later versions. A later key is no typing error, so it has its own message.
    const LATER: &'static [&'static str];

    /// The map with these keys.
    const MAP: KeyMap =
        KeyMap { rows: Self::ROWS, later: Self::LATER, of: "", at: None, is_list: false };

    /// The map that is the value of a key.
    fn map(key: &str) -> KeyMap {
        let found = Self::ROWS.iter().find(|row| row.key == key).and_then(|row| row.map);
        found.unwrap_or(Self::MAP)
    }

    /// The default of a key.
    fn usual(key: &str) -> &'static str {
        Self::ROWS.iter().find(|row| row.key == key).map_or("", |row| row.default)
    }

    /// When a changed value of the key at a path takes effect.
    fn change(path: &str) -> Change {
        let mut map = Self::MAP;
        let mut change = Change::Live;
        for key in path.split('.') {
            let Some(row) = map.rows.iter().find(|row| row.key == key) else { break };
            change = row.change.unwrap_or(change);
            map = row.map.unwrap_or(map);
        }
        change
    }
}

/// A key.
#[derive(Clone, Copy, Debug)]
pub struct KeyRow {
    /// The key; empty: the keys of `map` belong to the map around it.
    pub key: &'static str,
    /// The meaning of the key, as one sentence. `{of}` stands for the owner of the map.
    pub sentence: &'static str,
    /// The type of the value, for readers. Empty for a map.
    pub is: &'static str,
    /// The value of an absent key, or a word for its absence.
    pub default: &'static str,
    /// Whether `default` is a value that the key could have.
    pub is_value: bool,
    /// An explanation of the default.
    pub note: &'static str,
    /// The unit, where the type does not give it.
    pub unit: &'static str,
    /// When a changed value takes effect; `None`: as for the map.
    pub change: Option<Change>,
    /// The class of the content.
    pub holds: Holds,
    /// The first version of `tunnel` with the key.
    pub since: &'static str,
    /// The position in error messages: keys of a lower rank stand first.
    pub rank: u8,
    /// The places of the map at which the key exists; empty: all.
    pub only: &'static [KeyPlace],
    /// The map that is the value.
    pub map: Option<KeyMap>,
}

/// The value of a key that has keys of its own.
#[derive(Clone, Copy, Debug)]
pub struct KeyMap {
    /// The keys.
    pub rows: &'static [KeyRow],
    /// The keys of later versions.
    pub later: &'static [&'static str],
    /// The owner of the map for sentences: `of the client`.
    pub of: &'static str,
    /// The place, if the keys depend on it; `None`: the place of the map around it.
    pub at: Option<KeyPlace>,
    /// Whether the value is a list of such maps.
    pub is_list: bool,
}

/// A place of a map that stands at several places with different keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the roles and sections")]
pub enum KeyPlace {
    Server,
    Client,
    Proxy,
    Listener,
    Grant,
    Service,
    Forward,
    Balancer,
    Path,
}

impl KeyMap {
    /// The keys at a place.
    pub(crate) fn at(self, place: Option<KeyPlace>) -> Vec<&'static KeyRow> {
        let mut all = Vec::new();
        for row in self.rows {
            match row.map {
                Some(map) if row.key.is_empty() => all.extend(map.at(map.at.or(place))),
                _ if row.is_at(place) => all.push(row),
                _ => {}
            }
        }
        all.sort_by_key(|row| row.rank);
        all
    }
}

impl KeyRow {
    /// Whether the key exists at a place.
    pub(crate) fn is_at(&self, place: Option<KeyPlace>) -> bool {
        self.only.is_empty() || place.is_some_and(|place| self.only.contains(&place))
    }

    /// The type of the value, for readers: `map`, where the row has no other word for a map.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        if self.map.is_some() && self.is.is_empty() { "map" } else { self.is }
    }

    /// Whether the value is a secret, or a map or list of secrets. A URL, which may have a password
    /// before its host, and the path of a file with a secret are none.
    #[must_use]
    pub const fn is_secret(&self) -> bool {
        matches!(self.holds, Holds::Token | Holds::Passwords | Holds::Fields)
    }

    /// The unit of the value.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        match self.is.split(',').next().unwrap_or_default() {
            _ if !self.unit.is_empty() => self.unit,
            "duration" => "time",
            "size" => "bytes",
            "rate" => "bytes per second",
            _ => "",
        }
    }
}

/// Gives a closure of the derive the type of its argument.
pub(crate) const fn of<T, V>(of: impl Fn(&T) -> V) -> impl Fn(&T) -> V {
    of
}

/// The kind of content of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// No secret.
    Nothing,
    /// A token, or a list of tokens. The key `…_file` names a file that holds it instead.
    Token,
    /// The path of a token file. By mistake, the value may be the token itself.
    TokenFile,
    /// `user:password`, or a list of such pairs.
    Passwords,
    /// Header fields: a map from names to values, which a service has below `set`.
    Fields,
    /// A URL, or another address. It may have a user name and a password before its host.
    Url,
    /// The file of a private key, or of the certificate for a private key.
    KeyFile,
}

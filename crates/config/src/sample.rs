//! Commented files with every key, for `tunnel generate config server|client`. What differs from
//! the default is written out; the rest is a comment with the default.

/// A server.yaml.
pub const SERVER: &str = include_str!("sample/server.yaml");

/// A client.yaml.
pub const CLIENT: &str = include_str!("sample/client.yaml");

//! The plain data of `tunnel move`: the links of a client that have moved to another path.

use serde::{Deserialize, Serialize};

/// The outcome of a move of all links of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MovedLinks {
    /// The links that have the path now.
    pub moved: Vec<MovedLink>,
    /// The links that were not moved.
    pub failed: Vec<UnmovedLink>,
}

/// A link that has moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MovedLink {
    /// The number of the link in logs.
    pub link: u64,
    /// The previous path.
    pub from: String,
    /// The present path. It is the previous path if the link had the path already.
    pub to: String,
}

/// A link that has not moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnmovedLink {
    /// The number of the link in logs.
    pub link: u64,
    /// Why the link has not moved, for a person.
    pub error: String,
}

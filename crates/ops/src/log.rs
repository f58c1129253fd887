//! The latest lines of a daemon's log. Field names are an interface: fields are added, and none is
//! removed.

use serde::{Deserialize, Serialize};

/// A line of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Line {
    /// The number of the line, from 1 since the start of the daemon.
    pub seq: u64,
    /// The time of the line, in milliseconds since 1970.
    pub unix_millis: u64,
    /// `ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`.
    pub level: String,
    /// The part of the program, or `audit`.
    pub target: String,
    /// Message and fields. It may contain text of a peer.
    pub text: String,
}

/// Log lines, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lines {
    /// The number of requested lines that are no longer kept.
    pub lost: u64,
    /// The number of the last line of the log.
    pub last: u64,
    pub lines: Vec<Line>,
}

//! A client on hold.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::term::duration;

/// A client on hold: its names answer 503.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    /// The seconds since the command.
    pub seconds: u64,
    /// The seconds after which a visitor may retry (`Retry-After`).
    pub retry_after_seconds: u64,
    /// The hold has a page of its own.
    pub page: bool,
}

/// A readable description.
impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, retry_after_seconds, page } = *self;
        let (since, after) = (duration(seconds), duration(retry_after_seconds));
        let page = if page { "a page of its own" } else { "the page for unavailable services" };
        write!(f, "for {since}: visitors of its names get 503 with {page}, Retry-After {after}")
    }
}

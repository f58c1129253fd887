//! The configuration file as the admin API shows it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::command::Json;

/// The error of a daemon without a configuration file.
pub const NONE: &str = "it was started without a configuration file";

/// A configuration file with its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    pub path: PathBuf,
    /// Whether the file can be written.
    pub writable: bool,
    /// The reason why the file cannot be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// The content, without secrets.
    pub config: Json,
    /// The entity tag of the file.
    #[serde(default)]
    pub etag: String,
    /// The text, with `(secret)` in place of secrets; absent where a secret cannot be cut out
    /// safely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Whether the last change can be undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undo: bool,
}

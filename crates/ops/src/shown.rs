//! The configuration file as the admin API shows it.

use std::path::PathBuf;

use config::edit::Value;

/// The error of a daemon without a configuration file.
pub const NONE: &str = "it was started without a configuration file";

/// A configuration file with its path.
#[derive(Debug)]
pub struct Shown {
    pub path: PathBuf,
    /// The reason for which the file cannot be written, if there is one.
    pub read_only: Option<String>,
    /// The content, without secrets.
    pub config: Value,
}

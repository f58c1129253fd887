//! The configuration's file as the admin API shows it.

use std::path::PathBuf;

use config::edit::Value;

/// Whoever was started without one.
pub const NONE: &str = "it was started without a configuration file";

/// What is told of it.
#[derive(Debug)]
pub struct Shown {
    pub path: PathBuf,
    /// Why it cannot be written, if so.
    pub read_only: Option<String>,
    /// Without secrets.
    pub config: Value,
}

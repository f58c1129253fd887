//! Errors of TLS material.

use std::path::{Path, PathBuf};

use transport::CarrierError;

/// A certificate, key or CA that cannot be used. The message is one line with the file and the
/// problem.
#[derive(Debug, thiserror::Error)]
pub enum MaterialError {
    /// A file is unusable.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The problem and the remedy.
        problem: String,
    },
    /// A setting is unusable.
    #[error("{0}")]
    Setting(String),
}

impl From<MaterialError> for CarrierError {
    fn from(error: MaterialError) -> Self {
        Self::Config(error.to_string())
    }
}

impl MaterialError {
    pub(super) fn file(path: &Path, problem: impl ToString) -> Self {
        Self::File { path: path.to_path_buf(), problem: problem.to_string() }
    }
}

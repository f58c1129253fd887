//! What is wrong with TLS material, and in which file.

use std::path::{Path, PathBuf};

use transport::CarrierError;

/// A certificate, key or CA that cannot be used. One line: the file and what is wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum MaterialError {
    /// A file is at fault.
    #[error("{}: {problem}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The settings are at fault, no file.
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

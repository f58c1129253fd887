//! What proves a name, and fields of HTTP whose values may prove one.

use std::path::PathBuf;

use crate::Secret;

/// A token and the file that it was read from, so that the caller can check the permissions of the
/// file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The token.
    pub secret: Secret,
    /// The path of the `token_file` as written; `None` if the token came from another source.
    pub file: Option<PathBuf>,
}

/// A certificate chain and its key: PEM files, with paths as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyPair {
    /// The file with the chain.
    pub cert: PathBuf,
    /// The file with the key.
    pub key: PathBuf,
}

/// A header field of HTTP. The value may be a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name as written in the file.
    pub name: String,
    /// The value after the colon.
    pub value: Secret,
}

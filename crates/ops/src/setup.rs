//! The set-up page of a start without parameters: the choices of the user, and their result.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Role;
use crate::revision::Finding;

/// The choices of the user. Fields of the other role are ignored, and an empty text omits the part.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// `server` or `client`.
    pub role: Role,
    /// Server: its listening addresses, as `listen` of the configuration; separated by commas.
    #[serde(default)]
    pub listen: String,
    /// Server: the name of its first client.
    #[serde(default)]
    pub client: String,
    /// Server: the TCP and UDP ports that this client may publish; separated by commas.
    #[serde(default)]
    pub ports: String,
    /// Client: the code of the server. It is secret.
    #[serde(default)]
    pub code: String,
    /// Client: the target of its first service, as after `=` of `--publish`.
    #[serde(default)]
    pub target: String,
    /// Client: the public address of that service, as before `=` of `--publish`.
    #[serde(default)]
    pub public: String,
    /// The address of the web console.
    #[serde(default)]
    pub console: String,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("role", &self.role).finish_non_exhaustive()
    }
}

/// The initial data of the page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// The role that the command line names.
    pub role: Role,
    /// The folder for the file.
    pub folder: PathBuf,
    /// The files of this folder that already exist, and are therefore not written.
    pub taken: Vec<String>,
    /// The defaults of the fields of [`Plan`].
    pub listen: String,
    pub client: String,
    pub ports: String,
    pub console: String,
    /// How long the page can still be used, in seconds.
    pub ends_seconds: u64,
}

/// A preview of the file. No field contains a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Draft {
    /// Whether a daemon could start with the file.
    pub ok: bool,
    pub path: PathBuf,
    /// The text of the file; `(secret)` replaces a secret. Empty where an invalid field prevents a
    /// text.
    pub text: String,
    /// The effects of the file, line by line.
    pub runs: Vec<String>,
    pub warnings: Vec<String>,
    pub problems: Vec<Finding>,
}

/// The file that was written. No field contains a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    pub role: Role,
    pub path: PathBuf,
    /// The remaining steps on the other machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<String>,
    /// Whether the daemon has a web console.
    pub console: bool,
}

/// Makes the configuration file of a new daemon. The calls wait for files and, on a client, for the
/// server.
pub trait SetUp: Send + Sync {
    /// The initial data of the page; `ends_seconds` is 0.
    fn facts(&self) -> Facts;

    /// The preview of the file, validated by the parser of the daemon.
    fn draft(&self, plan: &Plan) -> Draft;

    /// Writes the file.
    ///
    /// # Errors
    /// The draft is invalid ([`WrongConfig`](crate::WrongConfig)), a file of this name exists, the
    /// server refuses the code, or the file cannot be written. No file exists in this case.
    fn write(&self, plan: &Plan) -> anyhow::Result<Written>;
}

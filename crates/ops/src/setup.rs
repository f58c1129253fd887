//! The set-up page of a start without parameters: what a person chooses, and what becomes of it.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Role;
use crate::revision::Finding;

/// What a person has chosen. Fields of the other role are ignored, and an empty text means that the
/// part is left out.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// `server` or `client`.
    pub role: Role,
    /// Server: where it listens, as `listen` of the configuration; several with commas.
    #[serde(default)]
    pub listen: String,
    /// Server: the name of its first client.
    #[serde(default)]
    pub client: String,
    /// Server: the ports of TCP and UDP that this client may publish; several with commas.
    #[serde(default)]
    pub ports: String,
    /// Client: the code of the server. It is a secret.
    #[serde(default)]
    pub code: String,
    /// Client: the target of its first service, as behind `=` of `--publish`.
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

/// What the page begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// The role that the command line names.
    pub role: Role,
    /// The folder in which the file will be.
    pub folder: PathBuf,
    /// The files of this folder that are there already, and so are not written.
    pub taken: Vec<String>,
    /// The defaults of the fields of [`Plan`].
    pub listen: String,
    pub client: String,
    pub ports: String,
    pub console: String,
    /// How long the page can still be used, in seconds.
    pub ends_seconds: u64,
}

/// The file as it would be written. No field has a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Draft {
    /// Whether a daemon could start with the file.
    pub ok: bool,
    pub path: PathBuf,
    /// The text of the file; `(secret)` stands for a secret. Empty where a field is so wrong that
    /// there is none.
    pub text: String,
    /// What the file would run, line by line.
    pub runs: Vec<String>,
    pub warnings: Vec<String>,
    pub problems: Vec<Finding>,
}

/// The file that was written. No field has a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    pub role: Role,
    pub path: PathBuf,
    /// What is to be done on the other machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<String>,
    /// Whether the daemon has a web console.
    pub console: bool,
}

/// Makes the configuration file of a new daemon. The calls wait for files and, on a client, for the
/// server.
pub trait SetUp: Send + Sync {
    /// What the page begins with; `ends_seconds` is 0.
    fn facts(&self) -> Facts;

    /// The file as it would be written, judged by the parser of the daemon.
    fn draft(&self, plan: &Plan) -> Draft;

    /// Writes the file.
    ///
    /// # Errors
    /// The draft is wrong ([`WrongConfig`](crate::WrongConfig)), a file of this name is there, the
    /// server refuses the code, or the file cannot be written. There is no file then.
    fn write(&self, plan: &Plan) -> anyhow::Result<Written>;
}

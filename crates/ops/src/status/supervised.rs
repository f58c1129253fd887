//! The daemons that `tunnel run` supervises.

use serde::{Deserialize, Serialize};

use super::{Status, SupervisedState, Told};
use crate::Role;

/// A daemon of `tunnel run`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Supervised {
    /// The name: the path of the file below the folder of `--config`, without its extension.
    pub name: String,
    /// The path of the file.
    pub file: String,
    /// The role that the content of the file determines; absent if it determines none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The state of the daemon. The text of a failure is its reason.
    #[serde(flatten)]
    pub state: Told<SupervisedState>,
    /// The process id; absent while there is no process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The seconds since the process started; absent while there is no process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uptime_seconds: Option<u64>,
    /// The number of starts after the first.
    pub restarts: u64,
    /// The daemon's own summary in one line; absent before it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The path of the control socket; absent while it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<String>,
    /// The status of the daemon itself, which `tunnel status` queries; absent if the daemon does
    /// not respond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Box<Status>>,
}

/// The daemons that `tunnel restart` has asked to end, and that will start again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Restarted {
    /// The names, in their order.
    pub names: Vec<String>,
}

//! Changes of a running client's services and forwards, as data.

use serde::{Deserialize, Serialize};

/// The order to change the services and forwards of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListChange {
    /// Services to publish, in the form of `--publish`.
    pub publish: Vec<String>,
    /// Forwards to open, in the form of `--forward`.
    pub forward: Vec<String>,
    /// Services to withdraw, by name, and forwards to close, by the address of their listener.
    pub without: Vec<String>,
    /// The change goes into the configuration file instead of the state directory.
    pub save: bool,
}

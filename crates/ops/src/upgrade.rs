//! The upgrade of a running daemon to another binary.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::SendFuture;

/// An order to continue in a new process of a binary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeOrder {
    /// The binary. `None`: the current version of the file from which the daemon was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<PathBuf>,
    /// A daemon that was started from a different file is left unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<PathBuf>,
    /// The deadline by which the new process must be ready, in milliseconds.
    pub timeout_millis: u64,
}

/// The outcome of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upgraded {
    /// The id of the new process.
    pub pid: u32,
    /// The version of the new process.
    pub version: String,
    /// The id of the former process, which ends after its last stream.
    pub former_pid: u32,
    /// The version of the former process.
    pub former_version: String,
    /// The streams and flows that continue in the former process.
    pub streams: u64,
    /// Whether the former process stays as the parent of the new process: it was started by a
    /// program that may watch it, other than the service manager systemd.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parent: bool,
}

/// A daemon that can continue in a new process.
pub trait Upgrade: Send + Sync {
    /// Starts the new process, and hands the listening sockets over when the process is ready.
    /// `None`: the daemon was started from a file other than that of the order.
    ///
    /// # Errors
    /// The new process is not ready in time, or reports why it cannot serve. Then this process
    /// continues to serve as before.
    fn upgrade(&self, order: UpgradeOrder) -> SendFuture<'_, anyhow::Result<Option<Upgraded>>>;
}

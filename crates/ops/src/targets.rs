//! The targets that a daemon dials itself, as a capability of the daemon.

use serde::{Deserialize, Serialize};

use crate::status;

/// The order to drain targets, or to end the drain. A drained target gets no new visitors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainOrder {
    /// The name of a service, which means all of its targets, or a target as the status shows it,
    /// with or without its scheme, in each service that has it.
    pub name: String,
    /// Ends the drain.
    #[serde(default)]
    pub off: bool,
}

/// The outcome of an order to drain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Drained {
    /// The targets that the order names.
    pub targets: Vec<DrainedTarget>,
    /// Those of their services that refuse new visitors, because all targets are drained.
    pub services: Vec<String>,
}

/// A target after an order to drain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainedTarget {
    pub service: String,
    pub target: String,
    /// Whether the target is drained.
    pub draining: bool,
}

/// The targets of all services of a client, or of all entries of a proxy.
pub trait Targets: Send + Sync {
    /// Sets what is known of the targets of a service in the status of the service.
    fn report(&self, service: &config::Service, status: &mut status::Service);

    /// Drains targets, or ends their drain. The state is lost with the process, and with the
    /// service or the target.
    ///
    /// # Errors
    /// There is no service or target of this name. The message lists those that are known.
    fn drain(&self, order: &DrainOrder) -> anyhow::Result<Drained>;
}

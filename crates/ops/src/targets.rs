//! The targets that a daemon dials itself, as a capability of the daemon.

use crate::status;

/// The targets of all services of a client, or of all entries of a proxy.
pub trait Targets: Send + Sync {
    /// Sets what is known of the targets of a service in the status of the service.
    fn report(&self, service: &config::Service, status: &mut status::Service);
}

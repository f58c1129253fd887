//! Changes of the network of this machine: the links of the client move at once instead of after a
//! time-out.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use net::{NetworkChange, NetworkChanges, own};
use node::session::{Handle, Worker};

use super::shared::ClientShared;

/// Tells the links of each change, until the client stops.
pub(super) async fn follow(handles: Arc<[Handle]>, shared: Arc<ClientShared>) {
    let mut changes = match NetworkChanges::open() {
        Ok(changes) => changes,
        Err(error) => {
            tracing::debug!(%error, "the kernel does not announce changes of the network");
            return;
        }
    };
    loop {
        let change = match changes.next().await {
            Ok(change) => change,
            Err(error) => {
                tracing::debug!(%error, "the kernel announces no more changes of the network");
                return;
            }
        };
        let is_complete = change == NetworkChange::Complete;
        if is_complete {
            shared.measured.network_changed();
            tracing::debug!("the network of this machine has changed");
            shared.network_changes.fetch_add(1, Ordering::Relaxed);
        }
        let sessions: Arc<[u64]> =
            shared.uplinks.all().iter().map(|uplink| uplink.session().id).collect();
        for handle in handles.iter() {
            let sessions = Arc::clone(&sessions);
            let tell = move |worker: &Rc<Worker>| {
                if is_complete {
                    worker.state.redial.now();
                }
                for (_, link) in sessions.iter().flat_map(|id| worker.state.links_of(*id)) {
                    if is_complete {
                        link.network_changed(own::is_usable);
                    } else {
                        link.leave_addresses(own::is_usable);
                    }
                }
            };
            // A worker that has stopped has no links.
            let _ = handle.call(tell).await;
        }
    }
}

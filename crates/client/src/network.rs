//! Changes of the network of this machine: the links of the client move at once instead of after a
//! time-out.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use net::{NetworkChanges, own};
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
        if let Err(error) = changes.next().await {
            tracing::debug!(%error, "the kernel announces no more changes of the network");
            return;
        }
        shared.measured.network_changed();
        let sessions: Arc<[u64]> =
            shared.uplinks.all().iter().map(|uplink| uplink.session().id).collect();
        tracing::debug!("the network of this machine has changed");
        shared.network_changes.fetch_add(1, Ordering::Relaxed);
        for handle in handles.iter() {
            let sessions = Arc::clone(&sessions);
            let tell = move |worker: &Rc<Worker>| {
                worker.state.redial.now();
                for (_, link) in sessions.iter().flat_map(|id| worker.state.links_of(*id)) {
                    link.network_changed(own::is_usable);
                }
            };
            // A worker that has stopped has no links.
            let _ = handle.call(tell).await;
        }
    }
}

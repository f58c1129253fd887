//! What a client asks its server to publish: the complete set on each new link, nothing when it
//! leaves, and the set again while a service waits for a port that may become free.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use link::Link;
use proto::control::{ControlMessage, Register, ServiceSpec};
use proto::greeting::Name;

use super::ClientShared;
use crate::session::Handle;

/// How often a server is asked again for what it could not give. Somebody who mends a taken port
/// does not wait longer than it takes to look; a thousand clients cost a server nothing by it.
const AGAIN: Duration = Duration::from_secs(15);

/// The first generation of a process's set.
pub(super) const FIRST: u64 = 1;

/// Registers the set of this moment.
pub(super) fn register(link: &Link, shared: &ClientShared) {
    let generation = shared.generation.load(Ordering::Acquire);
    let services = if shared.leaving.load(Ordering::Relaxed) {
        Vec::new()
    } else {
        shared.config.load().services.iter().filter_map(spec).collect()
    };
    let message = ControlMessage::Register(Register { generation, services });
    if !link.send_message(&message) {
        tracing::error!("the set of services does not fit one registration; publish fewer");
    }
}

fn spec(service: &config::Service) -> Option<ServiceSpec> {
    let priority = match service.priority {
        config::Priority::Interactive => proto::Priority::Interactive,
        config::Priority::Normal => proto::Priority::Normal,
        config::Priority::Bulk => proto::Priority::Bulk,
    };
    let Ok(name) = Name::new(&service.name) else {
        tracing::error!(
            service = service.name,
            "the name has characters that services cannot have"
        );
        return None;
    };
    Some(ServiceSpec {
        name,
        public: service.public.iter().map(ToString::to_string).collect(),
        priority,
        shared: false,
        resume: true,
    })
}

/// Takes all services back, so that the server accepts no more visitors for them. For a client that
/// is leaving.
pub(super) async fn withdraw(handles: &[Handle], shared: &Arc<ClientShared>) {
    anew(handles, shared).await;
}

/// Asks again as long as something is refused that may be given later.
pub(super) async fn insist(handles: Arc<[Handle]>, shared: Arc<ClientShared>) {
    loop {
        tokio::time::sleep(AGAIN).await;
        if shared.leaving.load(Ordering::Relaxed) {
            return;
        }
        if shared.published.waits_for_more() {
            anew(&handles, &shared).await;
        }
    }
}

/// Registers under the next generation, over every link that is not retired: the server answers one
/// of them. One that has no carrier at the moment says it when it has.
pub(super) async fn anew(handles: &[Handle], shared: &Arc<ClientShared>) {
    shared.generation.fetch_add(1, Ordering::Release);
    let session = shared.links.load().session.id;
    for handle in handles {
        let shared = Arc::clone(shared);
        let told = handle.call(move |worker| {
            for (of, link) in worker.state.all_links() {
                if of.id == session {
                    register(&link, &shared);
                }
            }
        });
        // A worker that is gone has no links.
        let _ = told.await;
    }
}

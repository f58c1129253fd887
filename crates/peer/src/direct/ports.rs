//! The ports that the router opened for the trials of a client.
//!
//! Each port is kept by a task of the runtime that stops the client. A worker ends its tasks at
//! once, but the router must be informed that a port is no longer used.

use std::sync::Arc;
use std::time::Duration;

use punch::mapper::{Mapped, Unmapped};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};
use transport_quic::punched::{PunchSettings, Router, Trial};

/// The maximum number of ports of a client at a time. Home routers have room for a few hundred.
const MAX: usize = 32;

/// The time that a shutdown waits for the router. A router that answers at all has answered by
/// then.
const GIVEN_BACK: Duration = Duration::from_millis(1_500);

/// The ports of the router that lead to trials of this client.
#[derive(Debug)]
pub struct Ports {
    runtime: Handle,
    router: Arc<Router>,
    /// The number of ports that are requested, held or being released.
    count: watch::Sender<usize>,
}

/// A slot among the ports.
struct Held(Arc<Ports>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| *count -= 1);
    }
}

impl Ports {
    /// Must be called in the runtime in which the client is stopped.
    pub(super) fn new() -> Self {
        Self { runtime: Handle::current(), router: Arc::default(), count: watch::Sender::new(0) }
    }

    fn hold(self: &Arc<Self>) -> Option<Held> {
        let has_room = self.count.send_if_modified(|count| {
            let has_room = *count < MAX;
            *count += usize::from(has_room);
            has_room
        });
        has_room.then(|| Held(Arc::clone(self)))
    }

    /// Requests a port that leads to a trial from the router, if the trial finds no path without
    /// one.
    pub(super) fn map(self: &Arc<Self>, trial: &Trial) {
        match (self.hold(), trial.map_port(Arc::clone(&self.router))) {
            (Some(held), Ok(mapping)) => {
                self.runtime.spawn(async move {
                    mapping.await;
                    drop(held);
                });
            }
            _ => trial.path().mapped(None),
        }
    }

    /// Requests a port from the router, and releases it. `None`: the router has not answered until
    /// `until`, or there is no socket for the request.
    pub async fn probe(
        self: &Arc<Self>,
        settings: PunchSettings,
        until: Instant,
    ) -> Option<Result<Mapped, Unmapped>> {
        let held = self.hold()?;
        let router = Arc::clone(&self.router);
        let (tell, found) = oneshot::channel();
        let (_end, ended) = oneshot::channel::<()>();
        let mut tell = Some(tell);
        self.runtime.spawn(async move {
            let mut tell = |outcome| {
                let tell = tell.take();
                // The caller may have given up.
                let _ = tell.map(|tell| tell.send(outcome));
            };
            let ended = Box::pin(async move { drop(ended.await) });
            if let Err(error) = router.probe(&settings, ended, &mut tell).await {
                tracing::debug!(%error, "no socket to ask the router for a port");
            }
            drop(held);
        });
        timeout_at(until, found).await.ok()?.ok()
    }

    /// Waits until the router has released all ports, for a limited time. The trials have ended.
    pub async fn given_back(&self) {
        let mut count = self.count.subscribe();
        // The remaining leases expire.
        let _ = timeout(GIVEN_BACK, count.wait_for(|count| *count == 0)).await;
    }
}

//! Checks of the targets of services with `health`: the client connects to the target and closes the
//! connection. Without `health` only visitors find out whether a target serves.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use config::{Check, Service};
use net::resolve::Lookups;
use relay::dial::dial;
use tokio::task::spawn_local;
use tokio::time::Instant;

use super::ClientShared;
use super::owner::target;
use crate::descriptors;
use crate::watch::TargetWatch;

/// The longest pause between two looks at the configuration, which a reload may change.
const LOOK: Duration = Duration::from_secs(5);

/// Checks targets until the client leaves. Runs on one worker.
pub(super) async fn check_targets(shared: Arc<ClientShared>) {
    let mut due: HashMap<String, Instant> = HashMap::new();
    loop {
        if shared.leaving.load(Ordering::Relaxed) {
            return;
        }
        let (config, now) = (shared.config.load_full(), Instant::now());
        let checked = config.services.iter().filter_map(|s| Some((s, s.health?)));
        let mut next = HashMap::new();
        for (service, check) in checked {
            let mut at = due.get(&service.name).copied().unwrap_or(now);
            if at <= now {
                begin(&shared, service, check);
                at = now + check.interval.duration();
            }
            // A shorter interval takes effect at once.
            next.insert(service.name.clone(), at.min(now + check.interval.duration()));
        }
        due = next;
        let first = due.values().min().copied();
        let until = first.unwrap_or(now + LOOK).min(now + LOOK);
        tokio::time::sleep_until(until).await;
    }
}

/// Starts one check. A check that hangs delays no other check, and ends before the next check of the
/// same target begins, because its time-out is not longer than the interval.
fn begin(shared: &ClientShared, service: &Service, check: Check) {
    let to = service.target.to_string();
    let health = shared.healths.of(&service.name, &to);
    let watch = TargetWatch { service: service.name.clone(), target: to, health };
    let (target, timeout) = (target(&service.target), check.timeout.duration());
    let lookups = Rc::new(Lookups::default());
    spawn_local(async move {
        let room = descriptors::room();
        match dial(&target, None, timeout, room, &lookups).await {
            Ok(dialled) => {
                // A target that speaks first, or that logs resets, sees a clean end.
                drop(dialled.keep());
                watch.note(Ok(()));
            }
            Err(error) => watch.note(Err(&error)),
        }
    });
}

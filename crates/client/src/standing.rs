//! The task that moves the services of a client between its servers: it follows the state of the
//! servers, asks [`Charge`] which server is in charge, and registers the services there.

use std::sync::Arc;
use std::time::Duration;

use config::Policy;
use node::session::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::charge::{Charge, SeenServer};
use super::shared::ClientShared;
use super::uplink::Uplink;
use super::{keeping, register};

/// The period at which the round-trip time to each server is measured for `use: nearest`.
const MEASURE: Duration = Duration::from_secs(10);

/// The period at which the server in charge is asked for a sign of life. An idle link is silent for
/// longer, and nobody would notice that the machine of the server has lost its power.
const ALIVE: Duration = Duration::from_secs(5);

/// The interval of a look for servers that have not been measured yet.
const NEW: Duration = Duration::from_secs(1);

/// The limit for the answer of a server to a measurement.
const PATIENCE: Duration = Duration::from_secs(3);

/// The longest wait for the registration at the next server, before the services of the former
/// server are withdrawn. Visitors of the former server are served meanwhile.
const ANSWER: Duration = Duration::from_secs(5);

/// The interval of a look at a server whose answer is awaited.
const STEP: Duration = Duration::from_millis(50);

/// The period of a look at the servers without a notification. A link that becomes unresponsive
/// gives none.
const LOOK: Duration = Duration::from_secs(1);

/// Keeps one server in charge, or all. Ends when the client stops.
pub(super) async fn stand(handles: Arc<[Handle]>, shared: Arc<ClientShared>) {
    // A process that replaces another knows the server that was in charge.
    let all = shared.uplinks.all();
    let former = all.iter().find(|uplink| shared.continues && uplink.is_in_charge());
    let first = all.first().filter(|_| shared.config.load().policy == Policy::Failover);
    let mut charge = match (former, first) {
        (None, Some(first)) => Charge::of_start(Instant::now(), first.id),
        (former, _) => Charge::new(Instant::now(), former.map(|uplink| uplink.id)),
    };
    drop(all);
    while !shared.is_leaving() {
        let stirred = shared.uplinks.stirred.notified();
        let policy = shared.config.load().policy;
        let all = shared.uplinks.all();
        let now = Instant::now();
        if all.len() < 2 || !policy.is_single() {
            shared.uplinks.note_why(None);
            settle(&handles, &shared, &all, None).await;
            charge = Charge::new(now, None);
            stirred.await;
            continue;
        }
        let before = all.iter().find(|uplink| uplink.is_in_charge()).map(|uplink| uplink.id);
        let seen: Vec<_> = all.iter().map(|uplink| see(&shared, uplink)).collect();
        let said = charge.decide(now, &seen, policy);
        shared.uplinks.note_why(Some(charge.why().to_string()));
        if !settle(&handles, &shared, &all, said.charge).await {
            charge = Charge::new(Instant::now(), before);
        }
        let next = said.again.unwrap_or(now + LOOK).min(now + LOOK).max(now);
        tokio::select! {
            () = stirred => {}
            () = sleep_until(next) => {}
        }
    }
}

/// What is known of a server. Where paths are chosen by measurement, a server that this process has
/// not measured yet has the figures of the present network.
fn see(shared: &ClientShared, uplink: &Uplink) -> SeenServer {
    let (remembered, goodput) = shared.measured.of_server(&uplink.label(), &uplink.links());
    let rtt = uplink.rtt().or(remembered);
    SeenServer { id: uplink.id, answers: uplink.session().answers(), rtt, goodput }
}

/// Measures the round-trip times to the servers of a client of which one server is in charge. Ends
/// when the client stops.
pub(super) async fn measure(handles: Arc<[Handle]>, shared: Arc<ClientShared>) {
    let mut all_at = Instant::now();
    while !shared.is_leaving() {
        shared.uplinks.choose(|| shared.config.load().policy).await;
        let policy = shared.config.load().policy;
        let all = shared.uplinks.all();
        let now = Instant::now();
        let is_nearest = policy == Policy::Nearest;
        let is_round = is_nearest && now >= all_at;
        if is_round {
            all_at = now + MEASURE;
        }
        let is_due = |uplink: &&Arc<Uplink>| {
            let is_new = is_nearest && uplink.rtt().is_none();
            uplink.session().answers() && (is_round || is_new || uplink.is_in_charge())
        };
        let mut pings = JoinSet::new();
        for uplink in all.iter().filter(is_due) {
            let (handles, uplink) = (Arc::clone(&handles), Arc::clone(uplink));
            pings.spawn_local(async move {
                let ping = probes::ping_links(&handles, &uplink.session(), PATIENCE).await;
                let least = ping.links.iter().filter_map(|link| link.micros).min();
                least.into_iter().for_each(|rtt| uplink.note_rtt(Duration::from_micros(rtt)));
            });
        }
        while pings.join_next().await.is_some() {}
        shared.uplinks.stirred.notify_one();
        let has_new = is_nearest && all.iter().any(|uplink| uplink.rtt().is_none());
        sleep(if has_new { NEW } else { ALIVE }).await;
    }
}

/// Puts the server with the id `charge` in charge, or all servers, and withdraws the services from
/// the others. The next server publishes the services first. False: the next server has not
/// answered, and the former server keeps the services.
async fn settle(
    handles: &[Handle],
    shared: &Arc<ClientShared>,
    all: &[Arc<Uplink>],
    charge: Option<u64>,
) -> bool {
    let is_chosen = |uplink: &&Arc<Uplink>| charge.is_none_or(|id| id == uplink.id);
    let changed: Vec<_> =
        all.iter().filter(is_chosen).filter(|uplink| uplink.set_charge(true)).collect();
    let former: Vec<_> =
        all.iter().filter(|uplink| !is_chosen(uplink) && uplink.is_in_charge()).collect();
    for uplink in &changed {
        let server = &uplink.session().name;
        if charge.is_some() {
            tracing::info!(server = &**server, "server {server} is in charge of the services");
        }
        let generation = register::anew(handles, shared, uplink).await;
        let (links, wanted) = (uplink.links(), uplink.wanted_links());
        if let Err(error) = keeping::start(&links, handles, shared, (uplink, wanted)).await {
            tracing::debug!(%error, "the process is stopping");
        }
        // Visitors of forwards do not wait for the answer.
        shared.forwards.lead(&shared.uplinks).await;
        let serves = former.iter().any(|uplink| uplink.session().answers());
        if serves && !has_taken_over(uplink, generation).await {
            tracing::info!(
                server = &**server,
                "server {server} does not answer; the former server keeps the services"
            );
            uplink.set_charge(false);
            // The registration may still be on its way to the server, or be answered later.
            register::anew(handles, shared, uplink).await;
            shared.forwards.lead(&shared.uplinks).await;
            return false;
        }
    }
    for uplink in &former {
        uplink.set_charge(false);
        let server = uplink.session().name.clone();
        uplink.published.forget_others(&[], &server);
        register::anew(handles, shared, uplink).await;
    }
    if !former.is_empty() {
        shared.forwards.lead(&shared.uplinks).await;
    }
    true
}

/// Waits for the answer of a server to a registration. False: the server has become silent, or has
/// not answered within [`ANSWER`].
async fn has_taken_over(uplink: &Uplink, generation: u64) -> bool {
    let answered = timeout(ANSWER, uplink.published.answered(generation));
    let silent = async {
        while uplink.session().answers() {
            sleep(STEP).await;
        }
    };
    tokio::select! {
        biased;
        outcome = answered => outcome.is_ok(),
        () = silent => false,
    }
}

//! The tasks that keep the links of a client, each link forever.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context;
use config::PathSpread;
use link::client::{Client as Keeper, PathChoice};
use node::session::{Handle, Worker};
use proto::greeting::Features;
use tokio::task::{AbortHandle, spawn_local};

use super::detour;
use super::links::Links;
use super::measured::LinkChoice;
use super::owner::ClientOwner;
use super::shared::ClientShared;
use super::uplink::Uplink;

/// Starts to make links until there are `count`, at most the configured number, spread over the
/// workers. The links that were begun before are kept.
pub(super) async fn start(
    links: &Arc<Links>,
    handles: &[Handle],
    shared: &Arc<ClientShared>,
    (uplink, count): (&Arc<Uplink>, usize),
) -> anyhow::Result<()> {
    if let Some(choice) = links.choice.as_ref().filter(|_| links.are_new()) {
        let labels: Vec<_> = links.paths.iter().map(|path| path.label.clone()).collect();
        choice.set(shared.measured.order(&uplink.label(), &labels));
    }
    for n in links.begin(count) {
        let handle = handles.get(n % handles.len()).context("no worker")?;
        let all = Arc::clone(links);
        let (shared, uplink) = (Arc::clone(shared), Arc::clone(uplink));
        let workers = handles.len();
        let keep = move |worker: &_| keep(worker, (&shared, &uplink), &all, (n, workers));
        let keeper = handle.call(keep).await?;
        links.note_keeper(keeper);
    }
    Ok(())
}

/// The choice among the paths, as a link asks it.
fn choice(
    shared: &Arc<ClientShared>,
    uplink: &Arc<Uplink>,
    links: &Arc<Links>,
) -> Rc<dyn PathChoice> {
    Rc::new(LinkChoice {
        measured: Arc::clone(&shared.measured),
        server: uplink.label(),
        links: Arc::clone(links),
    })
}

/// Starts the task that keeps one link forever, the `nth` of the session on all `workers`.
fn keep(
    worker: &Rc<Worker>,
    (shared, uplink): (&Arc<ClientShared>, &Arc<Uplink>),
    links: &Arc<Links>,
    (nth, workers): (usize, usize),
) -> AbortHandle {
    let plan = &links.plan;
    // Different clients start at different numbers, so that a server's first worker gets no more
    // links than the others.
    let spread = shared.instance.0[0].wrapping_add(u8::try_from(nth % 256).unwrap_or(0));
    let path = |way: &_| detour::path(way, spread, worker, (shared, uplink));
    let keeper = Keeper {
        paths: plan.ways_of(nth, workers).map(path).collect(),
        standby: plan.standby(),
        choice: links.choice.is_some().then(|| choice(shared, uplink, links)),
        spreads: plan.spread == PathSpread::ByStream,
        features: Features::ALONE,
        name: plan.name.clone(),
        identity: plan.identity.clone(),
        instance: shared.instance,
        logged_in: Arc::clone(&uplink.logged_in),
        shares: Arc::clone(&uplink.shares),
        leaving: Arc::clone(&links.leaving),
        retry: plan.retry,
        redial: Rc::clone(&worker.state.redial),
        link: plan.link,
        budget: Rc::new(worker.state.portion.clone()),
        serials: Arc::clone(&shared.serials),
    };
    let owner = ClientOwner::new(worker, shared, uplink, links);
    let begun = Rc::clone(&owner);
    let reporter = Rc::clone(&owner);
    let keeping = spawn_local(link::client::run(
        keeper,
        owner,
        Rc::new(move |link| begun.begin(link)),
        Rc::new(move |report| reporter.report(&report)),
    ));
    keeping.abort_handle()
}

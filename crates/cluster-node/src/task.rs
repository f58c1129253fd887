//! The future of a node: its driver, the lanes to the engine and the watch, until the node leaves.

use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use cluster::heirloom::Heirloom;
use cluster::keys::Keyspace;
use cluster::node::NodeSettings;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::driver::{FromEngine, NodeDriver, Outlets};
use crate::engine::{Engine, EngineCaller as _};
use crate::events::{EVENTS, EventSender, ServerEvents};
use crate::follower::{REPORTS, follow};
use crate::handle::{Cluster, NodeEnds};
use crate::lanes::{Lanes, lane};
use crate::pages::{PageQuestion, pages};
use crate::peers::PeerMail;
use crate::views::ViewSenders;

/// The most time that a node takes to leave. It ends its lease, which makes its records void at
/// once; without an answer of the engine the lease ends by itself.
pub const LEAVING: Duration = Duration::from_secs(2);

/// The most answers that wait for the node, which waits for nobody.
const ANSWERS: usize = 16;

/// Makes a node that joins the cluster: the handle for the server, what the server has to do, and
/// the future that is the node. The future has to run inside a Tokio runtime with timers; it ends
/// when the node has left, which is asked for by [`Cluster::leave`] or by the end of all handles.
pub fn join<E: Engine, M: PeerMail>(
    settings: NodeSettings,
    engine: E,
    mail: M,
) -> (Cluster, ServerEvents, impl Future<Output = ()> + Send + 'static) {
    join_after(settings, engine, mail, ready(None))
}

/// As [`join`], for a process that may go on in the place of a former process of its node: `left`
/// is what the former process leaves ([`Cluster::hand_over`]). The node does nothing before it
/// knows that; with `None` it joins anew.
pub fn join_after<E: Engine, M: PeerMail>(
    settings: NodeSettings,
    engine: E,
    mail: M,
    left: impl Future<Output = Option<Heirloom>> + Send + 'static,
) -> (Cluster, ServerEvents, impl Future<Output = ()> + Send + 'static) {
    let (events, received) = EventSender::new(EVENTS);
    let (senders, views) = ViewSenders::new();
    let (end, ended) = watch::channel(());
    let (cluster, ends, asked) = Cluster::new(views, ended);
    let node = async move {
        let left = tokio::select! {
            left = left => Some(left),
            () = ends.mailbox.leaves() => None,
        };
        match left {
            Some(left) => run(settings, left, (engine, asked), ends, (mail, events, senders)).await,
            // The process ends before it was to serve.
            None => ends.mailbox.end(),
        }
        // Whoever waits for the end of the node goes on.
        drop(end);
    };
    (cluster, received, node)
}

async fn run<E: Engine, M: PeerMail>(
    settings: NodeSettings,
    left: Option<Heirloom>,
    (engine, asked): (E, mpsc::Receiver<PageQuestion>),
    ends: NodeEnds,
    (mail, events, views): (M, EventSender, ViewSenders),
) {
    let node = settings.node.clone();
    let mailbox = Arc::clone(&ends.mailbox);
    let (lanes, [renewals, claims, look_ups, blobs]) = Lanes::new();
    let (answers, answered) = mpsc::channel(ANSWERS);
    let (reports, reported) = mpsc::channel(REPORTS);
    let (watch, wanted) = watch::channel(None);
    let keys = Keyspace::new(&settings.cluster);
    let out = Outlets { mail, lanes, watch, events, views };
    let driver = NodeDriver::new(settings, left.as_ref(), out, Arc::clone(&mailbox));
    let lease = tokio::select! {
        lease = driver.serve(ends, FromEngine { answers: answered, reports: reported }) => lease,
        () = lane(engine.caller(), renewals, answers.clone()) => None,
        () = lane(engine.caller(), claims, answers.clone()) => None,
        () = lane(engine.caller(), look_ups, answers.clone()) => None,
        () = lane(engine.caller(), blobs, answers.clone()) => None,
        () = pages(engine.caller(), keys, asked) => None,
        () = follow(engine.follower(), wanted, reports) => None,
    };
    mailbox.end();
    let Some(lease) = lease else {
        info!(%node, "this node has ended in this process: it was no member, or goes on in another");
        return;
    };
    match timeout(LEAVING, engine.caller().revoke(lease)).await {
        Ok(Ok(())) => info!(%node, "this node has left the cluster"),
        Ok(Err(error)) => {
            warn!(%node, %error, "this node has ended; its records are void when its lease ends");
        }
        Err(_) => warn!(
            %node,
            "this node has ended; the engine does not answer, so its records are void when its \
             lease ends"
        ),
    }
}

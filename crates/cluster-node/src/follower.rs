//! The watch of the node: one at a time, ended and begun as the node says.

use std::future::pending;

use cluster::engine::{Range, Revision};
use cluster::node::{WatchId, Watched};
use tokio::sync::{mpsc, watch};

use crate::engine::EngineFollower;

/// What is to be followed; `None`: nothing.
pub(crate) type WantedWatch = Option<(WatchId, Range, Revision)>;

/// The most reports that wait for the node, which waits for nobody.
pub(crate) const REPORTS: usize = 4;

/// Follows what is wanted. Of several wishes the latest counts, so nothing queues up.
pub(crate) async fn follow<F: EngineFollower>(
    mut follower: F,
    mut wanted: watch::Receiver<WantedWatch>,
    reports: mpsc::Sender<(WatchId, Watched)>,
) {
    let mut id = None;
    loop {
        tokio::select! {
            changed = wanted.changed() => {
                if changed.is_err() {
                    // The node has ended, and so will this future.
                    return pending().await;
                }
                let latest = wanted.borrow_and_update().clone();
                match latest {
                    Some((watch, range, from)) => {
                        follower.begin(range, from);
                        id = Some(watch);
                    }
                    None => {
                        follower.end();
                        id = None;
                    }
                }
            }
            watched = follower.next() => {
                if let Some(id) = id
                    && reports.send((id, watched)).await.is_err()
                {
                    return pending().await;
                }
            }
        }
    }
}

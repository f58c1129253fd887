//! Tells the cluster whether this node has a link to another node. The first worker keeps it, and
//! may have several for a while: one that retires beside its successor.
//!
//! ```text
//!            a link is live                 no link is live for 2 s, or all have ended
//!   down ───────────────────────> up ─────────────────────────────────────────────────> down
//!                                  └─ resumed, or answering again: nobody is told ─┘
//! ```

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::names::NodeId;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::lock::lock;
use crate::table::NodeTable;

/// How long a link may be silent or without a carrier before the cluster knows. A lost carrier is
/// replaced within one round trip, and a pause of a second happens to every process.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// The state of the links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Life {
    /// There is no link.
    #[default]
    Down,
    /// No link is live.
    Doubtful,
    /// A link is live and answers.
    Live,
}

/// The links of the first worker to another node.
#[derive(Debug, Default)]
pub(super) struct News {
    links: Mutex<Serials>,
    life: watch::Sender<Life>,
}

#[derive(Debug, Default)]
struct Serials {
    live: BTreeSet<u64>,
    doubtful: BTreeSet<u64>,
}

impl News {
    /// A link is live and answers, or not.
    pub(super) fn note(&self, serial: u64, is_live: bool) {
        self.change(|links| {
            let (here, there) = if is_live {
                (&mut links.live, &mut links.doubtful)
            } else {
                (&mut links.doubtful, &mut links.live)
            };
            here.insert(serial);
            there.remove(&serial);
        });
    }

    /// A link has ended.
    pub(super) fn ended(&self, serial: u64) {
        self.change(|links| {
            links.live.remove(&serial);
            links.doubtful.remove(&serial);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Serials)) {
        let mut links = lock(&self.links);
        change(&mut links);
        let life = match (links.live.is_empty(), links.doubtful.is_empty()) {
            (false, _) => Life::Live,
            (true, false) => Life::Doubtful,
            (true, true) => Life::Down,
        };
        // Under the lock, so that the latest change is the last.
        self.life.send_replace(life);
    }

    /// Tells the cluster. `down` is called when it has been told that there is no link. Never
    /// returns; a dropped future tells that there is no link.
    pub(super) async fn tell(&self, table: &Arc<dyn NodeTable>, node: &NodeId, down: impl Fn()) {
        let mut life = self.life.subscribe();
        let mut told = ToldCluster { table, node, is_up: false };
        loop {
            let now = *life.borrow_and_update();
            match now {
                Life::Live => told.up(),
                Life::Doubtful if told.is_up => {
                    tokio::select! {
                        _ = life.changed() => continue,
                        () = sleep(GRACE) => {}
                    }
                    told.down();
                    down();
                }
                Life::Down if told.is_up => {
                    told.down();
                    down();
                }
                Life::Doubtful | Life::Down => {}
            }
            // Fails only when the sender is dropped, but `self` holds the sender.
            let _ = life.changed().await;
        }
    }
}

/// What the cluster was told.
struct ToldCluster<'a> {
    table: &'a Arc<dyn NodeTable>,
    node: &'a NodeId,
    is_up: bool,
}

impl ToldCluster<'_> {
    fn up(&mut self) {
        if !std::mem::replace(&mut self.is_up, true) {
            self.table.link_up(self.node.clone());
        }
    }

    fn down(&mut self) {
        if std::mem::take(&mut self.is_up) {
            self.table.link_down(self.node.clone());
        }
    }
}

impl Drop for ToldCluster<'_> {
    fn drop(&mut self) {
        self.down();
    }
}

#[cfg(test)]
mod tests {
    use cluster::node::PeerMessage;
    use cluster_node::LivingNodes;
    use tokio::time::Instant;

    use super::*;

    /// Notes what it is told, and when.
    #[derive(Debug, Default)]
    struct Listens(Mutex<Vec<(bool, Duration)>>, Mutex<Option<Instant>>);

    impl Listens {
        fn note(&self, is_up: bool) {
            let begun = *lock(&self.1).get_or_insert_with(Instant::now);
            lock(&self.0).push((is_up, begun.elapsed()));
        }

        fn told(&self) -> Vec<(bool, Duration)> {
            std::mem::take(&mut *lock(&self.0))
        }
    }

    impl NodeTable for Listens {
        fn nodes(&self) -> watch::Receiver<LivingNodes> {
            watch::channel(LivingNodes::default()).1
        }

        fn link_up(&self, _: NodeId) {
            self.note(true);
        }

        fn link_down(&self, _: NodeId) {
            self.note(false);
        }

        fn message(&self, _: NodeId, _: PeerMessage) {}
    }

    /// Runs `story` beside the task that tells. Returns what was told in the end.
    async fn run(story: impl AsyncFnOnce(&News, &Listens)) -> Vec<(bool, Duration)> {
        let (news, listens) = (News::default(), Arc::new(Listens::default()));
        *lock(&listens.1) = Some(Instant::now());
        let (node, table) = (NodeId::new("b").unwrap(), Arc::clone(&listens) as Arc<dyn NodeTable>);
        tokio::select! {
            () = news.tell(&table, &node, || {}) => unreachable!("it has no end"),
            () = story(&news, &listens) => {}
        }
        listens.told()
    }

    fn seconds(told: &[(bool, Duration)]) -> Vec<(bool, f32)> {
        told.iter().map(|(is_up, at)| (*is_up, at.as_secs_f32())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_loss_of_the_carrier_is_no_news_and_a_long_one_is_after_two_seconds() {
        let told = run(async |news, listens| {
            news.note(1, true);
            sleep(Duration::from_secs(1)).await;
            news.note(1, false);
            sleep(Duration::from_millis(1900)).await;
            news.note(1, true);
            sleep(Duration::from_secs(60)).await;
            assert_eq!(seconds(&listens.told()), [(true, 0.0)]);
            news.note(1, false);
            sleep(Duration::from_secs(10)).await;
            assert_eq!(seconds(&listens.told()), [(false, 64.9)]);
            news.note(1, true);
            sleep(Duration::from_secs(1)).await;
        })
        .await;
        // The node that ends has no link.
        assert_eq!(told.iter().map(|(is_up, _)| *is_up).collect::<Vec<_>>(), [true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_link_is_told_at_once_unless_its_successor_is_live() {
        run(async |news, listens| {
            news.note(1, true);
            sleep(Duration::from_secs(1)).await;
            news.note(2, true);
            news.ended(1);
            sleep(Duration::from_secs(9)).await;
            assert_eq!(seconds(&listens.told()), [(true, 0.0)]);
            news.ended(2);
            sleep(Duration::from_secs(10)).await;
            assert_eq!(seconds(&listens.told()), [(false, 10.0)]);
        })
        .await;
    }
}

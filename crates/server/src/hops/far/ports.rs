//! The ports that clients of other nodes hold: each of them is open at this node as well.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::names::{Generation, Key};
use cluster::record::Holding;
use cluster_node::HeldPorts;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::FarServices;
use super::entrances::FarEnd;
use super::place::Looked;

/// The time after which ports are looked at again about which the node of the client has given no
/// answer.
const AGAIN: Duration = Duration::from_secs(2);

/// The longest wait for the table of ports after the node has joined: a page of 1,000 records takes
/// the engine 40 ms.
const OPENED: Duration = Duration::from_secs(3);

impl FarServices {
    /// Follows the held ports until the node ends.
    pub(in crate::hops) async fn follow_ports(
        self: Arc<Self>,
        mut ports: watch::Receiver<HeldPorts>,
    ) {
        let mut was_full = false;
        loop {
            let held = ports.borrow_and_update().clone();
            let (is_full, is_whole) = self.apply(&held).await;
            if is_full && !was_full {
                let most = self.ports_max;
                tracing::warn!(
                    "clients of other nodes hold more ports than this node opens for them: \
                     `cluster.ports_max` is {most}; further ports are closed at this node"
                );
            }
            was_full = is_full;
            // The first table is that of a node which has not joined.
            if !held.is_empty() {
                self.opened.send_replace(true);
            }
            tokio::select! {
                changed = ports.changed() => if changed.is_err() { return },
                () = sleep(AGAIN), if !is_whole => {}
            }
        }
    }

    /// Completes when ports of the table were opened, and after [`OPENED`] where no table comes:
    /// the node cannot tell an empty table from a table that it does not know yet.
    pub(in crate::hops) async fn opened(&self) {
        let mut opened = self.opened.subscribe();
        // A node that has ended opens nothing.
        let _ = timeout(OPENED, opened.wait_for(|opened| *opened)).await;
    }

    /// Opens and closes ports. Returns whether there are more ports than may be open, and whether
    /// all that is needed of them was known.
    async fn apply(&self, held: &HeldPorts) -> (bool, bool) {
        let mut is_whole = true;
        let is_other = |(key, (_, holding)): &(&Key, &(Generation, Holding))| {
            !self.ground.is_own(key, holding)
        };
        let wanted: Vec<_> = held.iter().filter(is_other).take(self.ports_max).collect();
        let is_full = held.iter().filter(is_other).count() > wanted.len();
        let keys: BTreeSet<&Key> = wanted.iter().map(|(key, _)| *key).collect();
        let gone: Vec<_> = {
            let resources = self.resources();
            let ports = resources.keys().filter(|key| matches!(key, Key::Port(..)));
            ports.filter(|key| !keys.contains(key)).cloned().collect()
        };
        for key in gone {
            let why = if held.contains_key(&key) { FarEnd::Passed } else { FarEnd::Gone };
            self.close(&key, why).await;
        }
        for (key, (generation, holding)) in wanted {
            let resource = self.resource(key);
            if resource.claim() == Some(*generation) && resource.is_open() {
                continue;
            }
            match self.ground.read(key, *generation, holding).await {
                Looked::At(place) => {
                    resource.lead(place).await;
                    // A session of this node may have the port for a moment longer, or another
                    // program.
                    is_whole &= resource.is_open();
                }
                Looked::Gone => self.close(key, FarEnd::Gone).await,
                Looked::Away => is_whole = false,
            }
        }
        (is_full, is_whole)
    }
}

//! The epoch of the node goes on in another process of the node, which has the sockets of this
//! process: what this process leaves, and how the other process begins with it.
//!
//! ```text
//!   this process   HandOver ──> the batch under way ends ──> HandedOver ──> writes nothing
//!                                                              │  └── GoOn ──> as before
//!   the other                                      Node::adopt ┘──> renews the lease ──> member
//! ```
//!
//! Two processes never write in one epoch: this process has no batch under way when it says what it
//! leaves, and its conditions would not hold after the first batch of the other. A renewal that is
//! under way does no harm.
//!
//! The clients come to the other process one after the other, mostly within a second. What they
//! held waits for them for [`AWAITED`].

use std::time::Duration;

use super::Node;
use super::desk::Desk;
use super::io::{NodeSettings, Output};
use super::standing::NodeStanding;
use super::writes::Job;
use crate::heirloom::{Heirloom, key_text, resource};
use crate::moment::Moment;

/// The time for which the clients of a former process of the node are awaited. A client whose link
/// to the former process is lost at the same moment needs up to half a minute.
pub const AWAITED: Duration = Duration::from_secs(60);

/// Whether another process of the node goes on with the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum HandOver {
    No,
    /// The batch under way has no answer yet.
    Asked,
    /// The other process has been told.
    Done,
}

impl Node {
    /// A node that goes on with the epoch which a former process of the node has left. It is a
    /// member with its first renewal. An heirloom of another node or cluster counts for nothing.
    #[must_use]
    pub fn adopt(settings: NodeSettings, left: &Heirloom, now: Moment) -> Self {
        let is_own = settings.cluster == left.cluster && settings.node == left.node;
        let mut node = Self::new(settings, now);
        if !is_own {
            return node;
        }
        let (of, until) = (left.left_epoch(), now.after(AWAITED));
        node.desk.saw(of.revision);
        node.membership.adopt(&mut node.desk, of);
        node.chain.adopt(of.batch);
        node.claims.adopt(left, until);
        node.homes.adopt(&node.desk, left, until);
        for (key, generation) in &left.releases {
            if let Some(key) = resource(&node.desk.keys, key) {
                node.desk.jobs.push_back(Job::Release(key, *generation));
            }
        }
        node.follow.begin(&mut node.desk);
        node
    }

    /// Says what this process leaves, once no batch is under way.
    pub(super) fn turn_hand_over(&mut self) {
        let is_member = self.membership.epoch().is_some();
        if self.hand_over != HandOver::Asked || (is_member && !self.chain.is_idle()) {
            return;
        }
        let left = self.left().map(Box::new);
        // A node that is no member has nothing to hand over, and goes on until it leaves.
        self.hand_over = if left.is_some() { HandOver::Done } else { HandOver::No };
        self.desk.output(Output::HandedOver(left));
    }

    fn left(&mut self) -> Option<Heirloom> {
        let of = self.membership.left(&self.desk, self.chain.last())?;
        let desk = &mut self.desk;
        let mut left = Heirloom::new(&desk.settings.cluster, desk.node(), of);
        self.claims.leave_to(desk, &mut left);
        left.releases = releases(desk);
        let standing = &NodeStanding::of(&self.desk, &self.membership, &self.peers, &self.follow);
        self.homes.leave_to(standing, &mut left);
        Some(left)
    }
}

/// The releases that wait to be written.
fn releases(desk: &Desk) -> Vec<(String, crate::names::Generation)> {
    let released = |job: &Job| match job {
        Job::Release(key, generation) => Some((key_text(&desk.keys, key), *generation)),
        // The notes of lost records are read again, clients are told of by their records, and
        // nobody waits for a claim any more.
        Job::Claim(..) | Job::Keep(_) | Job::Home(_) | Job::Delete(..) => None,
    };
    desk.jobs.iter().filter_map(released).collect()
}

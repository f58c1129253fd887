//! How the node stands at a moment, for the parts that write and answer.

use super::desk::{Desk, Life};
use super::follow::Follow;
use super::membership::Membership;
use super::peers::PeerLinks;
use crate::engine::{Compare, Condition, Revision};
use crate::names::{NodeEpoch, NodeId};
use crate::record::{Holder, Holding};

/// How the node stands.
#[derive(Clone, Debug)]
pub(super) struct NodeStanding<'a> {
    /// The name of the node.
    pub(super) node: NodeId,
    /// The epoch of the node; `None` while it is no member.
    pub(super) epoch: Option<NodeEpoch>,
    /// The lease is certainly alive.
    pub(super) is_leased: bool,
    /// The lease has ended, and not because the engine is silent for all nodes.
    pub(super) is_cut_off_alone: bool,
    life: Option<Life>,
    /// The followed tables.
    pub(super) follow: &'a Follow,
}

impl<'a> NodeStanding<'a> {
    pub(super) fn of(
        desk: &Desk,
        membership: &Membership,
        peers: &PeerLinks,
        follow: &'a Follow,
    ) -> Self {
        let is_leased = membership.is_leased(desk.now);
        Self {
            node: desk.node().clone(),
            epoch: membership.epoch(),
            is_leased,
            is_cut_off_alone: membership.was_member() && !is_leased && peers.one_may_hear(desk),
            life: membership.life(),
            follow,
        }
    }

    /// The number of the life of the store.
    pub(super) fn life(&self) -> Option<u64> {
        self.life.map(|life| life.number)
    }

    /// The conditions that the epoch of the node lives.
    pub(super) fn same_epoch(&self, desk: &Desk) -> Option<Vec<Compare>> {
        Some(desk.same_epoch(self.life?, self.epoch?))
    }

    /// The condition that there is no record, or a record that was written before each epoch that
    /// may live now. Whatever such a record names was born before it was written, so it names dead
    /// epochs alone, and may be replaced without a look at it. A table that is late makes the
    /// condition stricter.
    pub(super) fn is_absent_or_dead(&self) -> Condition {
        let own = self.epoch.map_or(u64::MAX, |epoch| epoch.0);
        Condition::ModifiedBefore(Revision(self.follow.oldest().0.min(own)))
    }

    /// Whether a record of this node in this epoch is void: the epoch has ended.
    pub(super) fn is_void(&self, node: &NodeId, epoch: NodeEpoch) -> bool {
        if *node == self.node { self.epoch != Some(epoch) } else { self.follow.is_dead(epoch) }
    }

    /// Whether no node holds the resource of this record any more.
    pub(super) fn is_free(&self, record: &Holding) -> bool {
        record.holders().iter().all(|holder| self.is_void(&holder.node, holder.epoch))
    }

    /// The other living nodes that hold the resource of this record.
    pub(super) fn others(&self, record: &Holding) -> Vec<Holder> {
        let mut all = record.holders();
        all.retain(|it| it.node != self.node && !self.follow.is_dead(it.epoch));
        all
    }
}

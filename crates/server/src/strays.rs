//! Carriers whose link another node of the cluster has. A client behind a balancer that has lost a
//! carrier dials again, and may reach another node than before. This node authenticates the client,
//! and passes the connection on to the node with the link, which completes the greeting.
//!
//! ```text
//!   client ──carrier──> this node ──carry_lane──> stream of a node link ══> node with the link
//!                       accept.rs                 hops/far/strays.rs        hops/answers.rs
//! ```
//!
//! The link stays where it is, so its streams go on. Only a carrier with a single lane is passed
//! on.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use link::server::{OtherEnd, Stray};
use proto::LinkId;
use proto::greeting::{Name, Refusal};
use relay::carry_lane;
use tokio::sync::watch;
use transport::Carrier;

/// The most carriers between two nodes in a process, in each of the two roles. A carrier that is
/// slow at one side holds up to 0.5 MB; an idle carrier holds a task.
const CARRIERS_MAX: u32 = 8192;

/// A carrier that waits for the node with its link.
#[derive(Clone)]
pub(crate) struct StrayCarrier {
    /// The client, which this node has authenticated.
    pub(crate) client: Name,
    pub(crate) link: LinkId,
    /// The address of the client.
    pub(crate) address: SocketAddr,
    /// The beginning of the greeting, for the other node.
    pub(crate) said: Bytes,
    /// The worker of the carrier.
    pub(crate) worker: usize,
}

/// Omits the greeting, which binds the carrier to its connection.
impl fmt::Debug for StrayCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StrayCarrier").field("client", &self.client).finish_non_exhaustive()
    }
}

/// The node that has a link, if there is one.
pub(crate) type Finding<'a> = Pin<Box<dyn Future<Output = Option<OtherEnd>> + Send + 'a>>;

/// Finds the node with a link.
pub(crate) trait FindsLinks: fmt::Debug + Send + Sync {
    /// Asks the nodes with which the client has links. The slot is held as long as the carrier.
    fn find(&self, stray: StrayCarrier, slot: CarrierSlot) -> Finding<'_>;
}

/// A slot among the carriers between two nodes.
#[derive(Debug)]
pub(crate) struct CarrierSlot(Arc<AtomicU32>);

impl CarrierSlot {
    /// `None`: there are too many.
    pub(crate) fn new(all: &Arc<AtomicU32>) -> Option<Self> {
        let slot = Self(Arc::clone(all));
        (all.fetch_add(1, Ordering::Relaxed) < CARRIERS_MAX).then_some(slot)
    }
}

impl Drop for CarrierSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The carriers that this node passes on.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    /// `None`: the server is no node of a cluster.
    nodes: OnceLock<Weak<dyn FindsLinks>>,
    carried: Arc<AtomicU32>,
    /// The node stops, or goes on in the next process.
    has_ended: watch::Sender<bool>,
}

impl Strays {
    /// From now on these nodes are asked.
    pub(crate) fn seek_by(&self, nodes: Weak<dyn FindsLinks>) {
        // A process is a node of one cluster.
        let _ = self.nodes.set(nodes);
    }

    /// The node with the link of a carrier. `None`: no other node has it, so the client begins a
    /// new link.
    pub(crate) async fn pass_on(
        &self,
        stray: Stray<'_>,
        worker: usize,
    ) -> Result<Option<OtherEnd>, Refusal> {
        let Some(nodes) = self.nodes.get().and_then(Weak::upgrade) else { return Ok(None) };
        if *self.has_ended.borrow() {
            // The client keeps its link, and finds a node that stays.
            return Err(Refusal::Unavailable);
        }
        let Some(slot) = CarrierSlot::new(&self.carried) else { return Ok(None) };
        let Stray { name, link, peer, said } = stray;
        let (client, address) = (name.clone(), peer.address);
        let stray = StrayCarrier { client, link, address, said, worker };
        Ok(nodes.find(stray, slot).await)
    }

    /// Carries the bytes of a client until its carrier ends, or this node does.
    pub(crate) async fn carry(&self, carrier: Carrier, other: OtherEnd) {
        let OtherEnd { lane, answer } = other;
        let mut ended = self.has_ended.subscribe();
        tokio::select! {
            () = carry_lane(carrier.lane, lane, answer) => {}
            // The client dials again, and resumes its link over another node.
            _ = ended.wait_for(|ended| *ended) => {}
        }
    }

    /// Ends all carriers. No further carrier is passed on.
    pub(crate) fn end(&self) {
        self.has_ended.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_carriers_is_bounded() {
        let all = Arc::<AtomicU32>::default();
        let slots: Vec<_> = (0..CARRIERS_MAX).map_while(|_| CarrierSlot::new(&all)).collect();
        assert_eq!(slots.len(), usize::try_from(CARRIERS_MAX).unwrap());
        assert!(CarrierSlot::new(&all).is_none());
        drop(slots);
        assert!(CarrierSlot::new(&all).is_some());
    }
}

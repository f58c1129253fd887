//! The store in which the nodes of a cluster share certificates, responses to challenges and keys
//! of session tickets, over the bytes that the engine keeps for the server. `termination` seals
//! what is in it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::blob::{BlobAct, BlobExpected, BlobOutcome, BlobWish};
use cluster::engine::Revision;
use cluster::keys::BlobPlace;
use cluster::names::{ClientName, Duty, Generation, Instance, Key};
use cluster::node::Claimed;
use cluster_node::{Cluster, WantedClaim};
use termination::{
    ExpectedValue, OrderTurn, PutOutcome, SharedPlace, SharedStore, StoreAway, StoreFuture,
    StoredValue,
};

/// The duty of ordering certificates.
const DUTY: Key = Key::Duty(Duty::Acme);

/// The store of a cluster.
#[derive(Debug)]
pub(crate) struct ClusterStore {
    cluster: Cluster,
    /// The name of this node: the holder of a duty is a client by this name.
    holder: ClientName,
    process: Instance,
}

impl ClusterStore {
    /// The store of this node, whose process has this number.
    pub(crate) const fn new(cluster: Cluster, holder: ClientName, process: Instance) -> Self {
        Self { cluster, holder, process }
    }

    async fn wish(&self, wish: BlobWish) -> Result<BlobOutcome, StoreAway> {
        self.cluster.blobs(vec![wish]).await.pop().ok_or(StoreAway)
    }
}

/// The right to order certificates. It is given back when it is dropped, and ends with the epoch of
/// the node otherwise.
#[derive(Debug)]
struct HeldDuty(Cluster, Generation);

impl Drop for HeldDuty {
    fn drop(&mut self) {
        self.0.release([(DUTY, self.1)]);
    }
}

/// The value of the store that a place of the directory has.
pub(super) fn shared_place(place: &BlobPlace) -> Option<SharedPlace> {
    match place {
        BlobPlace::Account(digest) => Some(SharedPlace::Account(Arc::clone(digest))),
        BlobPlace::Certificate(host) => Some(SharedPlace::Certificate(Arc::clone(host))),
        BlobPlace::Challenge(text) => Some(SharedPlace::Challenge(Arc::clone(text))),
        BlobPlace::Tickets(0) => Some(SharedPlace::Tickets),
        BlobPlace::Client(_)
        | BlobPlace::Code(_)
        | BlobPlace::Revoked(_)
        | BlobPlace::Tickets(_) => None,
    }
}

pub(super) fn place_of(place: SharedPlace) -> BlobPlace {
    match place {
        SharedPlace::Account(digest) => BlobPlace::Account(digest),
        SharedPlace::Certificate(host) => BlobPlace::Certificate(host),
        SharedPlace::Challenge(text) => BlobPlace::Challenge(text),
        // One value has the keys of all periods.
        SharedPlace::Tickets => BlobPlace::Tickets(0),
    }
}

impl SharedStore for ClusterStore {
    fn get(
        &self,
        places: Vec<SharedPlace>,
    ) -> StoreFuture<'_, Result<Vec<Option<StoredValue>>, StoreAway>> {
        Box::pin(async move {
            let wishes = places.into_iter().map(place_of).map(BlobWish::get).collect();
            let outcomes = self.cluster.blobs(wishes).await.into_iter();
            let found = |outcome| match outcome {
                BlobOutcome::Found(Some(blob)) => {
                    Ok(Some(StoredValue { revision: blob.revision.0, value: blob.value }))
                }
                // No value has a place with such a name.
                BlobOutcome::Found(None) | BlobOutcome::TooLong => Ok(None),
                BlobOutcome::Written(_)
                | BlobOutcome::Deleted
                | BlobOutcome::Refused(_)
                | BlobOutcome::Away { .. } => Err(StoreAway),
            };
            outcomes.map(found).collect()
        })
    }

    fn put(
        &self,
        place: SharedPlace,
        value: Bytes,
        expected: ExpectedValue,
        keep: Option<Duration>,
    ) -> StoreFuture<'_, Result<PutOutcome, StoreAway>> {
        Box::pin(async move {
            let expected = match expected {
                ExpectedValue::Any => BlobExpected::Any,
                ExpectedValue::At(None) => BlobExpected::Absent,
                ExpectedValue::At(Some(revision)) => BlobExpected::At(Revision(revision)),
            };
            let act = BlobAct::Put { value, expected, keep };
            match self.wish(BlobWish { place: place_of(place), act }).await? {
                BlobOutcome::Written(revision) => Ok(PutOutcome::Written(revision.0)),
                BlobOutcome::Refused(_) => Ok(PutOutcome::Refused),
                BlobOutcome::Found(_)
                | BlobOutcome::Deleted
                | BlobOutcome::TooLong
                | BlobOutcome::Away { .. } => Err(StoreAway),
            }
        })
    }

    fn remove(&self, place: SharedPlace) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            // A value that is kept for a time goes by itself.
            let _ = self.wish(BlobWish::delete(place_of(place), BlobExpected::Any)).await;
        })
    }

    fn take_turn(&self) -> StoreFuture<'_, Option<OrderTurn>> {
        Box::pin(async move {
            let wanted = WantedClaim {
                key: DUTY,
                client: self.holder.clone(),
                instance: self.process,
                about: String::new(),
                expected: None,
            };
            match self.cluster.claim(vec![wanted]).await.pop()? {
                Claimed::Held(generation) => {
                    let duty = HeldDuty(self.cluster.clone(), generation);
                    Some(Box::new(duty) as OrderTurn)
                }
                Claimed::Taken { .. } | Claimed::Away => None,
            }
        })
    }
}

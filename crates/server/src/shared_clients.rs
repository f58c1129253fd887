//! The codes and the enrolled clients of a cluster, in its directory: a code that was made at a
//! node is good at each node, once over all of them, and a client that was enrolled at a node may
//! log in at each node.
//!
//! | record | written | read |
//! |---|---|---|
//! | `code/<client>`, for 10 min | by the node that makes the code | at a log-in with a code. The node that deletes it enrols the client |
//! | `client/<client>` | after each change of the client, if it is the record that the change was made of | at each log-in of the client, before each change, and when a node says that it has changed |
//! | `revoked/<client>` | with the deletion of the client, until it is enrolled again | followed by all nodes |
//!
//! The state directory of a node has a copy of each client that the node has heard of, so that the
//! client may log in while the directory does not answer.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use cluster::blob::{Blob, BlobAct, BlobExpected, BlobOutcome, BlobWish};
use cluster::engine::Revision;
use cluster::keys::BlobPlace;
use cluster::names::ClientName;
use cluster_node::Cluster;
use ops::enrol::{GOOD_FOR, Order};
use proto::greeting::{Name, StoredCredential};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use zeroize::{Zeroize as _, Zeroizing};

/// The most log-ins that wait for the directory. A further client is checked by what the node knows
/// of it.
const ASKING: usize = 64;

/// The most clients whose records are known to be those of the state directory.
const KNOWN: usize = 100_000;

/// The directory does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the directory of the cluster does not answer; try again")]
pub(crate) struct DirectoryAway;

/// Tells the other nodes that a client has changed.
pub(crate) trait TellsNodes: fmt::Debug + Send + Sync {
    /// A message to a node may get lost.
    fn tell(&self, client: &Name);
}

/// A code as the nodes know it.
#[derive(Serialize, Deserialize)]
struct CodeRecord {
    order: Order,
    credential: String,
    /// The client that requested the code.
    by: Option<String>,
}

impl Drop for CodeRecord {
    fn drop(&mut self) {
        self.credential.zeroize();
    }
}

/// A code that was made at some node.
#[derive(Clone, Debug)]
pub(crate) struct SharedCode {
    pub(crate) order: Order,
    pub(crate) credential: StoredCredential,
    pub(crate) by: Option<String>,
}

/// A client in the directory.
#[derive(Debug)]
pub(crate) struct SharedClient {
    pub(crate) revision: Revision,
    /// Its entry, as in the state directory.
    pub(crate) text: Zeroizing<String>,
}

/// The codes and the enrolled clients of a cluster.
#[derive(Debug)]
pub(crate) struct SharedClients {
    cluster: Cluster,
    nodes: OnceLock<Weak<dyn TellsNodes>>,
    asking: Semaphore,
    /// The records of which the state directory has a copy.
    known: Mutex<HashMap<String, Revision>>,
}

fn client_place(name: &Name) -> Result<BlobPlace, DirectoryAway> {
    // Names of the protocol are names of the cluster.
    ClientName::new(name.as_str()).map(BlobPlace::Client).map_err(|_| DirectoryAway)
}

fn revoked_place(name: &Name) -> Result<BlobPlace, DirectoryAway> {
    ClientName::new(name.as_str()).map(BlobPlace::Revoked).map_err(|_| DirectoryAway)
}

fn code_place(name: &Name) -> BlobPlace {
    BlobPlace::Code(name.as_str().into())
}

impl SharedClients {
    pub(crate) fn new(cluster: Cluster) -> Self {
        let (nodes, known) = Default::default();
        Self { cluster, nodes, asking: Semaphore::new(ASKING), known }
    }

    /// From now on the other nodes are told of changes.
    pub(crate) fn tell_by(&self, nodes: Weak<dyn TellsNodes>) {
        // A process is a node of one cluster.
        let _ = self.nodes.set(nodes);
    }

    /// Tells the other nodes that a client has changed.
    pub(crate) fn tell(&self, name: &Name) {
        if let Some(nodes) = self.nodes.get().and_then(Weak::upgrade) {
            nodes.tell(name);
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Revision>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the state directory has a copy of this record.
    pub(crate) fn is_known(&self, name: &Name, revision: Revision) -> bool {
        self.known().get(name.as_str()) == Some(&revision)
    }

    /// Whether the state directory has a copy of some record of the client.
    pub(crate) fn has(&self, name: &Name) -> bool {
        self.known().contains_key(name.as_str())
    }

    /// Notes of which record the state directory has a copy.
    pub(crate) fn note(&self, name: &Name, revision: Option<Revision>) {
        let mut known = self.known();
        if known.len() >= KNOWN {
            known.clear();
        }
        match revision {
            Some(revision) => drop(known.insert(name.as_str().to_owned(), revision)),
            None => drop(known.remove(name.as_str())),
        }
    }

    async fn wish(&self, wish: BlobWish) -> BlobOutcome {
        let outcome = self.cluster.blobs(vec![wish]).await.pop();
        outcome.unwrap_or(BlobOutcome::Away { may_be_done: true })
    }

    async fn read(&self, place: BlobPlace) -> Result<Option<Blob>, DirectoryAway> {
        match self.wish(BlobWish::get(place)).await {
            BlobOutcome::Found(found) => Ok(found),
            BlobOutcome::Written(_)
            | BlobOutcome::Deleted
            | BlobOutcome::Refused(_)
            | BlobOutcome::TooLong
            | BlobOutcome::Away { .. } => Err(DirectoryAway),
        }
    }

    /// The record of a client that logs in. [`DirectoryAway`] also if many others wait.
    pub(crate) async fn client_at_log_in(
        &self,
        name: &Name,
    ) -> Result<Option<SharedClient>, DirectoryAway> {
        let _place = self.asking.try_acquire().map_err(|_| DirectoryAway)?;
        self.client(name).await
    }

    /// The record of a client.
    pub(crate) async fn client(&self, name: &Name) -> Result<Option<SharedClient>, DirectoryAway> {
        let Some(Blob { revision, value }) = self.read(client_place(name)?).await? else {
            return Ok(None);
        };
        let text = String::from_utf8(value.to_vec()).map_err(|_| DirectoryAway)?;
        Ok(Some(SharedClient { revision, text: text.into() }))
    }

    /// Writes the record of a client, if the present record is that of the revision; `None`: if
    /// there is no record. Returns `None` where another node was first.
    pub(crate) async fn write(
        &self,
        name: &Name,
        text: &str,
        present: Option<Revision>,
    ) -> Result<Option<Revision>, DirectoryAway> {
        let expected = present.map_or(BlobExpected::Absent, BlobExpected::At);
        let value = Bytes::copy_from_slice(text.as_bytes());
        let place = client_place(name)?;
        match self.wish(BlobWish::put(place.clone(), value.clone(), expected)).await {
            BlobOutcome::Written(revision) => Ok(Some(revision)),
            BlobOutcome::Refused(_) => Ok(None),
            // The write may have been carried out.
            BlobOutcome::Away { may_be_done: true } => {
                let found = self.read(place).await?.filter(|blob| blob.value == value);
                Ok(Some(found.ok_or(DirectoryAway)?.revision))
            }
            BlobOutcome::Found(_)
            | BlobOutcome::Deleted
            | BlobOutcome::TooLong
            | BlobOutcome::Away { .. } => Err(DirectoryAway),
        }
    }

    /// Removes a client and its code, and tells all nodes that it has no rights. Returns whether
    /// there was a client, and whether there was a code.
    pub(crate) async fn revoke(&self, name: &Name) -> Result<(bool, bool), DirectoryAway> {
        // In the order of the batch: no node finds the client after it has heard of the revocation.
        let revoked = BlobWish::put(revoked_place(name)?, Bytes::new(), BlobExpected::Any);
        let client = BlobWish::delete(client_place(name)?, BlobExpected::Any);
        let code = BlobWish::delete(code_place(name), BlobExpected::Any);
        let outcomes = match self.client(name).await? {
            Some(_) => self.cluster.blobs(vec![client, revoked, code]).await,
            None => vec![BlobOutcome::Refused(None), self.wish(code).await],
        };
        if outcomes.iter().any(|outcome| matches!(outcome, BlobOutcome::Away { .. })) {
            return Err(DirectoryAway);
        }
        let is_deleted = |one: Option<&BlobOutcome>| one == Some(&BlobOutcome::Deleted);
        Ok((is_deleted(outcomes.first()), is_deleted(outcomes.last())))
    }

    /// Whether the client was revoked.
    pub(crate) async fn is_revoked(&self, name: &Name) -> Result<bool, DirectoryAway> {
        Ok(self.read(revoked_place(name)?).await?.is_some())
    }

    /// Ends the revocation of a client that was enrolled again.
    pub(crate) async fn restore(&self, name: &Name) -> Result<(), DirectoryAway> {
        match self.wish(BlobWish::delete(revoked_place(name)?, BlobExpected::Any)).await {
            BlobOutcome::Deleted | BlobOutcome::Refused(_) => Ok(()),
            BlobOutcome::Found(_)
            | BlobOutcome::Written(_)
            | BlobOutcome::TooLong
            | BlobOutcome::Away { .. } => Err(DirectoryAway),
        }
    }

    /// Makes a code good at all nodes, in the place of a former code of the client.
    pub(crate) async fn offer(&self, name: &Name, code: &SharedCode) -> Result<(), DirectoryAway> {
        let SharedCode { order, credential, by } = code;
        let record = CodeRecord {
            order: order.clone(),
            credential: credential.text().to_string(),
            by: by.clone(),
        };
        let value = serde_json::to_vec(&record).map_err(|_| DirectoryAway)?.into();
        let (expected, keep) = (BlobExpected::Any, Some(GOOD_FOR));
        let act = BlobAct::Put { value, expected, keep };
        match self.wish(BlobWish { place: code_place(name), act }).await {
            BlobOutcome::Written(_) => Ok(()),
            BlobOutcome::Found(_)
            | BlobOutcome::Deleted
            | BlobOutcome::Refused(_)
            | BlobOutcome::TooLong
            | BlobOutcome::Away { .. } => Err(DirectoryAway),
        }
    }

    /// The code of a client.
    pub(crate) async fn code(
        &self,
        name: &Name,
    ) -> Result<Option<(Revision, SharedCode)>, DirectoryAway> {
        let Some(Blob { revision, value }) = self.read(code_place(name)).await? else {
            return Ok(None);
        };
        let record: CodeRecord = serde_json::from_slice(&value).map_err(|_| DirectoryAway)?;
        let credential = StoredCredential::of(&record.credential).map_err(|_| DirectoryAway)?;
        Ok(Some((
            revision,
            SharedCode { order: record.order.clone(), credential, by: record.by.clone() },
        )))
    }

    /// The code of a client that logs in; as [`Self::client_at_log_in`].
    pub(crate) async fn code_at_log_in(
        &self,
        name: &Name,
    ) -> Result<Option<StoredCredential>, DirectoryAway> {
        let _place = self.asking.try_acquire().map_err(|_| DirectoryAway)?;
        Ok(self.code(name).await?.map(|(_, code)| code.credential))
    }

    /// Uses a code up. `None`: another node has used it, or another code has replaced it.
    pub(crate) async fn take(
        &self,
        name: &Name,
        proved: &StoredCredential,
    ) -> Result<Option<SharedCode>, DirectoryAway> {
        let Some((revision, code)) = self.code(name).await? else { return Ok(None) };
        if code.credential != *proved {
            return Ok(None);
        }
        let expected = BlobExpected::At(revision);
        match self.wish(BlobWish::delete(code_place(name), expected)).await {
            BlobOutcome::Deleted => Ok(Some(code)),
            BlobOutcome::Refused(_) => Ok(None),
            // A code that may have been used is used: nobody else may enrol by it.
            BlobOutcome::Found(_)
            | BlobOutcome::Written(_)
            | BlobOutcome::TooLong
            | BlobOutcome::Away { .. } => Err(DirectoryAway),
        }
    }

    /// Removes the code of a client that the client `by` requested.
    pub(crate) async fn withdraw(&self, name: &Name, by: &str) -> Result<(), DirectoryAway> {
        let Some((revision, code)) = self.code(name).await? else { return Ok(()) };
        if code.by.as_deref() == Some(by) {
            let expected = BlobExpected::At(revision);
            self.wish(BlobWish::delete(code_place(name), expected)).await;
        }
        Ok(())
    }
}

/// The same as a shared handle, for a server that may be alone.
pub(crate) type MaybeShared = Option<Arc<SharedClients>>;

//! The directory: which client holds which public resource, and which ports services had before.
//! Servers that publish for the same clients have to agree on both, so each query that needs such
//! an agreement is made here. [`Local`] is the directory of a single server.
//!
//! ```text
//!   publication ──claim, release──> Directory   asynchronous: other servers may have to be asked
//!   visitor ──────find──────> Names (a snapshot of each worker's look-ups, never the directory)
//! ```
//!
//! **Fences.** Each claim has a number ([`Generation`]). An owner that lost a resource may learn so
//! late: its release, its answer and its next claim name the number of its own claim, and change
//! nothing of a newer claim. Times are not compared, because a server that was stopped for a while
//! does not know how long it was.
//!
//! **Away.** A directory that does not answer is [`Claimed::Away`]: the resource may be free. The
//! services that a client has stay published meanwhile, and new services wait.
//!
//! | file | content |
//! |---|---|
//! | `key.rs` | resources, owners, and their numbers |
//! | `claim.rs` | a claim that is released with its last use |
//! | `local.rs` | the directory of a single server, in memory |
//! | `ports.rs` | the ports that servers chose: a table, stored as a blob |
//! | `file.rs` | the file of the chosen ports |
//! | `model.rs` | tests: [`Local`] beside a model, and a directory that does not answer |
//!
//! Each server limits its own listeners (`registry/publish/budget.rs`) and delays guesses
//! independently (`brake.rs`): an agreement would cost every log-in an answer of all other servers.
//! The clients that were enrolled by a code have a separate trait ([`Enrolled`](super::Enrolled)).

mod claim;
mod file;
mod key;
mod local;
#[cfg(test)]
pub(super) mod model;
mod ports;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use tokio::sync::watch;

use crate::about::Marks;
pub(super) use claim::{Claim, NotGiven};
pub(super) use key::{
    Away, Blob, BlobName, ClaimRequest, Claimed, Class, Generation, Key, NodeEpoch, Owner, Port,
    Put, Release, Revision, Subject, Topic, Whereabouts,
};
pub(super) use local::Local;
pub(super) use ports::{Chosen, ChosenPorts};

/// The answer of a directory.
pub(super) type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Which client holds which resource. A claimed resource belongs to its owner until it is released,
/// or until a request that expects this claim replaces it.
pub(super) trait Directory: fmt::Debug + Send + Sync {
    /// The marks of terms that the directory must not know. `None`: no other server uses the
    /// directory.
    fn marks(&self) -> Option<&Marks>;

    /// Whether other servers use the directory, so that claims have to describe their services.
    fn is_shared(&self) -> bool {
        self.marks().is_some()
    }

    /// Whether a client has the resource at another server too.
    fn is_elsewhere(&self, _key: &Key) -> bool {
        false
    }

    /// Gives resources to owners; each resource alone, in the order of the batch. There is an
    /// answer for each request, in the same order. A request that expects a claim of a resource
    /// that is free gets the resource.
    ///
    /// A future that is dropped before it completes has claimed nothing that stays claimed. Must
    /// be awaited inside a Tokio runtime.
    fn claim(&self, batch: Vec<ClaimRequest>) -> Answer<'_, Vec<Claimed>>;

    /// Frees resources. A claim that is not the latest claim of its resource frees nothing. The
    /// caller does not wait: a directory that must notify other servers does so in the background.
    fn release(&self, batch: Vec<Release>);

    /// Where clients are: an answer for each subject, in the same order. `None`: the client holds
    /// nothing, or the resource is free.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "each client of a single server is at this server")
    )]
    fn whereabouts(
        &self,
        batch: Vec<Subject>,
    ) -> Answer<'_, Result<Vec<Option<Whereabouts>>, Away>>;

    /// The number of the latest change of a topic. A receiver that has missed changes sees the
    /// latest change: it reads again whatever it has read.
    fn follow(&self, topic: Topic) -> watch::Receiver<Revision>;

    /// The latest version of a blob.
    fn get(&self, name: BlobName) -> Answer<'_, Result<Blob, Away>>;

    /// Stores a version of a blob in the place of the version `expected`. Must be awaited inside a
    /// Tokio runtime.
    fn put(&self, name: BlobName, expected: Revision, bytes: Bytes) -> Answer<'_, Put>;
}

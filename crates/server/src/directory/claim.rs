//! A claim that is released with its last use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{ClaimRequest, Claimed, Directory, Generation, Key, Owner, Release};

/// A resource of a client. Dropping it releases the resource, unless a newer claim has replaced
/// this claim meanwhile.
#[derive(Debug)]
pub(crate) struct Claim {
    directory: Arc<dyn Directory>,
    key: Key,
    held: Mutex<Holding>,
}

#[derive(Clone, Debug)]
struct Holding {
    owner: Owner,
    generation: Generation,
    about: Arc<str>,
}

/// A resource that is wanted, and what other servers need to know of its services.
pub(crate) type WantedResource = (Key, Arc<str>);

/// Why an owner does not get a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotGiven {
    /// A client holds the resource.
    Taken,
    /// The directory does not answer.
    Away,
}

impl Claim {
    /// Claims a resource for an owner.
    ///
    /// # Errors
    /// A client holds the resource, possibly the client of `owner`, or the directory does not
    /// answer.
    pub(crate) async fn new(
        directory: &Arc<dyn Directory>,
        wanted: WantedResource,
        owner: &Owner,
    ) -> Result<Self, NotGiven> {
        let claimed = Self::all(directory, vec![wanted], owner).await.pop();
        claimed.unwrap_or(Err(NotGiven::Away))
    }

    /// Claims resources for an owner, in one batch. There is a result for each resource, in the
    /// same order.
    pub(crate) async fn all(
        directory: &Arc<dyn Directory>,
        wanted: Vec<WantedResource>,
        owner: &Owner,
    ) -> Vec<Result<Self, NotGiven>> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let request = |(key, about): &WantedResource| {
            let (key, about) = (key.clone(), Arc::clone(about));
            ClaimRequest { key, owner: owner.clone(), expected: None, about }
        };
        let answers = directory.claim(wanted.iter().map(request).collect()).await;
        let claim = |((key, about), answer): (WantedResource, Claimed)| match answer {
            Claimed::Held(generation) => {
                let held = Mutex::new(Holding { owner: owner.clone(), generation, about });
                Ok(Self { directory: Arc::clone(directory), key, held })
            }
            Claimed::Taken { by, generation } => Err(taken(owner, &key, &by, generation)),
            Claimed::Away => Err(NotGiven::Away),
        };
        wanted.into_iter().zip(answers).map(claim).collect()
    }

    /// Passes claims to another owner, or gives them another description of their services, in one
    /// batch: each gets a new number, so that a former owner has nothing to release. There is a
    /// result for each claim, in the same order. A claim that was replaced meanwhile is
    /// [`NotGiven::Taken`].
    pub(crate) async fn pass(
        directory: &Arc<dyn Directory>,
        claims: &[(Arc<Self>, Arc<str>)],
        owner: &Owner,
    ) -> Vec<Result<(), NotGiven>> {
        if claims.is_empty() {
            return Vec::new();
        }
        let request = |(claim, about): &(Arc<Self>, Arc<str>)| {
            let (expected, about) = (Some(claim.held().generation), Arc::clone(about));
            ClaimRequest { key: claim.key.clone(), owner: owner.clone(), expected, about }
        };
        let answers = directory.claim(claims.iter().map(request).collect()).await;
        let note = |((claim, about), answer): (&(Arc<Self>, Arc<str>), Claimed)| match answer {
            Claimed::Held(generation) => {
                let about = Arc::clone(about);
                *claim.held() = Holding { owner: owner.clone(), generation, about };
                Ok(())
            }
            Claimed::Taken { by, generation } => Err(taken(owner, &claim.key, &by, generation)),
            Claimed::Away => Err(NotGiven::Away),
        };
        claims.iter().zip(answers).map(note).collect()
    }

    fn held(&self) -> MutexGuard<'_, Holding> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether other nodes share the directory of the claim.
    pub(crate) fn is_of_cluster(&self) -> bool {
        self.directory.is_shared()
    }

    /// Whether a client has the resource at another node too.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.directory.is_elsewhere(&self.key)
    }

    /// The resource.
    pub(crate) const fn key(&self) -> &Key {
        &self.key
    }

    /// The owner that has made the claim, or got it last.
    pub(crate) fn owner(&self) -> Owner {
        self.held().owner.clone()
    }

    /// Whether this owner has made the claim, or got it last, with this description of its
    /// services.
    pub(crate) fn is_of(&self, owner: &Owner, about: &str) -> bool {
        let held = self.held();
        held.owner == *owner && *held.about == *about
    }

    /// Whether this is the claim of this number.
    pub(crate) fn is(&self, key: &Key, generation: Generation) -> bool {
        self.key == *key && self.held().generation == generation
    }
}

/// Logs who holds a resource: the client that is refused does not learn the name of the other
/// client.
fn taken(owner: &Owner, key: &Key, by: &Owner, generation: Generation) -> NotGiven {
    tracing::debug!(client = &*owner.client, ?key, ?by, ?generation, "a resource is taken");
    NotGiven::Taken
}

impl Drop for Claim {
    fn drop(&mut self) {
        let generation = self.held().generation;
        self.directory.release(vec![Release { key: self.key.clone(), generation }]);
    }
}

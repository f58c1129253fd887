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
}

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
        key: Key,
        owner: &Owner,
    ) -> Result<Self, NotGiven> {
        let claimed = Self::all(directory, vec![key], owner).await.pop();
        claimed.unwrap_or(Err(NotGiven::Away))
    }

    /// Claims resources for an owner, in one batch. There is a result for each key, in the same
    /// order.
    pub(crate) async fn all(
        directory: &Arc<dyn Directory>,
        keys: Vec<Key>,
        owner: &Owner,
    ) -> Vec<Result<Self, NotGiven>> {
        if keys.is_empty() {
            return Vec::new();
        }
        let request =
            |key: &Key| ClaimRequest { key: key.clone(), owner: owner.clone(), expected: None };
        let answers = directory.claim(keys.iter().map(request).collect()).await;
        let claim = |(key, answer)| match answer {
            Claimed::Held(generation) => {
                let held = Mutex::new(Holding { owner: owner.clone(), generation });
                Ok(Self { directory: Arc::clone(directory), key, held })
            }
            Claimed::Taken { by, generation } => Err(taken(owner, &key, &by, generation)),
            Claimed::Away => Err(NotGiven::Away),
        };
        keys.into_iter().zip(answers).map(claim).collect()
    }

    /// Passes claims to another owner, in one batch: each gets a new number, so that the former
    /// owner has nothing to release. There is a result for each claim, in the same order. A claim
    /// that was replaced meanwhile is [`NotGiven::Taken`].
    pub(crate) async fn pass(
        directory: &Arc<dyn Directory>,
        claims: &[Arc<Self>],
        owner: &Owner,
    ) -> Vec<Result<(), NotGiven>> {
        if claims.is_empty() {
            return Vec::new();
        }
        let request = |claim: &Arc<Self>| {
            let expected = Some(claim.held().generation);
            ClaimRequest { key: claim.key.clone(), owner: owner.clone(), expected }
        };
        let answers = directory.claim(claims.iter().map(request).collect()).await;
        let note = |(claim, answer): (&Arc<Self>, Claimed)| match answer {
            Claimed::Held(generation) => {
                *claim.held() = Holding { owner: owner.clone(), generation };
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

    /// The resource.
    pub(crate) const fn key(&self) -> &Key {
        &self.key
    }

    /// The owner that has made the claim, or got it last.
    pub(crate) fn owner(&self) -> Owner {
        self.held().owner.clone()
    }

    /// Whether this owner has made the claim, or got it last.
    pub(crate) fn is_of(&self, owner: &Owner) -> bool {
        self.held().owner == *owner
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

//! Names that no client of this node has, and that clients of other nodes of the cluster may have.
//! They are looked for when a visitor comes, because nobody could follow the names of a million
//! clients. What was looked for in vain is not looked for again within [`AGAIN`].

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Space;

/// The time after which a name is looked for again.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// The number of parts of the record of what was looked for, so that workers seldom wait for each
/// other.
const PARTS: usize = 16;

/// The most hosts in a part of the record.
const HOSTS: usize = 1024;

/// The work of [`NameSeeker::seek`].
pub type Sought<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Looks for names at the other nodes of the cluster.
pub trait NameSeeker: fmt::Debug + Send + Sync {
    /// Looks for the names that cover the host of a visitor, the closest first, and adds the
    /// services of the closest name to the table. Completes within 3 s.
    fn seek(&self, names: Vec<(Space, Arc<str>)>) -> Sought<'_>;
}

/// When each host was looked for last.
type SoughtHosts = HashMap<(Space, Box<str>), Instant>;

/// The seeker, and what it has looked for.
#[derive(Debug, Default)]
pub(super) struct Seeking {
    seeker: OnceLock<Arc<dyn NameSeeker>>,
    hasher: RandomState,
    parts: [Mutex<SoughtHosts>; PARTS],
}

impl Seeking {
    /// Looks for names at other nodes from now on.
    pub(super) fn begin(&self, seeker: Arc<dyn NameSeeker>) {
        // A process is a node of one cluster.
        let _ = self.seeker.set(seeker);
    }

    pub(super) fn seeker(&self) -> Option<&Arc<dyn NameSeeker>> {
        self.seeker.get()
    }

    fn part(&self, host: &str) -> MutexGuard<'_, SoughtHosts> {
        // The remainder is below `PARTS`.
        let nth = (self.hasher.hash_one(host) % PARTS as u64) as usize;
        self.parts[nth].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the host was not looked for recently.
    pub(super) fn is_due(&self, space: Space, host: &str) -> bool {
        let last = self.part(host).get(&(space, host.into())).copied();
        last.is_none_or(|last| last + AGAIN <= Instant::now())
    }

    /// Records that the host was looked for now.
    pub(super) fn note(&self, space: Space, host: &str) {
        let now = Instant::now();
        let mut part = self.part(host);
        if part.len() >= HOSTS {
            part.retain(|_, at| *at + AGAIN > now);
        }
        if part.len() < HOSTS {
            part.insert((space, host.into()), now);
        }
    }
}

//! The detours of a client that are in use. A carrier of a detour must not carry itself: the link
//! to `nyc` could move to a path through `fra` while it carries the link to `fra`, and no frame
//! would leave this machine. So a server that is reached by a detour carries no detour, and a
//! server that carries a detour is reached by none. The rule also bounds the length of a path to
//! one other server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The detours of a client, each from the begin of its dial to the end of its carrier.
#[derive(Debug, Default)]
pub(super) struct Detours(Mutex<Vec<ServerPair>>);

/// A detour to a server through another server, by the ids of their uplinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerPair {
    pub(super) to: u64,
    pub(super) through: u64,
}

/// Why a detour cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Circle {
    /// The other server is itself reached through another server.
    IsReached,
    /// The server carries a detour itself.
    Carries,
}

impl Detours {
    fn pairs(&self) -> MutexGuard<'_, Vec<ServerPair>> {
        // Each change is one call, so a poisoned lock does no harm.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a detour, which lasts until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>, pair: ServerPair) -> Result<Begun, Circle> {
        let mut pairs = self.pairs();
        if pairs.iter().any(|other| other.to == pair.through) {
            return Err(Circle::IsReached);
        }
        if pairs.iter().any(|other| other.through == pair.to) {
            return Err(Circle::Carries);
        }
        pairs.push(pair);
        Ok(Begun { detours: Arc::clone(self), pair })
    }
}

/// A detour that has begun.
#[derive(Debug)]
pub(super) struct Begun {
    detours: Arc<Detours>,
    pair: ServerPair,
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut pairs = self.detours.pairs();
        if let Some(place) = pairs.iter().position(|pair| *pair == self.pair) {
            pairs.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_detour_carries_itself() {
        let detours = Arc::<Detours>::default();
        let begin = |to, through| detours.begin(ServerPair { to, through });
        let first = begin(1, 2).unwrap();
        let standby = begin(1, 2).unwrap();
        let third = begin(3, 2).unwrap();
        assert_eq!(begin(2, 1).unwrap_err(), Circle::IsReached);
        assert_eq!(begin(2, 4).unwrap_err(), Circle::Carries);
        assert_eq!(begin(4, 1).unwrap_err(), Circle::IsReached);
        drop(first);
        drop(third);
        assert_eq!(begin(2, 1).unwrap_err(), Circle::IsReached, "the standby goes on");
        drop(standby);
        let back = begin(2, 1).unwrap();
        assert_eq!(begin(1, 2).unwrap_err(), Circle::IsReached);
        drop(back);
        assert!(detours.pairs().is_empty());
    }
}

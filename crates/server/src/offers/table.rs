//! The WebRTC connections that have begun here. A program can end each of them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;

/// The maximum number of connections that `DELETE` can end. The oldest entry is evicted first, and
/// its connection continues.
const KNOWN_MAX: usize = 4096;

/// The connections that have begun here.
#[derive(Debug, Default)]
pub(crate) struct Offers(Mutex<HashMap<String, Known>>);

/// A connection that has begun here.
#[derive(Debug)]
struct Known {
    since: Instant,
    /// Ends it.
    end: oneshot::Sender<()>,
}

impl Offers {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a connection; returns its unguessable name for `DELETE`.
    pub(super) fn note(&self, end: oneshot::Sender<()>) -> String {
        let mut id = String::new();
        for byte in ::link::random::<16>() {
            // Writing into a String does not fail.
            let _ = write!(id, "{byte:02x}");
        }
        let mut known = self.known();
        known.retain(|_, one| !one.end.is_closed());
        if known.len() >= KNOWN_MAX {
            let oldest = known.iter().min_by_key(|(_, one)| one.since);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                known.remove(&oldest);
            }
        }
        known.insert(id.clone(), Known { since: Instant::now(), end });
        id
    }

    /// Ends a connection. False: it is not known.
    pub(super) fn end(&self, id: &str) -> bool {
        let found = self.known().remove(id);
        found.is_some_and(|known| known.end.send(()).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_ends_one_connection_once() {
        let offers = Offers::default();
        let (end, mut ended) = oneshot::channel();
        let id = offers.note(end);
        assert_eq!(id.len(), 32);
        assert!(!offers.end("0"));
        assert!(offers.end(&id));
        assert!(ended.try_recv().is_ok());
        assert!(!offers.end(&id));
    }

    #[test]
    fn connections_that_are_remembered_are_bounded() {
        let offers = Offers::default();
        let mut alive = Vec::new();
        for _ in 0..KNOWN_MAX + 10 {
            let (end, ended) = oneshot::channel();
            offers.note(end);
            alive.push(ended);
        }
        assert_eq!(offers.known().len(), KNOWN_MAX);
        drop(alive);
        offers.note(oneshot::channel().0);
        assert!(offers.known().len() <= 1, "those that have ended are forgotten");
    }
}

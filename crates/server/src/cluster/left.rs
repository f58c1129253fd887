//! What a former process of this node has left ([`Heirloom`]), until the clients are here: a
//! visitor of another node may come before the client, and waits for it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::heirloom::Heirloom;
use cluster::names::{ClientName, Key};
use cluster::node::AWAITED;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Begins the node, once it is known what the former process has left.
type Begin = oneshot::Sender<Option<Heirloom>>;

/// What the former process has left.
#[derive(Debug)]
pub(super) struct LeftBehind {
    /// Taken when the node begins.
    begin: Mutex<Option<Begin>>,
    left: Mutex<LeftClaims>,
}

#[derive(Debug, Default)]
struct LeftClaims {
    /// The resources, by the fence of the claim.
    claims: HashMap<u64, (Key, ClientName)>,
    until: Option<Instant>,
}

impl LeftBehind {
    /// Nothing is known yet. The receiver gets what is told by [`Self::begin`].
    pub(super) fn new() -> (Self, oneshot::Receiver<Option<Heirloom>>) {
        let (begin, begun) = oneshot::channel();
        (Self { begin: Mutex::new(Some(begin)), left: Mutex::default() }, begun)
    }

    fn left(&self) -> MutexGuard<'_, LeftClaims> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the node with what the former process has left, or without that.
    pub(super) fn begin(&self, heirloom: Option<Heirloom>) {
        if let Some(heirloom) = &heirloom {
            let of = |(key, left): (Key, &cluster::heirloom::LeftClaim)| {
                (left.fence, (key, left.client.clone()))
            };
            let claims = heirloom.resources().map(of).collect();
            *self.left() = LeftClaims { claims, until: Some(Instant::now() + AWAITED) };
        }
        let begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(begin) = begin {
            // The server may be ending.
            let _ = begin.send(heirloom);
        }
    }

    /// The resource of the claim with this fence that the former process had for this client, while
    /// the client may come.
    pub(super) fn resource(&self, client: &str, fence: u64) -> Option<Key> {
        let mut left = self.left();
        if left.until.is_some_and(|until| until <= Instant::now()) {
            *left = LeftClaims::default();
        }
        let (key, of) = left.claims.get(&fence)?;
        (of.as_str() == client).then(|| key.clone())
    }
}

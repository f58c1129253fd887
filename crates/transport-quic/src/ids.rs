//! Connection ids of a server: the first byte says which worker has the connection, and
//! `net::udp` steers by it.
//!
//! quinn's own generator drops ids that it did not make before it thinks of a stateless reset, so a
//! server that was restarted would leave its clients in the dark. This one takes all ids for its
//! own, but those that name another worker: that one knows whether the connection lives, and a
//! reset from here, which the client would believe, could end it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quinn::{ConnectionId, ConnectionIdGenerator};
use quinn_proto::{InvalidCid, RandomConnectionIdGenerator};

/// One byte for the worker, seven that nobody guesses. quinn takes another one if a worker makes
/// the same twice; it gives a connection up to eight.
pub(crate) const LENGTH: usize = 8;

/// Of the first id of a connection, which the client chooses (RFC 9000 section 7.2: at least 8); as
/// long as quinn has it.
const FIRST_LENGTH: usize = 20;

/// Makes the ids of one worker. Clones share what [`SteeringIds::last`] says.
#[derive(Clone)]
pub struct SteeringIds {
    worker: u8,
    workers: usize,
    last: Arc<AtomicU64>,
}

impl SteeringIds {
    /// Of the worker that has socket number `worker` of a group of `workers`.
    #[must_use]
    pub fn new(worker: u8, workers: usize) -> Self {
        Self { worker, workers, last: Arc::default() }
    }

    /// The id made last. quinn makes the one of the handshake within `Incoming::accept`, and it
    /// makes no other there: asked right after that on the same thread, this is the one which the
    /// client will use.
    #[must_use]
    pub fn last(&self) -> Option<ConnectionId> {
        match self.last.load(Ordering::Relaxed) {
            0 => None,
            made => Some(ConnectionId::new(&made.to_be_bytes())),
        }
    }
}

impl ConnectionIdGenerator for SteeringIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; LENGTH];
        id.copy_from_slice(&RandomConnectionIdGenerator::new(LENGTH).generate_cid());
        id[0] = self.worker;
        self.last.store(u64::from_be_bytes(id), Ordering::Relaxed);
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        match id.first() {
            Some(&named) if named != self.worker && usize::from(named) < self.workers => {
                Err(InvalidCid)
            }
            Some(_) | None => Ok(()),
        }
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

impl fmt::Debug for SteeringIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worker, workers, .. } = self;
        write!(f, "SteeringIds({worker} of {workers})")
    }
}

/// The first id of a connection, for `quinn::ClientConfig::initial_dst_cid_provider`. A server
/// steers it by `byte` modulo its workers: a client that has several links gives them consecutive
/// bytes, so that they are spread, and each link one and the same for good, so that a new carrier
/// of it comes to the worker that has the link.
#[must_use]
pub fn first_id_to(byte: u8) -> ConnectionId {
    let mut id = [0; FIRST_LENGTH];
    id.copy_from_slice(&RandomConnectionIdGenerator::new(FIRST_LENGTH).generate_cid());
    id[0] = byte;
    ConnectionId::new(&id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_worker_and_nothing_else_can_be_foreseen() {
        let mut ids = SteeringIds::new(3, 4);
        let made: std::collections::HashSet<_> = (0..1000).map(|_| ids.generate_cid()).collect();
        assert_eq!(made.len(), 1000);
        assert!(made.iter().all(|id| id.len() == ids.cid_len() && id[0] == 3));
        assert_eq!(first_id_to(3)[0], 3);
        assert_ne!(first_id_to(3), first_id_to(3));
    }

    #[test]
    fn the_last_id_is_known_to_all_clones() {
        let ids = SteeringIds::new(0, 1);
        assert_eq!(ids.last(), None);
        let made = ids.clone().generate_cid();
        assert_eq!(ids.last(), Some(made));
    }

    #[test]
    fn only_ids_of_another_worker_that_is_there_are_left_to_it() {
        let ids = SteeringIds::new(1, 4);
        let taken = |first: u8| ids.validate(&ConnectionId::new(&[first; 8])).is_ok();
        assert!(taken(1) && taken(4) && taken(255));
        assert!(!taken(0) && !taken(3));
        assert!(ids.validate(&ConnectionId::new(&[])).is_ok());
    }
}

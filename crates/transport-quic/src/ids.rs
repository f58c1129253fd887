//! The connection ids of a server: the first byte names the process and the worker of the
//! connection ([`net::udp::SteeringSlot`]), and `net::udp` steers packets by that byte.
//!
//! quinn's own generator rejects foreign ids before quinn considers a stateless reset. After a
//! restart the server would leave its clients without an answer. So this generator accepts all ids,
//! except ids that name another worker, or the previous process of an upgrade, while it runs. Only
//! that worker knows whether the connection lives, and the client would believe a reset from this
//! worker and end a live connection.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use net::udp::SteeringSlot;
use quinn::{ConnectionId, ConnectionIdGenerator};
use quinn_proto::{InvalidCid, RandomConnectionIdGenerator};

/// The length of an id: one byte for the worker and seven random bytes. quinn makes another id if a
/// worker makes the same id twice; a connection has up to eight ids.
pub(crate) const LENGTH: usize = 8;

/// The length of the first id of a connection, which the client chooses (RFC 9000 section 7.2: at
/// least 8). It equals quinn's own length.
const FIRST_LENGTH: usize = 20;

/// Generates the connection ids of one worker. Clones share the id that [`SteeringIds::last`]
/// returns.
#[derive(Clone)]
pub struct SteeringIds {
    steering_slot: SteeringSlot,
    last: Arc<AtomicU64>,
}

impl SteeringIds {
    /// Makes the generator of the worker with this socket.
    #[must_use]
    pub fn new(steering_slot: SteeringSlot) -> Self {
        Self { steering_slot, last: Arc::default() }
    }

    /// The id that was generated last. Within `Incoming::accept` quinn generates only the id of the
    /// handshake. Right after that call, on the same thread, this is the id that the client will
    /// use.
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
        id[0] = self.steering_slot.byte();
        self.last.store(u64::from_be_bytes(id), Ordering::Relaxed);
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        match id.first() {
            Some(&named) if self.steering_slot.is_of_other(named) => Err(InvalidCid),
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
        write!(f, "SteeringIds({:?})", self.steering_slot)
    }
}

/// The first id of a connection, for `quinn::ClientConfig::initial_dst_cid_provider`. A server
/// steers the connection by `byte` modulo its number of workers. A client with several links gives
/// them consecutive bytes, so that the links are spread over the workers. Each link keeps its byte,
/// so that a new carrier reaches the worker that has the link.
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
        let mut ids = SteeringIds::new(SteeringSlot::first(3, 4));
        let made: std::collections::HashSet<_> = (0..1000).map(|_| ids.generate_cid()).collect();
        assert_eq!(made.len(), 1000);
        assert!(made.iter().all(|id| id.len() == ids.cid_len() && id[0] == 3));
        assert_eq!(first_id_to(3)[0], 3);
        assert_ne!(first_id_to(3), first_id_to(3));
    }

    #[test]
    fn the_last_id_is_known_to_all_clones() {
        let ids = SteeringIds::new(SteeringSlot::ALONE);
        assert_eq!(ids.last(), None);
        let made = ids.clone().generate_cid();
        assert_eq!(ids.last(), Some(made));
    }

    #[test]
    fn only_ids_of_another_worker_that_is_there_are_left_to_it() {
        let ids = SteeringIds::new(SteeringSlot::first(1, 4));
        let taken = |first: u8| ids.validate(&ConnectionId::new(&[first; 8])).is_ok();
        assert!(taken(1) && taken(4) && taken(255));
        assert!(!taken(0) && !taken(3));
        assert!(ids.validate(&ConnectionId::new(&[])).is_ok());
    }
}

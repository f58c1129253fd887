//! What a server answers to strangers, and when it begins a connection.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use kcp::own::Session;
use kcp::own::wire::ConnectionId;
use transport::Side;

use crate::cookie::Cookies;
use crate::keys::Keys;
use crate::secrets;
use crate::settings::KcpSettings;
use crate::shared::{Hub, Shared};
use crate::socket::Origin;
use crate::state::State;
use crate::wire::{Cookie, Packet, RESET, VERSION};

/// Connections that have begun and are not accepted yet. Packets of further ones are ignored, and
/// their clients ask again.
const INCOMING: usize = 1_024;

/// Ids of an epoch that are remembered, so that a copied Opening begins nothing: 1,000 connections
/// begin per second and worker.
const USED: usize = 10_000;

/// Random bytes, drawn from the system in larger pieces.
#[derive(Debug)]
pub(crate) struct Random {
    bytes: [u8; 256],
    at: usize,
}

impl Default for Random {
    fn default() -> Self {
        Self { bytes: [0; 256], at: 256 }
    }
}

impl Random {
    /// Eight bytes that nobody can foresee.
    pub(crate) fn bytes(&mut self) -> [u8; 8] {
        if self.at >= self.bytes.len() {
            // The system always has random bytes once it has started.
            if getrandom::fill(&mut self.bytes).is_err() {
                tracing::error!("the system gives no random numbers");
            }
            self.at = 0;
        }
        let part = self.bytes.get_mut(self.at..self.at + 8);
        self.at += 8;
        let mut drawn = [0; 8];
        if let Some(part) = part {
            drawn.copy_from_slice(part);
            part.fill(0);
        }
        drawn
    }
}

/// The admission of one socket of a server.
pub(crate) struct Admission {
    cookies: Cookies,
    keys: Keys,
    worker: u8,
    workers: usize,
    used: Used,
}

impl Admission {
    pub(crate) fn new(keys: Keys, worker: u8, workers: usize) -> Self {
        let cookies = Cookies::new(keys.cookies.clone());
        Self { cookies, keys, worker, workers, used: Used::default() }
    }

    /// Appends the answer to a Hello. Nothing is kept.
    pub(crate) fn answer(
        &self,
        random: &mut Random,
        from: SocketAddr,
        client: ConnectionId,
        to: &mut Vec<u8>,
    ) {
        let mut id = random.bytes();
        id[0] = self.worker;
        let server = ConnectionId(id);
        let cookie = self.cookies.make(Cookies::epoch(), from, (server, client));
        Packet::Cookie { client, version: VERSION, server, cookie }.encode(to);
    }

    /// Begins the connection of an Opening whose cookie is good, and puts it before the acceptor.
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        hub: &Arc<Hub>,
        from: Origin,
        (server, client): (ConnectionId, ConnectionId),
        cookie: &Cookie,
    ) -> Option<Arc<Shared>> {
        let epoch = Cookies::epoch();
        if !self.cookies.is_good(epoch, cookie, from.peer, (server, client)) {
            return None;
        }
        let mut orders = hub.lock();
        if orders.is_closed || orders.accepted.len() >= INCOMING || !self.used.take(epoch, server) {
            return None;
        }
        let ids = (server, client);
        let keys = secrets::bootstrap(Side::Server, server, client)?;
        let bootstrap = Session::new(KcpSettings::bootstrap(ids), keys, now);
        let state = State::new(Side::Server, bootstrap, ids, from, Vec::new());
        let shared = Shared::new(Arc::clone(hub), state);
        orders.accepted.push_back(Arc::clone(&shared));
        let acceptor = orders.acceptor.take();
        drop(orders);
        if let Some(acceptor) = acceptor {
            acceptor.wake();
        }
        Some(shared)
    }

    /// Appends the answer to a packet of `length` bytes of a connection that is not known. There is
    /// none where another worker may know the connection, or the packet is shorter than the answer.
    pub(crate) fn reset(&self, server: ConnectionId, length: usize, to: &mut Vec<u8>) {
        let [named, ..] = server.0;
        if length >= RESET && (named == self.worker || usize::from(named) >= self.workers) {
            self.keys.reset(server, to);
        }
    }
}

/// The ids of connections that have begun in this epoch and in the one before.
#[derive(Debug, Default)]
struct Used {
    epoch: u32,
    now: HashSet<ConnectionId>,
    before: HashSet<ConnectionId>,
}

impl Used {
    /// Takes an id; `false` where it was taken, or too many were.
    fn take(&mut self, epoch: u32, id: ConnectionId) -> bool {
        if epoch != self.epoch {
            let last = std::mem::take(&mut self.now);
            self.before = if epoch == self.epoch.wrapping_add(1) { last } else { HashSet::new() };
            self.epoch = epoch;
        }
        self.now.len() < USED && !self.before.contains(&id) && self.now.insert(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> ConnectionId {
        ConnectionId([n; 8])
    }

    #[test]
    fn an_id_begins_one_connection_while_its_cookie_holds() {
        let mut used = Used::default();
        assert!(used.take(5, id(1)));
        assert!(!used.take(5, id(1)));
        assert!(!used.take(6, id(1)), "its cookie still holds");
        assert!(used.take(7, id(1)), "its cookie does not");
        assert!(used.take(20, id(1)));
    }

    #[test]
    fn a_server_names_its_worker_and_resets_what_no_other_worker_may_know() {
        let admission = Admission::new(Keys::fleeting().unwrap(), 3, 4);
        let from = SocketAddr::from(([127, 0, 0, 1], 5));
        let mut answer = Vec::new();
        admission.answer(&mut Random::default(), from, id(9), &mut answer);
        let Some(Packet::Cookie { client, server, cookie, .. }) = Packet::decode(&answer) else {
            panic!("{answer:?}");
        };
        assert_eq!((client, server.0[0]), (id(9), 3));
        assert!(admission.cookies.is_good(cookie.epoch, &cookie, from, (server, client)));
        let reset = |id, length| {
            let mut answer = Vec::new();
            admission.reset(id, length, &mut answer);
            answer.len()
        };
        assert_eq!(reset(server, RESET), RESET);
        assert_eq!(reset(server, RESET - 1), 0, "shorter than the answer");
        assert_eq!(reset(id(2), 100), 0, "worker 2 may know the connection");
        assert_eq!(reset(id(4), 100), RESET, "there is no worker 4");
    }

    #[test]
    fn random_bytes_do_not_repeat() {
        let mut random = Random::default();
        let drawn: HashSet<_> = (0..1_000).map(|_| random.bytes()).collect();
        assert_eq!(drawn.len(), 1_000);
    }
}

//! The responses of a server to unauthenticated peers, and the start of connections.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use kcp::own::Session;
use kcp::own::wire::ConnectionId;
use net::Current;
use net::source::{Proxies, Rates, Shares};
use net::udp::SteeringSlot;
use transport::Side;

use crate::cookie::Cookies;
use crate::keys::Keys;
use crate::secrets;
use crate::settings::KcpSettings;
use crate::shared::{Hub, Shared};
use crate::socket::Origin;
use crate::state::State;
use crate::wire::{Cookie, Packet, RESET, VERSION};

/// The largest number of connections that have started and are not accepted yet. Packets of further
/// connections are ignored, and their clients retry. Such a connection holds up to 64 KiB, and the
/// accept loop takes the connections within a turn of the worker.
const INCOMING: usize = 256;

/// The largest number of them per source.
const INCOMING_OF_SOURCE: u32 = 64;

/// The largest number of connections that one source may start per second at one worker: about as
/// many as a core serves (5,000 clients at once take 9 to 12 s over QUIC).
const RATE: u32 = 500;

/// The minimum number of remembered ids, so that a replayed Opening starts nothing.
const USED: usize = 10_000;

/// Random bytes, drawn from the system in larger pieces.
#[derive(Debug)]
pub(crate) struct Random {
    bytes: [u8; 256],
    at: usize,
    /// The system provided none at the last attempt, and the log says so.
    is_reported: bool,
}

impl Default for Random {
    fn default() -> Self {
        Self { bytes: [0; 256], at: 256, is_reported: false }
    }
}

impl Random {
    /// Eight unpredictable bytes; `None` if the system provides none.
    pub(crate) fn bytes(&mut self) -> Option<[u8; 8]> {
        self.bytes_of(|piece| getrandom::fill(piece).is_ok())
    }

    /// As [`Random::bytes`]; `fill` is the system's source.
    fn bytes_of(&mut self, fill: impl FnOnce(&mut [u8]) -> bool) -> Option<[u8; 8]> {
        if self.at >= self.bytes.len() {
            if !fill(&mut self.bytes) {
                if !self.is_reported {
                    tracing::error!(
                        "the system gives no random numbers: kcp:// answers no new client"
                    );
                    self.is_reported = true;
                }
                return None;
            }
            self.is_reported = false;
            self.at = 0;
        }
        let part = self.bytes.get_mut(self.at..)?.first_chunk_mut()?;
        self.at += part.len();
        Some(std::mem::take(part))
    }
}

/// The admission of one socket of a server.
pub(crate) struct Admission {
    cookies: Cookies,
    keys: Keys,
    proxies: Current<Proxies>,
    steering_slot: SteeringSlot,
    used: Used,
    rates: Rates,
    queued: Arc<Shares>,
}

impl Admission {
    pub(crate) fn new(keys: Keys, proxies: Current<Proxies>, steering_slot: SteeringSlot) -> Self {
        let cookies = Cookies::new(keys.cookies.clone());
        let (used, rates) = (Used::default(), Rates::new(RATE));
        let queued = Shares::new(INCOMING_OF_SOURCE);
        Self { cookies, keys, proxies, steering_slot, used, rates, queued }
    }

    /// Appends the response to a Hello, if the system provides an id. No state is kept.
    pub(crate) fn answer(
        &self,
        random: &mut Random,
        from: SocketAddr,
        client: ConnectionId,
        to: &mut Vec<u8>,
    ) {
        let Some(mut id) = random.bytes() else { return };
        id[0] = self.steering_slot.byte();
        let server = ConnectionId(id);
        let cookie = self.cookies.make(Cookies::epoch(), from, (server, client));
        Packet::Cookie { client, version: VERSION, server, cookie }.encode(to);
    }

    /// Whether an address is that of a reverse proxy.
    pub(crate) fn is_proxy(&self, ip: IpAddr) -> bool {
        self.proxies.get().include(ip)
    }

    /// Starts the connection of an Opening with a valid cookie, and queues it for the acceptor.
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
        let source = self.proxies.get().source(from.peer.ip());
        let mut orders = hub.lock();
        if orders.is_closed || orders.accepted.len() >= INCOMING {
            return None;
        }
        let queued = self.queued.take(source)?;
        if !self.rates.take(now, source) || !self.used.take(epoch, server) {
            return None;
        }
        let ids = (server, client);
        let keys = secrets::bootstrap(Side::Server, server, client)?;
        let bootstrap = Session::new(KcpSettings::bootstrap(ids), keys, now);
        let state = State::new(Side::Server, bootstrap, ids, from, Vec::new());
        let shared = Shared::new(Arc::clone(hub), state);
        orders.accepted.push_back((Arc::clone(&shared), queued));
        let acceptor = orders.acceptor.take();
        drop(orders);
        if let Some(acceptor) = acceptor {
            acceptor.wake();
        }
        Some(shared)
    }

    /// Appends the response to a packet of `length` bytes for an unknown connection. There is none
    /// where another worker or process may know the connection, or if the packet is shorter than
    /// the response.
    pub(crate) fn reset(&self, server: ConnectionId, length: usize, to: &mut Vec<u8>) {
        let [named, ..] = server.0;
        if length >= RESET && !self.steering_slot.is_of_other(named) {
            self.keys.reset(server, to);
        }
    }
}

/// The ids of connections that have started in this epoch and in the previous one. At a high rate,
/// the older half is evicted sooner: a replayed Opening may then start a useless connection, but no
/// source locks out the clients of others.
#[derive(Debug, Default)]
struct Used {
    epoch: u32,
    now: HashSet<ConnectionId>,
    before: HashSet<ConnectionId>,
}

impl Used {
    /// Records an id; `false` if it was already recorded.
    fn take(&mut self, epoch: u32, id: ConnectionId) -> bool {
        if epoch != self.epoch {
            let is_next = epoch == self.epoch.wrapping_add(1);
            let last = std::mem::take(&mut self.now);
            self.before = if is_next { last } else { HashSet::new() };
            self.epoch = epoch;
        }
        if self.before.contains(&id) || !self.now.insert(id) {
            return false;
        }
        if self.now.len() >= USED {
            self.before = std::mem::take(&mut self.now);
        }
        true
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
    fn many_ids_keep_no_new_one_away_and_take_bounded_memory() {
        let mut used = Used::default();
        let nth = |n: u64| ConnectionId(n.to_be_bytes());
        for n in 0..25_000 {
            assert!(used.take(5, nth(n)), "{n}");
            assert!(used.now.len() + used.before.len() <= 2 * USED);
        }
        assert!(!used.take(5, nth(24_999)) && !used.take(5, nth(15_001)));
    }

    #[test]
    fn connections_that_nobody_accepts_yet_are_few_per_source() {
        let proxies = Proxies::new(|ip| ip.to_string() == "192.0.2.9");
        let mut admission =
            Admission::new(Keys::fleeting().unwrap(), proxies.into(), SteeringSlot::ALONE);
        let (now, hub) = (Instant::now(), Arc::<Hub>::default());
        let mut random = Random::default();
        let mut begin = |ip: [u8; 4]| {
            let peer = SocketAddr::from((ip, 5));
            let ids = (ConnectionId(random.bytes().unwrap()), id(9));
            let cookie = admission.cookies.make(Cookies::epoch(), peer, ids);
            let origin = Origin { peer, local: None };
            admission.admit(now, &hub, origin, ids, &cookie).is_some()
        };
        let begun = (0..200).filter(|_| begin([192, 0, 2, 1])).count();
        assert_eq!(begun, INCOMING_OF_SOURCE as usize);
        assert!(begin([192, 0, 2, 2]), "another source");
        assert!((0..40).all(|_| begin([192, 0, 2, 9])), "a reverse proxy is no source");
        hub.lock().accepted.clear();
        assert!(begin([192, 0, 2, 1]), "the accept loop has taken them");
    }

    #[test]
    fn a_server_names_its_worker_and_resets_what_no_other_worker_may_know() {
        let admission = Admission::new(
            Keys::fleeting().unwrap(),
            Proxies::default().into(),
            SteeringSlot::first(3, 4),
        );
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
        let drawn: HashSet<_> = (0..1_000).map(|_| random.bytes().unwrap()).collect();
        assert_eq!(drawn.len(), 1_000);
    }

    #[test]
    fn where_the_system_gives_no_random_bytes_there_are_none() {
        let mut random = Random::default();
        assert_eq!(random.bytes_of(|_| false), None);
        let first = random.bytes_of(|piece| {
            piece.fill(7);
            true
        });
        assert_eq!(first, Some([7; 8]));
        let left = (0..100).map_while(|_| random.bytes_of(|_| false)).count();
        assert_eq!(left, 31, "what was drawn before, and nothing else");
        assert_eq!(random.bytes_of(|_| false), None);
    }
}

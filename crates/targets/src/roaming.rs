//! Visitors that roam: a visitor of a service comes by another server of the client, or over
//! another link, and goes on with the same socket to the target. So a flow of UDP, as that of
//! WireGuard, QUIC or a game, survives a change of DNS or of the anycast route, and the end of a
//! server.
//!
//! The directory of a service names the flows of each visitor on all workers. Only the begin and
//! the end of a flow touch the directory, never a datagram. The key is the service and the address
//! and port of the visitor as its server reports them, so a visitor behind a symmetric NAT, which
//! gets another port for another server, begins anew.
//!
//! ```text
//!   OPEN over server B ──> directory: visitor V has flow 7 of server A on worker 0
//!        │                                   │ V has flow 8 of server B on worker 1 now
//!        ▼                                   ▼
//!   flow 8 waits on worker 1 ──mailbox──> worker 0: flow 7 ends, its socket goes to worker 1
//! ```
//!
//! A second flow of a visitor by the same server is another conversation, at another public port of
//! the service: both flows keep their sockets, and neither moves while both exist, because nothing
//! tells which of them a flow of another server continues.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use net::socket::canonical;
use node::session::{Handle, Worker};
use relay::{FlowEntry, FlowTargets, MovedSocket};
use tokio::time::{Instant, timeout};
use transport::LocalFuture;

use super::state::TargetsState;

/// The time after which a visitor counts as moved for good: longer than the convergence of a route
/// and than the repetitions of a handshake (WireGuard: 5 s).
const SETTLED: Duration = Duration::from_secs(10);

/// The moves of a visitor away from its server in a burst, and the interval of further moves. A
/// route that flaps causes few moves. A program that sends to both servers at the same time, or a
/// stranger who forges the address of a visitor at the other server, causes a move with each
/// datagram.
const BURST: u32 = 4;
const INTERVAL: Duration = Duration::from_secs(15);

/// The time in which another worker gives a socket away. A worker that is busy for longer keeps its
/// flow, and the new flow begins anew.
const PATIENCE: Duration = Duration::from_secs(1);

/// The directories of the services, by name, over all workers.
#[derive(Debug, Default)]
pub(super) struct Roaming(Mutex<HashMap<String, Arc<Directory>>>);

impl Roaming {
    pub(super) fn of(&self, service: &str) -> Arc<Directory> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(service.to_owned()).or_default())
    }

    /// Forgets removed services.
    pub(super) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|name, _| is_there(name));
    }
}

/// The directory of one service, as a worker uses it.
#[derive(Debug)]
pub(super) struct RoamingHere {
    service: Arc<str>,
    directory: Arc<Directory>,
    worker: usize,
    workers: Arc<[Handle]>,
}

impl RoamingHere {
    pub(super) fn new(worker: &Worker, service: &str, directory: Arc<Directory>) -> Self {
        let (worker, workers) = (worker.index, Arc::clone(&worker.peers));
        Self { service: service.into(), directory, worker, workers }
    }

    /// As [`Directory::open`].
    pub(super) fn open(&self, visitor: SocketAddr, server: u64) -> (RoamingFlow, Option<Claim>) {
        self.directory.open(visitor, server, self.worker, Instant::now())
    }

    /// The socket of the former flow. `here`: the flows of the service on this worker. `None`: the
    /// former flow has ended meanwhile, or has no socket yet.
    pub(super) fn take(
        &self,
        claim: Claim,
        here: &Rc<FlowTargets>,
    ) -> LocalFuture<'static, Option<MovedSocket>> {
        let Claim { id, worker, .. } = claim;
        if worker == self.worker {
            let here = Rc::clone(here);
            return Box::pin(async move { here.release(id) });
        }
        let (handle, service) = (self.workers.get(worker).cloned(), Arc::clone(&self.service));
        Box::pin(async move {
            let give =
                move |there: &Rc<Worker>| there.state.of::<TargetsState>().release(&service, id);
            timeout(PATIENCE, handle?.call(give)).await.ok()?.ok()?
        })
    }
}

/// The flows of one service by visitor. There is an entry for each flow, so the limits of flows
/// bound the directory.
#[derive(Debug, Default)]
pub(super) struct Directory(Mutex<HashMap<SocketAddr, Flows>>);

/// The flows of one visitor.
#[derive(Debug)]
struct Flows {
    /// Rarely more than one.
    all: Vec<NamedFlow>,
    moves: Moves,
}

/// A flow.
#[derive(Debug)]
struct NamedFlow {
    id: u64,
    server: u64,
    worker: usize,
    /// Its link has ended.
    is_parked: bool,
    /// The mark of its target, where the service has several.
    mark: Option<u64>,
}

/// The moves of the socket of a visitor between servers.
#[derive(Debug)]
struct Moves {
    /// The server at which the visitor was before the last moves. A return to this server is always
    /// permitted, so a stranger who forges the address of a visitor elsewhere never keeps the
    /// socket.
    home: u64,
    last: Option<Instant>,
    /// The time at which the next move is due at an even rate (GCRA, ITU-T I.371, annex A).
    due: Option<Instant>,
}

impl Moves {
    /// Whether the socket may move between servers now. Records the move.
    fn admit(&mut self, from: u64, to: u64, now: Instant) -> bool {
        if self.last.is_none_or(|last| last + SETTLED <= now) {
            self.home = from;
        }
        if to != self.home {
            let due = self.due.map_or(now, |due| due.max(now));
            if due > now + INTERVAL * (BURST - 1) {
                return false;
            }
            self.due = Some(due + INTERVAL);
        }
        self.last = Some(now);
        true
    }
}

/// The flow whose socket a new flow takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) id: u64,
    pub(super) worker: usize,
    pub(super) mark: Option<u64>,
}

impl Directory {
    fn flows(&self) -> MutexGuard<'_, HashMap<SocketAddr, Flows>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a flow that begins on `worker`. The claim names the former flow of the visitor, which
    /// is no longer in the directory; without one, the flow begins anew.
    pub(super) fn open(
        self: &Arc<Self>,
        visitor: SocketAddr,
        server: u64,
        worker: usize,
        now: Instant,
    ) -> (RoamingFlow, Option<Claim>) {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let (id, visitor) = (IDS.fetch_add(1, Ordering::Relaxed), canonical(visitor));
        let new = NamedFlow { id, server, worker, is_parked: false, mark: None };
        let claim = {
            let mut flows = self.flows();
            let of = flows.entry(visitor).or_insert_with(|| Flows {
                all: Vec::with_capacity(1),
                moves: Moves { home: server, last: None, due: None },
            });
            match of.former(server, now) {
                Some(index) => {
                    let former = std::mem::replace(&mut of.all[index], new);
                    Some(Claim { id: former.id, worker: former.worker, mark: former.mark })
                }
                None => {
                    of.all.push(new);
                    None
                }
            }
        };
        (RoamingFlow { directory: Arc::clone(self), visitor, id }, claim)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.flows().values().map(|of| of.all.len()).sum()
    }
}

impl Flows {
    /// The index of the flow that a new flow of `server` continues.
    fn former(&mut self, server: u64, now: Instant) -> Option<usize> {
        // The flow of a link of the same server that has ended.
        let all = self.all.iter().enumerate();
        let mut own = all.filter(|(_, flow)| flow.server == server && flow.is_parked);
        if let (Some((index, _)), None) = (own.next(), own.next()) {
            return Some(index);
        }
        let [only] = &*self.all else { return None };
        let (from, is_parked) = (only.server, only.is_parked);
        let may_move = is_parked || (from != server && self.moves.admit(from, server, now));
        may_move.then_some(0)
    }
}

/// The entry of a flow. A drop removes the flow from the directory.
pub(super) struct RoamingFlow {
    directory: Arc<Directory>,
    visitor: SocketAddr,
    id: u64,
}

impl RoamingFlow {
    /// Records the target of the flow.
    pub(super) fn note_mark(&self, mark: u64) {
        self.change(|flow| flow.mark = Some(mark));
    }

    fn change(&self, change: impl FnOnce(&mut NamedFlow)) {
        let mut flows = self.directory.flows();
        let all = flows.get_mut(&self.visitor).map(|of| &mut of.all);
        // Another flow may have taken its place.
        all.into_iter().flatten().find(|flow| flow.id == self.id).map(change);
    }
}

impl FlowEntry for RoamingFlow {
    fn id(&self) -> u64 {
        self.id
    }

    fn park(&self) {
        self.change(|flow| flow.is_parked = true);
    }
}

impl Drop for RoamingFlow {
    fn drop(&mut self) {
        let mut flows = self.directory.flows();
        let Some(of) = flows.get_mut(&self.visitor) else { return };
        of.all.retain(|flow| flow.id != self.id);
        if of.all.is_empty() {
            flows.remove(&self.visitor);
        }
    }
}

impl fmt::Debug for RoamingFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RoamingFlow({} of {})", self.id, self.visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = 1;
    const B: u64 = 2;
    const C: u64 = 3;

    fn visitor(port: u16) -> SocketAddr {
        ([192, 0, 2, 7], port).into()
    }

    fn after(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_flow_of_another_server_continues_the_flow_of_the_same_address_and_port() {
        let (all, now) = (Arc::<Directory>::default(), Instant::now());
        let (first, claim) = all.open(visitor(1), A, 0, now);
        assert_eq!(claim, None);
        first.note_mark(7);
        let (other_port, claim) = all.open(visitor(2), B, 1, now);
        assert_eq!(claim, None, "another port is another visitor");
        let mapped = "[::ffff:192.0.2.7]:1".parse().unwrap();
        let (next, claim) = all.open(mapped, B, 1, now);
        assert_eq!(claim, Some(Claim { id: first.id(), worker: 0, mark: Some(7) }));
        assert_eq!(all.len(), 2, "a flow that moves counts once");
        // The end of the former flow does not remove the flow that took its place.
        first.park();
        drop(first);
        let (back, claim) = all.open(visitor(1), A, 0, now);
        assert_eq!(claim, Some(Claim { id: next.id(), worker: 1, mark: None }));
        drop((next, back, other_port));
        assert_eq!(all.len(), 0);
        assert!(all.flows().is_empty());
    }

    #[test]
    fn two_conversations_of_a_visitor_at_one_server_keep_their_sockets() {
        let (all, now) = (Arc::<Directory>::default(), Instant::now());
        let (one, _) = all.open(visitor(1), A, 0, now);
        let (other, claim) = all.open(visitor(1), A, 1, now);
        assert_eq!(claim, None);
        let (elsewhere, claim) = all.open(visitor(1), B, 0, now);
        assert_eq!(claim, None, "nothing tells which conversation goes on");
        drop((one, elsewhere));
        let (_next, claim) = all.open(visitor(1), B, 0, now);
        assert_eq!(claim.map(|claim| claim.id), Some(other.id()));
    }

    #[test]
    fn the_next_flow_of_any_server_continues_a_flow_without_a_link() {
        let (all, now) = (Arc::<Directory>::default(), Instant::now());
        for server in [A, B] {
            let (first, _) = all.open(visitor(1), A, 0, now);
            first.park();
            let (_next, claim) = all.open(visitor(1), server, 1, now);
            assert_eq!(claim.map(|claim| claim.id), Some(first.id()));
        }
        // Beside a flow of another server, the flow of the own server is the one that goes on.
        let (first, _) = all.open(visitor(1), A, 0, now);
        let (second, _) = all.open(visitor(1), A, 0, now);
        let (other, claim) = all.open(visitor(1), B, 0, now);
        assert_eq!(claim, None);
        drop(second);
        first.park();
        other.park();
        let (_next, claim) = all.open(visitor(1), A, 1, now);
        assert_eq!(claim.map(|claim| claim.id), Some(first.id()));
    }

    /// Opens a flow of each of these servers in turn. Returns the number of moves, and the server
    /// whose flow has the first socket at the end.
    fn alternate(all: &Arc<Directory>, servers: &[u64], now: Instant) -> (usize, u64) {
        let (first, _) = all.open(visitor(1), A, 0, now);
        let mut open = vec![(A, first)];
        let (mut moves, mut holder) = (0, A);
        for &server in servers {
            if open.iter().any(|(of, _)| *of == server) {
                continue;
            }
            let (flow, claim) = all.open(visitor(1), server, 0, now);
            if let Some(claim) = claim {
                moves += 1;
                open.retain(|(_, flow)| flow.id() != claim.id);
                holder = server;
            }
            open.push((server, flow));
        }
        (moves, holder)
    }

    #[test]
    fn a_visitor_at_two_servers_at_once_soon_has_a_socket_for_each() {
        let (all, now) = (Arc::<Directory>::default(), Instant::now());
        let alternately: Vec<u64> = (0..1_000).map(|n| [B, A][n % 2]).collect();
        let (moves, holder) = alternate(&all, &alternately, now);
        assert_eq!(moves, 2 * BURST as usize);
        assert_eq!(holder, A, "the server of the visitor keeps the first socket");
        let around: Vec<u64> = (0..1_000).map(|n| [B, C, A][n % 3]).collect();
        let (moves, _) = alternate(&Arc::default(), &around, now);
        assert!(moves <= 2 * BURST as usize, "{moves}");
    }

    #[test]
    fn a_forged_address_at_another_server_never_keeps_the_socket() {
        let (all, start) = (Arc::<Directory>::default(), Instant::now());
        let (mut own, _) = all.open(visitor(1), A, 0, start);
        for n in 0..100 {
            let now = start + after(n);
            let (forged, claim) = all.open(visitor(1), B, 1, now);
            if claim.is_some() {
                // The next datagram of the visitor at its server.
                let (back, claim) = all.open(visitor(1), A, 0, now);
                assert_eq!(claim.map(|claim| claim.id), Some(forged.id()));
                own = back;
            }
        }
        assert_eq!(all.open(visitor(1), A, 0, start).1, None);
        assert_eq!(own.id(), all.flows()[&visitor(1)].all[0].id);
    }

    #[test]
    fn a_visitor_that_moves_now_and_then_keeps_its_socket_for_ever() {
        let (all, mut now) = (Arc::<Directory>::default(), Instant::now());
        let (mut flow, _) = all.open(visitor(1), A, 0, now);
        for n in 0..100_u64 {
            now += after(60);
            let (next, claim) = all.open(visitor(1), [B, C, A][(n % 3) as usize], 0, now);
            assert_eq!(claim.map(|claim| claim.id), Some(flow.id()), "move {n}");
            flow = next;
        }
    }
}

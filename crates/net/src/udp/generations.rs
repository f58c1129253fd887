//! UDP ports of carriers that several generations of a daemon read at the same time, after an
//! upgrade. Each generation has its own sockets at the port, and the kernel steers each datagram to
//! the generation and the worker that its connection id names.
//!
//! ```text
//!   SO_REUSEPORT group of a port, 2 workers        connection id   a client's first packet
//!   ┌───────────────┬───────────────┐              0, 1 ──► slot 0
//!   │ 0: former, w0 │ 2: next, w0   │              2, 3 ──► slot 1
//!   │ 1: former, w1 │ 3: next, w1   │              any, and ids of no live slot ──► serving slot
//!   └───────────────┴───────────────┘
//!        slot 0           slot 1
//! ```
//!
//! A generation has a *slot*, a number below [`SLOTS`] that no other live generation has. The first
//! byte of its connection ids is `slot * workers + worker` ([`SteeringSlot`]).
//!
//! The next generation inherits the sockets of the previous generations, joins the group with its
//! own sockets, and attaches the program of the group ([`super::steer()`]). It keeps the inherited
//! sockets open but does not read them: when a socket of a group closes, the kernel gives its index
//! to the last socket. The sockets of a slot whose process has ended are reused by the next
//! generation that takes the slot.
//!
//! No datagram is copied between processes, so the previous generation keeps its speed. An upgrade
//! fails only if the kernel refuses the program.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use socket2::SockRef;

use super::steer::{Form, Steered, steer};
use crate::handover;
use crate::inherited::{self, Place};

/// The maximum number of slots: generations of a daemon that have UDP connections at the same time.
pub const SLOTS: u8 = 16;

/// The maximum number of sockets of a port. The handover sends them in one message, which has at
/// most 253 descriptors (`SCM_MAX_FD`), and a socket is named by one byte.
const SOCKETS: usize = 253;

/// The maximum number of datagrams that are drained from a socket whose process has ended.
const STALE: usize = 65_536;

/// The slots of other processes that may have connections: a bit for each slot.
static OTHERS: AtomicU32 = AtomicU32::new(0);

static GENERATIONS: Mutex<Generations> =
    Mutex::new(Generations { own: 0, former: Vec::new(), ports: Vec::new(), left: Vec::new() });

/// The state for the next generation: the slots of all live generations, the sender's last, and for
/// each port its address and the slots of its sockets in the order of the kernel.
pub type Layout = (Vec<u8>, Vec<(String, Vec<u8>)>);

#[derive(Debug)]
struct Generations {
    /// The slot of this process.
    own: u8,
    /// The slots of the live previous generations, the oldest first.
    former: Vec<u8>,
    ports: Vec<Port>,
    /// The ports of the previous generation that this process has not bound.
    left: Vec<(String, Vec<u8>)>,
}

/// A port that this process has bound.
#[derive(Debug)]
struct Port {
    place: String,
    form: Form,
    workers: usize,
    /// The slot of each run of `workers` sockets, in the order of the kernel.
    slots: Vec<u8>,
    /// The index of the slot of this process among them.
    nth: usize,
    /// Sockets of previous generations, which stay open but are not read.
    held: Vec<UdpSocket>,
}

/// The sockets of a port that this process reads.
#[derive(Debug)]
pub struct CarrierGroup {
    /// The sockets by worker index. They must be closed together.
    pub sockets: Vec<UdpSocket>,
    slot: u8,
}

/// The position of a socket in its port's group, as named by the connection ids of its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteeringSlot {
    slot: u8,
    byte: u8,
    workers: usize,
}

impl SteeringSlot {
    /// The only socket of a port that this process does not share.
    pub const ALONE: Self = Self { slot: 0, byte: 0, workers: 1 };

    /// The socket of `worker` in a group of `workers` that this process does not share.
    #[must_use]
    pub const fn first(worker: u8, workers: usize) -> Self {
        Self { slot: 0, byte: worker, workers }
    }

    /// The first byte of the connection ids.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self.byte
    }

    /// Whether an id with this first byte may belong to a live connection of another socket. Only
    /// its worker knows, so no other worker may reply that the connection is closed.
    #[must_use]
    pub fn is_of_other(self, named: u8) -> bool {
        self.is_of_another(named, OTHERS.load(Ordering::Relaxed))
    }

    fn is_of_another(self, named: u8, others: u32) -> bool {
        let slot = usize::from(named) / self.workers.max(1);
        if slot == usize::from(self.slot) {
            return named != self.byte;
        }
        u32::try_from(slot).is_ok_and(|slot| others.checked_shr(slot).unwrap_or(0) & 1 == 1)
    }
}

impl CarrierGroup {
    /// The steering slot of the socket of a worker.
    ///
    /// # Errors
    /// The group has no such worker.
    pub fn steering_slot(&self, worker: usize) -> io::Result<SteeringSlot> {
        let workers = self.sockets.len();
        let byte = usize::from(self.slot) * workers + worker;
        let byte = u8::try_from(byte).map_err(io::Error::other)?;
        Ok(SteeringSlot { slot: self.slot, byte, workers })
    }
}

/// Creates `count` sockets on `address` for carriers, as [`super::udp_group`] does. If a previous
/// generation of the daemon has the port, the sockets join its group, and it keeps its connections.
/// New clients reach this process after [`handover::serve`].
///
/// # Errors
/// As for [`super::udp_group`]. The previous generation has another number of workers, too many
/// generations are live, or the kernel refuses the program.
pub fn carrier_group(address: SocketAddr, count: usize, form: Form) -> io::Result<CarrierGroup> {
    let address = crate::bindable(address)?;
    let mut all = generations();
    let (own, place) = (all.own, Place::Udp(address).to_string());
    let Some(nth) = all.left.iter().position(|(left, _)| *left == place) else {
        let sockets = super::share(address, count)?;
        super::steer_alone(&sockets, form, own);
        handover::note(&sockets);
        let workers = sockets.len();
        let place = sockets.first().map(UdpSocket::local_addr).transpose()?;
        let place = Place::Udp(place.unwrap_or(address)).to_string();
        all.add(Port { place, form, workers, slots: vec![own], nth: 0, held: Vec::new() });
        return Ok(CarrierGroup { sockets, slot: own });
    };
    let (_, slots) = all.left.swap_remove(nth);
    let inherited = inherited::udp_all(address)?;
    let workers = count.max(1);
    if inherited.len() != slots.len() * workers {
        return Err(inherited::differs(inherited.len() / slots.len().max(1), count));
    }
    let most = (SOCKETS / workers).min(usize::from(SLOTS));
    if usize::from(own) >= most || slots.len() > most {
        let why = format!(
            "{} former processes still have connections here, and at most {most} processes share a \
             port of UDP (hint: wait for the end of their streams, or restart the daemon)",
            all.former.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut port = Port { place, form, workers, slots, nth: 0, held: inherited };
    let sockets = port.join(own, address)?;
    // Until this process serves, new clients still reach the previous generation.
    port.steer(&all.live(), all.former.last().copied().unwrap_or(own)).map_err(unsteered)?;
    handover::note(&port.in_order(&sockets));
    all.add(port);
    Ok(CarrierGroup { sockets, slot: own })
}

impl Port {
    /// The sockets of this process: those of an ended generation with the same slot, or new
    /// sockets.
    fn join(&mut self, own: u8, address: SocketAddr) -> io::Result<Vec<UdpSocket>> {
        if let Some(nth) = self.slots.iter().position(|slot| *slot == own) {
            self.nth = nth;
            let at = nth * self.workers;
            let again: Vec<_> = self.held.drain(at..at + self.workers).collect();
            again.iter().for_each(drop_stale);
            return Ok(again);
        }
        for socket in &self.held {
            SockRef::from(socket).set_reuse_port(true)?;
        }
        let mut joined = Vec::with_capacity(self.workers);
        for _ in 0..self.workers {
            let socket = super::socket(address)?;
            socket.set_reuse_port(true)?;
            socket.bind(&address.into())?;
            joined.push(socket.into());
        }
        self.nth = self.slots.len();
        self.slots.push(own);
        Ok(joined)
    }

    /// All sockets in the order of the kernel; `own` are the sockets of this process.
    fn in_order<'a>(&'a self, own: &'a [UdpSocket]) -> Vec<BorrowedFd<'a>> {
        let (before, after) = self.held.split_at(self.nth * self.workers);
        before.iter().chain(own).chain(after).map(AsFd::as_fd).collect()
    }

    /// The sockets of the generations with these slots.
    fn held_of<'a>(&'a self, slots: &'a [u8]) -> impl Iterator<Item = &'a UdpSocket> {
        let others = self.slots.iter().enumerate().filter(|(nth, _)| *nth != self.nth);
        let groups = others.map(|(_, slot)| slot).zip(self.held.chunks(self.workers.max(1)));
        groups.filter(|(slot, _)| slots.contains(slot)).flat_map(|(_, group)| group)
    }

    /// Attaches the steering program if other generations have sockets of the port.
    fn steer(&self, live: &[u8], serving: u8) -> io::Result<()> {
        let Some(member) = self.held.first() else { return Ok(()) };
        let Self { form, workers, ref slots, .. } = *self;
        steer(member, &Steered { form, workers, slots, live, serving })
    }
}

/// Takes over the layout of the previous generation. Must be called before a port is bound.
pub fn inherit((former, left): Layout) {
    let mut all = generations();
    all.own = (0..u8::MAX).find(|slot| !former.contains(slot)).unwrap_or(u8::MAX);
    (all.former, all.left) = (former, left);
    OTHERS.store(all.others(), Ordering::Relaxed);
}

/// The slot of this process, and whether previous generations are live. The slot is 0 if there was
/// no previous generation.
#[must_use]
pub fn slot() -> (u8, bool) {
    let all = generations();
    (all.own, !all.former.is_empty())
}

/// The state for the next generation.
#[must_use]
pub fn layout() -> Layout {
    let all = generations();
    let port = |port: &Port| (port.place.clone(), port.slots.clone());
    // The next generation may bind a port that this generation has not bound.
    let left = all.left.iter().cloned();
    (all.live(), all.ports.iter().map(port).chain(left).collect())
}

/// Whether several generations read this port.
pub(crate) fn is_of_carriers(place: &Place) -> bool {
    let (place, all) = (place.to_string(), generations());
    all.ports.iter().any(|port| port.place == place) || all.left.iter().any(|(at, _)| *at == place)
}

/// Drops the ports of the previous generation that this process has not bound, which are closed.
pub(crate) fn forget_left() {
    generations().left.clear();
}

/// Steers new clients to this process from now on.
pub(crate) fn serve() {
    let all = generations();
    all.steer(all.own);
}

/// Marks all slots as in use: the next generation controls the steering, and this process no longer
/// knows which ids are in use.
pub(crate) fn hand_over() {
    OTHERS.store(u32::MAX, Ordering::Relaxed);
}

/// Called when the previous generations have ended. This process replies to packets of connections
/// that they may have left.
pub fn former_ended() {
    if handover::is_handed_over() {
        return;
    }
    OTHERS.store(0, Ordering::Relaxed);
    let mut all = generations();
    all.former.clear();
    all.steer(all.own);
    all.ports.iter().flat_map(|port| &port.held).for_each(drop_stale);
}

/// Keeps only the previous generations in `slots` as live. The next generation may take the slots
/// of the others.
pub fn former_live(slots: &[u8]) {
    let mut all = generations();
    let gone: Vec<u8> = all.former.extract_if(.., |slot| !slots.contains(slot)).collect();
    if gone.is_empty() || handover::is_handed_over() {
        return;
    }
    OTHERS.store(all.others(), Ordering::Relaxed);
    all.steer(all.own);
    for port in &all.ports {
        port.held_of(&gone).for_each(drop_stale);
    }
}

/// The maximum number of processes that can share the ports of this process.
#[must_use]
pub fn most_processes() -> usize {
    let all = generations();
    let most = all.ports.iter().map(|port| (SOCKETS / port.workers.max(1)).min(SLOTS.into()));
    most.min().unwrap_or(usize::MAX)
}

impl Generations {
    /// The slots of the previous generations as bits.
    fn others(&self) -> u32 {
        let bit = |slot: &u8| 1_u32.checked_shl(u32::from(*slot)).unwrap_or(0);
        self.former.iter().fold(0, |bits, slot| bits | bit(slot))
    }

    /// The slots of all live processes, the slot of this process last.
    fn live(&self) -> Vec<u8> {
        [&self.former[..], &[self.own]].concat()
    }

    /// Adds a port. A port that was closed and bound again is replaced.
    fn add(&mut self, port: Port) {
        self.ports.retain(|one| one.place != port.place);
        self.ports.push(port);
    }

    fn steer(&self, serving: u8) {
        for port in &self.ports {
            if let Err(error) = port.steer(&self.live(), serving) {
                tracing::error!(%error, "new clients do not come to {}: {error}", port.place);
            }
        }
    }
}

/// Drains a socket that is no longer read, to free its memory.
fn drop_stale(socket: &UdpSocket) {
    for _ in 0..STALE {
        if socket.recv(&mut [0]).is_err() {
            return;
        }
    }
}

fn unsteered(error: io::Error) -> io::Error {
    let why = format!(
        "the kernel does not lead datagrams to the process of their connection: {error} (hint: \
         restart the daemon)"
    );
    io::Error::new(error.kind(), why)
}

fn generations() -> MutexGuard<'static, Generations> {
    GENERATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_left_to_the_process_and_the_worker_that_may_have_it() {
        let steering_slot = SteeringSlot { slot: 1, byte: 5, workers: 4 };
        let of_other = |named| steering_slot.is_of_another(named, 0b1001);
        for named in [0, 3, 4, 6, 7, 12, 15] {
            assert!(of_other(named), "{named}");
        }
        for named in [5, 8, 11, 16, 128, 255] {
            assert!(!of_other(named), "{named}");
        }
        assert!((0..64).all(|named| named == 5 || steering_slot.is_of_another(named, u32::MAX)));
        assert!(
            !SteeringSlot::ALONE.is_of_another(0, 0) && !SteeringSlot::ALONE.is_of_another(7, 0)
        );
    }
}

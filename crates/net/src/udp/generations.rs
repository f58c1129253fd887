//! UDP ports of carriers that several generations of a daemon read at the same time, after an
//! upgrade. Each generation has sockets of its own at the port, and the kernel leads each datagram
//! to the generation and the worker that its connection id names.
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
//! A generation lives in a *slot*, a number below [`SLOTS`] that no other live generation has. The
//! first byte of its connection ids is `slot * workers + worker` ([`Seat`]).
//!
//! The next generation inherits the sockets of the former ones, joins the group with its own, and
//! attaches the program of the group ([`super::steer()`]). It keeps the inherited sockets open and
//! reads none of them: when a socket of a group closes, the kernel gives its number to the last
//! one. The sockets of a slot whose process has ended serve the next generation that takes the
//! slot.
//!
//! Nobody copies a datagram between processes, so the former generation keeps its speed. Only a
//! kernel that refuses the program refuses the upgrade.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use socket2::SockRef;

use super::steer::{Form, Steered, steer};
use crate::handover;
use crate::inherited::{self, Place};

/// Slots at most: the generations of a daemon that have connections over UDP at the same time.
pub const SLOTS: u8 = 16;

/// Sockets of a port at most. The hand-over sends them in one message, which has at most 253
/// descriptors (`SCM_MAX_FD`), and a byte names a socket.
const SOCKETS: usize = 253;

/// Datagrams that are taken from the queue of a socket whose process has ended, at most.
const STALE: usize = 65_536;

/// Slots in which a process may live that has connections: a bit for each slot.
static OTHERS: AtomicU32 = AtomicU32::new(0);

static GENERATIONS: Mutex<Generations> =
    Mutex::new(Generations { own: 0, former: Vec::new(), ports: Vec::new(), left: Vec::new() });

/// What the next generation has to know: the slots of all live generations, the giver's as the last
/// one, and for each port its address and the slots of its sockets in the order of the kernel.
pub type Layout = (Vec<u8>, Vec<(String, Vec<u8>)>);

#[derive(Debug)]
struct Generations {
    /// The slot of this process.
    own: u8,
    /// The slots of the former generations that live, in the order of their age.
    former: Vec<u8>,
    ports: Vec<Port>,
    /// The ports of the former generation that this process has not bound.
    left: Vec<(String, Vec<u8>)>,
}

/// A port that this process has bound.
#[derive(Debug)]
struct Port {
    place: String,
    form: Form,
    workers: usize,
    /// The slot of each `workers` sockets, in the order of the kernel.
    slots: Vec<u8>,
    /// The index of the slot of this process among them.
    nth: usize,
    /// Sockets of former generations, which stay open and are not read.
    held: Vec<UdpSocket>,
}

/// The sockets of a port that this process reads.
#[derive(Debug)]
pub struct CarrierGroup {
    /// The sockets by the number of the worker. They close together.
    pub sockets: Vec<UdpSocket>,
    slot: u8,
}

/// The place of a socket among those of its port, which the connection ids of its worker name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    slot: u8,
    byte: u8,
    workers: usize,
}

impl Seat {
    /// The only socket of a port that no other process has.
    pub const ALONE: Self = Self { slot: 0, byte: 0, workers: 1 };

    /// The socket of `worker` in a group of `workers` that no other process has.
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
    /// its worker knows, so nobody else may answer that the connection is gone.
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
    /// The place of the socket of a worker.
    ///
    /// # Errors
    /// The group has no such worker.
    pub fn seat(&self, worker: usize) -> io::Result<Seat> {
        let workers = self.sockets.len();
        let byte = usize::from(self.slot) * workers + worker;
        let byte = u8::try_from(byte).map_err(io::Error::other)?;
        Ok(Seat { slot: self.slot, byte, workers })
    }
}

/// Makes `count` sockets on `address` for carriers, as [`super::udp_group`] does. Where a former
/// generation of the daemon has the port, the sockets join those of the former generation, which
/// keeps its connections. New clients come to this process after [`handover::serve`].
///
/// # Errors
/// As for [`super::udp_group`]. The former generation has another number of workers, too many
/// generations live, or the kernel takes no program.
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
    // Until this process serves, new clients go on to the former generation.
    port.steer(&all.live(), all.former.last().copied().unwrap_or(own)).map_err(unsteered)?;
    handover::note(&port.in_order(&sockets));
    all.add(port);
    Ok(CarrierGroup { sockets, slot: own })
}

impl Port {
    /// The sockets of this process: those that an ended generation had in the same slot, or new
    /// ones.
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

    /// All sockets in the order of the kernel, of which `own` are those of this process.
    fn in_order<'a>(&'a self, own: &'a [UdpSocket]) -> Vec<BorrowedFd<'a>> {
        let (before, after) = self.held.split_at(self.nth * self.workers);
        before.iter().chain(own).chain(after).map(AsFd::as_fd).collect()
    }

    /// The sockets that generations of these slots had.
    fn held_of<'a>(&'a self, slots: &'a [u8]) -> impl Iterator<Item = &'a UdpSocket> {
        let others = self.slots.iter().enumerate().filter(|(nth, _)| *nth != self.nth);
        let groups = others.map(|(_, slot)| slot).zip(self.held.chunks(self.workers.max(1)));
        groups.filter(|(slot, _)| slots.contains(slot)).flat_map(|(_, group)| group)
    }

    /// Tells the kernel where each datagram goes, while other generations have sockets of the port.
    fn steer(&self, live: &[u8], serving: u8) -> io::Result<()> {
        let Some(member) = self.held.first() else { return Ok(()) };
        let Self { form, workers, ref slots, .. } = *self;
        steer(member, &Steered { form, workers, slots, live, serving })
    }
}

/// Takes over what the former generation left. To be called before a port is bound.
pub fn inherit((former, left): Layout) {
    let mut all = generations();
    all.own = (0..u8::MAX).find(|slot| !former.contains(slot)).unwrap_or(u8::MAX);
    (all.former, all.left) = (former, left);
    OTHERS.store(all.others(), Ordering::Relaxed);
}

/// The slot of this process, and whether former generations live. It is 0 where no generation was
/// before.
#[must_use]
pub fn slot() -> (u8, bool) {
    let all = generations();
    (all.own, !all.former.is_empty())
}

/// What the next generation has to know.
#[must_use]
pub fn layout() -> Layout {
    let all = generations();
    let port = |port: &Port| (port.place.clone(), port.slots.clone());
    // The next generation may bind a port that this one has left out.
    let left = all.left.iter().cloned();
    (all.live(), all.ports.iter().map(port).chain(left).collect())
}

/// Whether several generations read this port.
pub(crate) fn is_of_carriers(place: &Place) -> bool {
    let (place, all) = (place.to_string(), generations());
    all.ports.iter().any(|port| port.place == place) || all.left.iter().any(|(at, _)| *at == place)
}

/// The ports of the former generation that this process has not bound are closed.
pub(crate) fn forget_left() {
    generations().left.clear();
}

/// New clients come to this process from now on.
pub(crate) fn serve() {
    let all = generations();
    all.steer(all.own);
}

/// The next generation serves: it tells the kernel where datagrams go, and this process knows no
/// more which ids are in use.
pub(crate) fn hand_over() {
    OTHERS.store(u32::MAX, Ordering::Relaxed);
}

/// The former generations have ended. This process answers the packets of connections that they may
/// have left.
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

/// Of the former generations those in `slots` live. The next generation may take the slots of the
/// others.
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

/// How many processes may live beside each other at the ports that this process has bound.
#[must_use]
pub fn most_processes() -> usize {
    let all = generations();
    let most = all.ports.iter().map(|port| (SOCKETS / port.workers.max(1)).min(SLOTS.into()));
    most.min().unwrap_or(usize::MAX)
}

impl Generations {
    /// The slots of the former generations as bits.
    fn others(&self) -> u32 {
        let bit = |slot: &u8| 1_u32.checked_shl(u32::from(*slot)).unwrap_or(0);
        self.former.iter().fold(0, |bits, slot| bits | bit(slot))
    }

    /// The slots in which a process lives, that of this process as the last one.
    fn live(&self) -> Vec<u8> {
        [&self.former[..], &[self.own]].concat()
    }

    /// A port that was closed and bound again has the new sockets.
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

/// Takes what has come to a socket that nobody reads: its memory is of use elsewhere.
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
        let seat = Seat { slot: 1, byte: 5, workers: 4 };
        let of_other = |named| seat.is_of_another(named, 0b1001);
        for named in [0, 3, 4, 6, 7, 12, 15] {
            assert!(of_other(named), "{named}");
        }
        for named in [5, 8, 11, 16, 128, 255] {
            assert!(!of_other(named), "{named}");
        }
        assert!((0..64).all(|named| named == 5 || seat.is_of_another(named, u32::MAX)));
        assert!(!Seat::ALONE.is_of_another(0, 0) && !Seat::ALONE.is_of_another(7, 0));
    }
}

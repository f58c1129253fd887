//! Lanes of single streams in memory. Each lane uses one direction of its own wire.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use proto::Priority;

use super::CAPACITY;
use super::pipe::{Fuse, Wire};
use super::{killed, lock};
use crate::{Carried, Datagrams, Lanes, RecvLane, SendLane};

/// The lanes of a connection.
#[derive(Debug)]
pub(super) struct Hub {
    /// Opened lanes that are not accepted yet, by the accepting end.
    waiting: [VecDeque<Receiving>; 2],
    acceptors: [Option<Waker>; 2],
    first: Weak<Mutex<Wire>>,
    wires: Vec<Weak<Mutex<Wire>>>,
    fuses: [Option<Fuse>; 2],
    read_at_most: usize,
    /// The number of open lanes by the end that opened them; `most` is the maximum.
    open: [usize; 2],
    most: usize,
    dead: bool,
    black_hole: bool,
    /// Datagrams by the receiving end.
    packets: [Packets; 2],
}

/// Datagrams in flight to one end.
#[derive(Debug, Default)]
struct Packets {
    waiting: VecDeque<Bytes>,
    bytes: usize,
    /// The number of bytes sent since the beginning.
    sent: u64,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

type Shared = Arc<Mutex<Hub>>;

impl Hub {
    /// `first` is the first lane, which fails together with these lanes.
    pub(super) fn new(
        most: usize,
        first: Weak<Mutex<Wire>>,
        fuses: [Option<Fuse>; 2],
        read_at_most: usize,
    ) -> Self {
        Self {
            fuses,
            read_at_most,
            waiting: Default::default(),
            acceptors: [None, None],
            first,
            wires: Vec::new(),
            open: [0, 0],
            most,
            dead: false,
            black_hole: false,
            packets: Default::default(),
        }
    }

    /// Kills the connection.
    pub(super) fn kill(hub: &Shared) {
        let first = lock(hub).first.upgrade();
        if let Some(first) = first {
            let wakers = lock(&first).kill();
            wakers.into_iter().for_each(Waker::wake);
        }
        Self::close(hub);
    }

    /// Ends all lanes except the first one.
    pub(super) fn close(hub: &Shared) {
        let (wires, acceptors, waiting) = {
            let mut hub = lock(hub);
            hub.dead = true;
            let mut wakers = hub.acceptors.each_mut().map(Option::take).to_vec();
            for packets in &mut hub.packets {
                packets.waiting.clear();
                wakers.extend([packets.reader.take(), packets.writer.take()]);
            }
            (std::mem::take(&mut hub.wires), wakers, std::mem::take(&mut hub.waiting))
        };
        for wire in wires.iter().filter_map(Weak::upgrade) {
            let wakers = lock(&wire).kill();
            wakers.into_iter().for_each(Waker::wake);
        }
        acceptors.into_iter().flatten().for_each(Waker::wake);
        drop(waiting);
    }

    pub(super) fn black_hole(hub: &Shared) {
        let wires = {
            let mut hub = lock(hub);
            hub.black_hole = true;
            hub.wires.clone()
        };
        for wire in wires.iter().filter_map(Weak::upgrade) {
            let wakers = lock(&wire).black_hole();
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

/// The lanes of one end.
#[derive(Debug)]
pub(super) struct MemoryLanes {
    hub: Shared,
    index: usize,
}

impl MemoryLanes {
    pub(super) fn boxed(hub: Shared, index: usize) -> Box<dyn Lanes> {
        Box::new(Self { hub, index })
    }
}

impl Lanes for MemoryLanes {
    fn open(&mut self, _priority: Priority) -> io::Result<Option<Box<dyn SendLane>>> {
        let mut hub = lock(&self.hub);
        if hub.dead {
            return Err(killed());
        }
        if hub.open[self.index] >= hub.most {
            return Ok(None);
        }
        hub.open[self.index] += 1;
        // The end that opens a lane writes to its pipe 0.
        let fuses = [hub.fuses[self.index].clone(), None];
        let wire = Arc::new(Mutex::new(Wire::new(fuses, hub.read_at_most)));
        hub.wires.retain(|wire| wire.strong_count() > 0);
        hub.wires.push(Arc::downgrade(&wire));
        let sending = Sending {
            wire: Arc::clone(&wire),
            hub: Arc::clone(&self.hub),
            index: self.index,
            finished: false,
        };
        if hub.black_hole {
            lock(&wire).black_hole();
            return Ok(Some(Box::new(sending)));
        }
        let other = 1 - self.index;
        hub.waiting[other].push_back(Receiving { wire, hub: Arc::clone(&self.hub), ended: false });
        let acceptor = hub.acceptors[other].take();
        drop(hub);
        acceptor.into_iter().for_each(Waker::wake);
        Ok(Some(Box::new(sending)))
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn RecvLane>>> {
        let mut hub = lock(&self.hub);
        if hub.dead {
            return Poll::Ready(Err(killed()));
        }
        if let Some(lane) = hub.waiting[self.index].pop_front() {
            return Poll::Ready(Ok(Box::new(lane)));
        }
        hub.acceptors[self.index] = Some(cx.waker().clone());
        Poll::Pending
    }

    fn authenticated(&mut self, _bytes: u64) {}

    fn limit_unread(&mut self, _bytes: u64) {}

    fn allow(&mut self, _streams: usize) {}
}

/// Returns the connection's error if the connection failed, otherwise `BrokenPipe` for an aborted
/// lane.
fn explained(hub: &Shared, error: io::Error) -> io::Error {
    if lock(hub).dead { error } else { io::ErrorKind::BrokenPipe.into() }
}

/// The writing end, which writes to pipe 0 of its wire.
#[derive(Debug)]
struct Sending {
    wire: Arc<Mutex<Wire>>,
    hub: Shared,
    index: usize,
    finished: bool,
}

impl SendLane for Sending {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        let (result, wakers, burnt) = {
            let mut wire = lock(&self.wire);
            let (result, wakers) = wire.write(0, frames, cx);
            (result, wakers, wire.is_burnt())
        };
        wakers.into_iter().for_each(Waker::wake);
        if burnt {
            Hub::kill(&self.hub);
        }
        result.map_err(|error| explained(&self.hub, error))
    }

    fn finish(&mut self) {
        self.finished = true;
        let waker = lock(&self.wire).finish(0);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        lock(&self.hub).open[self.index] -= 1;
        if !self.finished {
            let wakers = lock(&self.wire).kill();
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

/// The reading end.
#[derive(Debug)]
struct Receiving {
    wire: Arc<Mutex<Wire>>,
    hub: Shared,
    ended: bool,
}

impl RecvLane for Receiving {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        let (result, waker) = lock(&self.wire).read(0, buf, cx);
        waker.into_iter().for_each(Waker::wake);
        self.ended |= matches!(result, Poll::Ready(Ok(0)));
        result.map_err(|error| explained(&self.hub, error))
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if !self.ended {
            let wakers = lock(&self.wire).kill();
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

/// The size of the longest datagram, in bytes.
const PACKET: usize = 1_200;

/// The datagrams of one end.
#[derive(Debug)]
pub(super) struct MemoryDatagrams {
    hub: Shared,
    index: usize,
}

impl MemoryDatagrams {
    pub(super) fn boxed(hub: Shared, index: usize) -> Box<dyn Datagrams> {
        Box::new(Self { hub, index })
    }
}

impl Datagrams for MemoryDatagrams {
    fn limit(&self) -> usize {
        PACKET
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        datagrams: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        let mut hub = lock(&self.hub);
        if hub.dead {
            return Poll::Ready(Err(killed()));
        }
        let black_hole = hub.black_hole;
        let packets = &mut hub.packets[1 - self.index];
        let mut taken = 0;
        while packets.bytes < CAPACITY
            && let Some(next) = datagrams.pop_front()
        {
            taken += 1;
            packets.sent += next.len() as u64;
            if next.len() <= PACKET && !black_hole {
                packets.bytes += next.len();
                packets.waiting.push_back(next);
            }
        }
        if taken == 0 && !datagrams.is_empty() {
            packets.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let reader = packets.reader.take();
        drop(hub);
        reader.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(taken))
    }

    fn carried(&self) -> Carried {
        let hub = lock(&self.hub);
        let packets = &hub.packets[1 - self.index];
        let waiting = packets.bytes as u64;
        Carried { packets: packets.sent - waiting.min(packets.sent), waiting }
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let mut hub = lock(&self.hub);
        if hub.dead {
            return Poll::Ready(Err(killed()));
        }
        let packets = &mut hub.packets[self.index];
        let Some(next) = packets.waiting.pop_front() else {
            packets.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        packets.bytes -= next.len();
        let writer = packets.writer.take();
        drop(hub);
        writer.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(next))
    }
}

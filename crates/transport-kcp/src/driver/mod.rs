//! The driver: one task that moves the datagrams of all connections of a socket.
//!
//! Each round does four things: the driver reads datagrams and gives each to its connection; it
//! handles the connections that lanes have touched; it calls the connections whose timers have
//! expired; it sends the packets of connections, one system call for each in turn. Between two
//! turns there is one timer, set to the earliest deadline of any connection, and none if no
//! connection has one.

mod outbox;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io::IoSliceMut;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use congestion::pacing::fires;
use kcp::own::wire::{ConnectionId, PacketKind, peek};
use kcp::timers::Timers;
use net::udp::{Fence, Form};
use slab::Slab;
use tokio::time::Sleep;

use crate::admit::{Admission, Random};
use crate::error::End;
use crate::shared::{Hub, Shared};
use crate::socket::{Arrival, BATCH, JOINED, Origin, Socket};
use crate::wire::{COOKIE, OPENING_HEAD, Packet, RESET};

pub(crate) use outbox::Outbox;

/// The number of rounds in a turn, after which other tasks of the worker run: at most 4 messages
/// are read and [`BURSTS`] calls sent in each round.
const ROUNDS: usize = 8;

/// The number of connections that send in a round.
const BURSTS: usize = 8;

/// The longest response to an unauthenticated peer. Responses that do not fit the outbox are
/// dropped: such peers retry.
const ANSWER: usize = if COOKIE > RESET { COOKIE } else { RESET };

/// The largest number of abandoned unauthenticated peers whose connections linger, so that they
/// learn the reason. Each holds up to 64 KiB, and the limits of the accept loop no longer count it.
/// Any beyond this number get one refusal and are removed.
const REFUSED: usize = 64;

/// The number of consecutive read errors after which the socket counts as broken.
const ERRORS: u32 = 1_000;

/// The time of tokio, which tests may pause.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Moves the datagrams of all connections of one socket. It ends when its listener and all its
/// connections are gone, or when the socket fails.
pub(crate) struct Driver {
    socket: Socket,
    hub: Arc<Hub>,
    connections: Slab<Entry>,
    by_id: HashMap<ConnectionId, usize>,
    timers: Timers,
    /// Connections that may have something to send, each once.
    ready: VecDeque<usize>,
    outbox: Outbox,
    /// Responses to unauthenticated peers, which precede everything else.
    answers: Outbox,
    /// The number of abandoned unauthenticated peers that still linger.
    refused: usize,
    /// Admits unauthenticated peers, on a server.
    admission: Option<Admission>,
    /// Keeps floods of unauthenticated peers out, on a server.
    fence: Option<Fence>,
    random: Random,
    buffer: Vec<u8>,
    errors: u32,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The time to which `sleep` is set.
    alarm: Option<Instant>,
    woken: Vec<Waker>,
}

struct Entry {
    shared: Arc<Shared>,
    id: ConnectionId,
    is_ready: bool,
    /// Whether the connection counts as refused.
    is_refused: bool,
}

impl Driver {
    /// The driver of a client's socket, which has one connection.
    pub(crate) fn client(socket: Socket, hub: Arc<Hub>, shared: Arc<Shared>) -> Self {
        let mut driver = Self::new(socket, hub, None);
        driver.begin(shared);
        driver
    }

    /// The driver of a server's socket.
    pub(crate) fn server(socket: Socket, hub: Arc<Hub>, admission: Admission) -> Self {
        let fence = Fence::new(Form::Kcp, &socket);
        let mut driver = Self::new(socket, hub, Some(admission));
        driver.fence = Some(fence);
        driver
    }

    fn new(socket: Socket, hub: Arc<Hub>, admission: Option<Admission>) -> Self {
        Self {
            socket,
            hub,
            connections: Slab::new(),
            by_id: HashMap::new(),
            timers: Timers::default(),
            ready: VecDeque::new(),
            outbox: Outbox::default(),
            answers: Outbox::default(),
            refused: 0,
            admission,
            fence: None,
            random: Random::default(),
            buffer: vec![0; BATCH * JOINED],
            errors: 0,
            sleep: None,
            alarm: None,
            woken: Vec::new(),
        }
    }

    /// Adds a connection, which may have something to send.
    fn begin(&mut self, shared: Arc<Shared>) {
        let mut state = shared.lock();
        let id = state.ids().0;
        let slot = self.connections.insert(Entry {
            shared: Arc::clone(&shared),
            id,
            is_ready: false,
            is_refused: false,
        });
        state.slot = Some(slot);
        drop(state);
        self.by_id.insert(id, slot);
        self.make_ready(slot);
    }

    fn make_ready(&mut self, slot: usize) {
        if let Some(entry) = self.connections.get_mut(slot)
            && !entry.is_ready
        {
            entry.is_ready = true;
            self.ready.push_back(slot);
        }
    }

    /// One round. Returns whether there may be more to do at once.
    fn round(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let received = self.receive(cx, now);
        if let Some(fence) = &mut self.fence {
            fence.settle(now, &self.socket);
        }
        self.take_orders(cx);
        while let Some(slot) = self.timers.pop(now) {
            if let Some(entry) = self.connections.get(slot) {
                entry.shared.lock().timeout(now);
                self.make_ready(slot);
            }
        }
        let sent = self.transmit(cx, now);
        self.woken.drain(..).for_each(Waker::wake);
        received || sent
    }

    /// Reads once.
    fn receive(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut arrivals = [None; BATCH];
        let mut chunks = buffer.chunks_exact_mut(JOINED);
        let mut buffers: [IoSliceMut<'_>; BATCH] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        let read = self.socket.poll_recv(cx, &mut buffers, &mut arrivals);
        match read {
            Poll::Ready(Ok(_)) => {
                self.errors = 0;
                for (arrival, chunk) in arrivals.iter().zip(buffer.chunks_exact_mut(JOINED)) {
                    let Some(arrival) = arrival else { break };
                    let length = arrival.length.min(chunk.len());
                    self.take(now, arrival, &mut chunk[..length]);
                }
            }
            // Errors of earlier sends are reported here; lost packets are retransmitted.
            Poll::Ready(Err(ref error)) => {
                self.errors += 1;
                tracing::trace!(%error, "a UDP socket reports an error");
            }
            Poll::Pending => {}
        }
        self.buffer = buffer;
        read.is_ready()
    }

    /// Passes the datagrams of a message to their connections. Neighbours usually belong to the
    /// same connection.
    fn take(&mut self, now: Instant, arrival: &Arrival, message: &mut [u8]) {
        let mut datagrams = message.chunks_mut(arrival.segment.max(1)).peekable();
        while let Some(datagram) = datagrams.next() {
            let Some((kind, id)) = peek(datagram) else {
                self.take_handshake(now, arrival, datagram);
                continue;
            };
            let Some((slot, shared)) = self.find(id) else {
                self.answer_unknown(now, (kind, id), datagram.len(), arrival.origin);
                continue;
            };
            let random = &mut self.random;
            let mut state = shared.lock();
            state.receive(now, (kind, datagram), arrival, || random.bytes());
            while let Some(next) =
                datagrams.next_if(|next| peek(next).is_some_and(|(_, other)| other == id))
            {
                let kind = peek(next).map_or(kind, |(kind, _)| kind);
                state.receive(now, (kind, next), arrival, || random.bytes());
            }
            state.notify(&mut self.woken);
            drop(state);
            self.make_ready(slot);
        }
    }

    fn find(&self, id: ConnectionId) -> Option<(usize, Arc<Shared>)> {
        let slot = *self.by_id.get(&id)?;
        Some((slot, Arc::clone(&self.connections.get(slot)?.shared)))
    }

    /// A datagram that is not a packet of a session.
    fn take_handshake(&mut self, now: Instant, arrival: &Arrival, datagram: &mut [u8]) {
        if let (Some(fence), Some(admission)) = (&mut self.fence, &self.admission) {
            let peer = arrival.origin.peer;
            if !fence.takes(now, peer, || admission.is_proxy(peer.ip()), datagram) {
                return;
            }
        }
        match Packet::decode(datagram) {
            Some(Packet::Hello { version: _, client, .. }) => {
                if let Some(admission) = &self.admission
                    && !self.answers.is_full(ANSWER)
                {
                    let (from, random) = (arrival.origin, &mut self.random);
                    put(&mut self.answers, from, |to| {
                        admission.answer(random, from.peer, client, to);
                    });
                }
            }
            Some(Packet::Opening { server, client, cookie }) => {
                let known = self.find(server);
                let (slot, shared) = match known {
                    Some(known) => known,
                    None => {
                        let Some(admission) = &mut self.admission else { return };
                        let ids = (server, client);
                        let admitted =
                            admission.admit(now, &self.hub, arrival.origin, ids, &cookie);
                        let Some(shared) = admitted else { return };
                        self.begin(Arc::clone(&shared));
                        let Some(known) = self.find(server) else { return };
                        known
                    }
                };
                let Some(packet) = datagram.get_mut(OPENING_HEAD..) else { return };
                let Some((kind @ PacketKind::Bootstrap, id)) = peek(packet) else { return };
                if id != server {
                    return;
                }
                let mut state = shared.lock();
                let random = &mut self.random;
                state.receive(now, (kind, packet), arrival, || random.bytes());
                state.notify(&mut self.woken);
                drop(state);
                self.make_ready(slot);
            }
            // A client has one connection, and knows it by the id of the server.
            Some(Packet::Reset { server, token }) if self.admission.is_none() => {
                let found = self.connections.iter().next().map(|(slot, entry)| {
                    let mut state = entry.shared.lock();
                    (slot, state.ids().1 == server && state.reset_by(now, token))
                });
                if let Some((slot, true)) = found {
                    self.make_ready(slot);
                }
            }
            Some(Packet::Reset { .. } | Packet::Cookie { .. }) | None => {}
        }
    }

    /// A sealed packet of an unknown connection: the server was restarted. Its client learns this
    /// at once.
    fn answer_unknown(
        &mut self,
        now: Instant,
        (kind, id): (PacketKind, ConnectionId),
        length: usize,
        from: Origin,
    ) {
        if let (Some(admission), Some(fence)) = (&self.admission, &mut self.fence)
            && kind == PacketKind::Sealed
            && !self.answers.is_full(ANSWER)
            && fence.answers(now, from.peer)
        {
            put(&mut self.answers, from, |to| admission.reset(id, length, to));
        }
    }

    /// Takes the requests of lanes and of the dialer.
    fn take_orders(&mut self, cx: &Context<'_>) {
        let hub = Arc::clone(&self.hub);
        let mut orders = hub.lock();
        if orders.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            orders.waker = Some(cx.waker().clone());
        }
        if orders.touched.is_empty() {
            return;
        }
        let touched = std::mem::take(&mut orders.touched);
        drop(orders);
        for slot in touched {
            self.make_ready(slot);
        }
    }

    /// Sends the packets of connections, with one system call each. Returns whether there is more.
    fn transmit(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        if self.answers.poll_send(cx, &self.socket).is_pending()
            || self.outbox.poll_send(cx, &self.socket).is_pending()
        {
            return false;
        }
        for _ in 0..BURSTS {
            let Some(slot) = self.ready.pop_front() else { return false };
            let Some(entry) = self.connections.get_mut(slot) else { continue };
            entry.is_ready = false;
            let shared = Arc::clone(&entry.shared);
            let mut state = shared.lock();
            state.is_touched = false;
            let has_more = state.transmit(now, &mut self.outbox);
            state.notify(&mut self.woken);
            let (due, mut is_forgotten) = (state.due(), state.is_forgotten(now));
            if state.is_refused_stranger() && !entry.is_refused {
                entry.is_refused = true;
                self.refused += 1;
                is_forgotten |= self.refused > REFUSED;
            }
            drop(state);
            match due {
                Some(at) => self.timers.set(slot, at),
                None => self.timers.clear(slot),
            }
            if is_forgotten {
                self.forget(slot);
            } else if has_more {
                self.make_ready(slot);
            }
            if self.outbox.poll_send(cx, &self.socket).is_pending() {
                return false;
            }
        }
        !self.ready.is_empty()
    }

    fn forget(&mut self, slot: usize) {
        self.timers.clear(slot);
        if let Some(entry) = self.connections.try_remove(slot) {
            self.by_id.remove(&entry.id);
            self.refused -= usize::from(entry.is_refused);
            entry.shared.lock().slot = None;
        }
    }

    /// Whether the driver is no longer needed.
    fn is_done(&self) -> bool {
        self.connections.is_empty()
            && self.outbox.is_empty()
            && (self.admission.is_none() || self.hub.lock().is_closed)
    }

    /// Sets the timer; returns whether it has already expired.
    fn arm(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let fenced = self.fence.as_ref().and_then(Fence::due);
        let Some(at) = self.timers.due().into_iter().chain(fenced).min() else {
            self.alarm = None;
            return false;
        };
        if self.alarm != Some(at) {
            let fires = fires(now, at).into();
            match &mut self.sleep {
                Some(sleep) => sleep.as_mut().reset(fires),
                None => self.sleep = Some(Box::pin(tokio::time::sleep_until(fires))),
            }
            self.alarm = Some(at);
        }
        let is_due = self.sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready());
        if is_due {
            // A timer that fires early is set once more, to the exact time.
            self.alarm = None;
        }
        is_due
    }
}

/// Appends the datagram that `encode` makes for an unauthenticated peer, if any.
fn put(outbox: &mut Outbox, to: Origin, encode: impl FnOnce(&mut Vec<u8>)) {
    let before = outbox.buffer().len();
    encode(outbox.buffer());
    let length = outbox.buffer().len() - before;
    if length > 0 {
        outbox.push(to, length, false);
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        for _ in 0..ROUNDS {
            let now = now();
            if this.round(cx, now) {
                continue;
            }
            if this.is_done() {
                return Poll::Ready(());
            }
            if this.errors > ERRORS {
                tracing::warn!("a UDP socket of kcp:// fails again and again; it is closed");
                return Poll::Ready(());
            }
            if !this.arm(cx, now) {
                return Poll::Pending;
            }
        }
        // Other tasks of this thread run first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let now = now();
        let mut orders = self.hub.lock();
        orders.is_over = true;
        let waiting = std::mem::take(&mut orders.accepted);
        self.woken.extend(orders.acceptor.take());
        drop(orders);
        let all = self.connections.drain().map(|entry| entry.shared);
        for shared in all.chain(waiting.into_iter().map(|(shared, _queued)| shared)) {
            let mut state = shared.lock();
            state.finish(now, End::Driver);
            state.notify(&mut self.woken);
        }
        self.woken.drain(..).for_each(Waker::wake);
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connections = self.connections.len();
        f.debug_struct("Driver").field("connections", &connections).finish_non_exhaustive()
    }
}

//! The driver: one task that moves the datagrams of all sessions of a socket.
//!
//! Each turn does four things, and repeats them until none has anything to do or the budget of the
//! turn is spent: it reads datagrams and gives each to its session; it looks at the sessions that
//! streams have touched; it calls the sessions whose time has come; it sends what sessions have to
//! send, a burst of each in turn. Between two turns there is one timer, set to the next time of any
//! session, and none where no session has one.

mod admit;
mod outbox;
mod sessions;
mod sources;

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use kcp_go::envelope::Seal;
use kcp_go::session::Nonces;
use kcp_go::wire::Content;
use tokio::time::Sleep;

use crate::config::Config;
use crate::counters::Counters;
use crate::end::{End, is_transient};
use crate::hub::Hub;
use crate::random;
use crate::socket::{Arrival, PacketSocket};

use outbox::Outbox;
use sessions::Sessions;
use sources::Sources;

/// Buffers that are read at once.
const BATCH: usize = 8;

/// Rounds of a turn, after which other tasks of the runtime get theirs: at most 8 buffers are read
/// and 8 bursts sent in each.
const ROUNDS: usize = 16;

/// Sessions that send a burst in a round.
const BURSTS: usize = 8;

/// How often sessions are looked at while the socket takes nothing.
const STALL: Duration = Duration::from_millis(100);

/// Nonces that are remembered for all sessions together: 512 KiB once traffic has been fast.
const NONCES: usize = 64 << 10;

/// The time of tokio, which tests may stop.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Moves the datagrams of all sessions of one socket. The caller polls it, mostly by
/// `tokio::spawn`; sessions rest while it is not polled, and fail when it is dropped.
///
/// It ends when its listener and all its streams are gone and what they had written is
/// acknowledged or [`Config::linger`] has passed, or with an error when the socket fails.
#[must_use = "sessions rest until it is polled"]
pub struct Driver<S> {
    socket: S,
    hub: Arc<Hub>,
    config: Config,
    seal: Arc<dyn Seal>,
    sessions: Sessions,
    sources: Sources,
    nonces: random::Nonces,
    /// Those of datagrams that came and left.
    seen: Nonces,
    /// Sessions that may have something to send, each once.
    ready: VecDeque<usize>,
    outbox: Outbox,
    buffer: Vec<u8>,
    arrivals: [Arrival; BATCH],
    sleep: Option<Pin<Box<Sleep>>>,
    /// The time to which `sleep` is set.
    alarm: Option<Instant>,
    woken: Vec<Waker>,
    /// What was counted since the hub was told.
    counters: Counters,
}

impl<S> fmt::Debug for Driver<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("sessions", &self.sessions.len()).finish_non_exhaustive()
    }
}

impl<S: PacketSocket> Driver<S> {
    pub(crate) fn new(socket: S, hub: Arc<Hub>, mut config: Config, seal: Arc<dyn Seal>) -> Self {
        let seen = match (config.session.nonces, seal.nonce(), seal.tail()) {
            (_, 0, _) | (None, _, 0) => 0,
            (most, _, _) => most.unwrap_or(NONCES),
        };
        // The driver opens datagrams, so that it is the one to know copies.
        config.session.nonces = Some(0);
        let buffer = vec![0; socket.buffer() * BATCH];
        Self {
            socket,
            hub,
            sources: Sources::new(config.limits.per_source),
            config,
            seal,
            sessions: Sessions::default(),
            nonces: random::Nonces::new(),
            seen: Nonces::new(seen),
            ready: VecDeque::new(),
            outbox: Outbox::default(),
            buffer,
            arrivals: [Arrival::default(); BATCH],
            sleep: None,
            alarm: None,
            woken: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// One round. Returns whether there may be more to do at once.
    fn round(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, End> {
        let received = self.receive(cx, now)?;
        self.take_orders(cx, now);
        self.expire(now);
        let sent = self.transmit(cx, now)?;
        self.woken.drain(..).for_each(Waker::wake);
        Ok(received || sent)
    }

    /// Reads once.
    fn receive(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, End> {
        let size = self.socket.buffer().max(1);
        let mut chunks = self.buffer.chunks_exact_mut(size);
        let mut buffers: [IoSliceMut<'_>; BATCH] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        let count = match self.socket.poll_recv(cx, &mut buffers, &mut self.arrivals) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(count)) => count,
            Poll::Ready(Err(error)) if is_transient(&error) => {
                self.counters.refused += 1;
                return Ok(true);
            }
            Poll::Ready(Err(error)) => return Err(End::socket("receiving", &error)),
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let arrivals = self.arrivals;
        for (arrival, chunk) in arrivals.iter().zip(buffer.chunks_exact_mut(size)).take(count) {
            let length = arrival.length.min(chunk.len());
            for datagram in chunk[..length].chunks_mut(arrival.segment.max(1)) {
                self.open(now, arrival, datagram);
            }
        }
        self.buffer = buffer;
        self.sessions.notify_heard(now, &mut self.woken, &mut self.ready);
        Ok(true)
    }

    /// Opens a datagram and gives it to its session.
    fn open(&mut self, now: Instant, arrival: &Arrival, datagram: &mut [u8]) {
        self.counters.datagrams_in += 1;
        let Ok(plaintext) = self.seal.open(datagram) else {
            self.counters.unreadable += 1;
            return;
        };
        // Both layouts begin with the nonce. One that was refused must not push others out.
        if !self.seen.insert(datagram.get(..self.seal.nonce()).unwrap_or_default()) {
            self.counters.replayed += 1;
            return;
        }
        let plaintext = datagram.get(plaintext).unwrap_or_default();
        let Some(content) = Content::of(plaintext) else {
            self.counters.unreadable += 1;
            return;
        };
        let limited = self.counters.limited;
        match self.session_of(now, arrival.from, &content) {
            Some(slot) => self.sessions.deliver(slot, now, plaintext),
            None if self.counters.limited > limited => {}
            None => self.counters.foreign += 1,
        }
    }

    /// Takes what streams have asked for.
    fn take_orders(&mut self, cx: &Context<'_>, now: Instant) {
        let hub = Arc::clone(&self.hub);
        let mut inner = hub.lock();
        if inner.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            inner.waker = Some(cx.waker().clone());
        }
        let touched = std::mem::take(&mut inner.touched);
        let begun = std::mem::take(&mut inner.begun);
        drop(inner);
        for slot in touched {
            self.sessions.make_ready(slot, &mut self.ready);
        }
        for shared in begun {
            self.begin(now, shared);
        }
    }

    /// Calls the sessions whose time has come.
    fn expire(&mut self, now: Instant) {
        while let Some(slot) = self.sessions.timers.pop(now) {
            if let Err(end) = self.sessions.expire(slot, now, &mut self.woken) {
                self.end(slot, end);
            } else {
                self.sessions.make_ready(slot, &mut self.ready);
            }
        }
    }

    /// Sends a burst of some sessions.
    fn transmit(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, End> {
        for _ in 0..BURSTS {
            if !self.flush(cx) {
                // The socket wakes this task. Meanwhile deadlines pass and peers die.
                for slot in &self.ready {
                    self.sessions.timers.set(*slot, now + STALL);
                }
                return Ok(false);
            }
            let Some(slot) = self.sessions.pop_ready(&mut self.ready) else { return Ok(false) };
            let failed = |error| End::socket("drawing random bytes", &error);
            let outcome = self.fill(slot, now).map_err(failed)?;
            if let Err(end) = outcome {
                self.end(slot, end);
            }
        }
        Ok(true)
    }

    /// Fills the outbox with a burst of a session, and sets its timer when it has sent all.
    ///
    /// # Errors
    ///
    /// The system has no random bytes. The inner result is about the session alone.
    fn fill(&mut self, slot: usize, now: Instant) -> io::Result<Result<(), End>> {
        let Some(entry) = self.sessions.get(slot) else { return Ok(Ok(())) };
        let shared = Arc::clone(&entry.shared);
        let ends = entry.ends();
        self.outbox.begin(shared.peer);
        let mut state = shared.lock();
        state.is_touched = false;
        let mut is_done = false;
        while !self.outbox.is_full() {
            self.nonces.reserve(self.seal.nonce())?;
            let (nonces, seen) = (&mut self.nonces, &mut self.seen);
            let mut is_random = true;
            let mut random = |to: &mut [u8]| {
                is_random &= nonces.fill(to);
                // What comes back to this end is a copy, too.
                seen.insert(to);
            };
            let buffer = self.outbox.buffer();
            let start = buffer.len();
            let Some(length) = state.session.poll_transmit(now, &mut random, buffer) else {
                is_done = true;
                break;
            };
            if is_random {
                self.outbox.push(length);
            } else {
                buffer.truncate(start);
                return Err(io::Error::other("a datagram needs more random bytes than its nonce"));
            }
        }
        if state.is_over(now) {
            return Ok(Err(End::Left));
        }
        state.notify(now, &mut self.woken);
        let timeout = state.timeout(now);
        drop(state);
        if is_done {
            // A session whose time has passed has nothing to send: it must not spin.
            let soonest = now + sessions::TICK;
            if let Some(at) = [timeout, ends].into_iter().flatten().min() {
                self.sessions.timers.set(slot, at.max(soonest));
            }
        } else {
            self.sessions.make_ready(slot, &mut self.ready);
        }
        Ok(Ok(()))
    }

    /// Sends what is in the outbox; `false` where the socket cannot take it now.
    fn flush(&mut self, cx: &mut Context<'_>) -> bool {
        let most = self.socket.longest_run();
        while let Some((run, count)) = self.outbox.run(most) {
            let bytes = run.bytes.len();
            match self.socket.poll_send(cx, &run) {
                Poll::Pending => return false,
                Poll::Ready(Ok(())) => {
                    self.counters.runs_out += 1;
                    self.counters.datagrams_out += count as u64;
                    self.outbox.sent(count, bytes);
                }
                Poll::Ready(Err(error)) => {
                    let slot = self.outbox.to().and_then(|to| self.sessions.of(to));
                    if is_transient(&error) {
                        self.counters.refused += 1;
                        if let Some(entry) = slot.and_then(|slot| self.sessions.get(slot)) {
                            entry.shared.lock().refused += 1;
                        }
                        self.outbox.sent(count, bytes);
                    } else {
                        self.outbox.clear();
                        if let Some(slot) = slot {
                            self.end(slot, End::socket("sending", &error));
                        }
                    }
                }
            }
        }
        true
    }

    /// Sets the timer to the next time of any session; `true` where it has passed already.
    fn arm(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(at) = self.sessions.timers.due() else {
            // A timer that stays set would wake this task for nothing.
            self.alarm = None;
            self.sleep = None;
            return false;
        };
        let deadline = tokio::time::Instant::from_std(at);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if self.alarm != Some(at) {
            sleep.as_mut().reset(deadline);
            self.alarm = Some(at);
        }
        let is_past = sleep.as_mut().poll(cx).is_ready();
        if is_past {
            self.alarm = None;
        }
        is_past
    }

    /// Tells what was counted, and whether nobody needs this driver any more.
    fn report(&mut self) -> bool {
        let counted = std::mem::take(&mut self.counters);
        let mut inner = self.hub.lock();
        inner.counters += counted;
        inner.counters.sessions = self.sessions.len() as u64;
        !inner.listens && inner.begun.is_empty() && self.sessions.len() == 0
    }

    /// Ends all sessions, and refuses new ones.
    fn stop(&mut self, end: &End) {
        let slots: Vec<usize> = self.sessions.slots().collect();
        for slot in slots {
            self.end(slot, end.clone());
        }
        let mut inner = self.hub.lock();
        inner.end.get_or_insert_with(|| end.clone());
        inner.listens = false;
        let begun = std::mem::take(&mut inner.begun);
        // Sessions and hub would keep each other alive.
        let backlog = std::mem::take(&mut inner.backlog);
        inner.acceptors.take(&mut self.woken);
        drop(inner);
        for shared in begun {
            shared.lock().end(end.clone(), &mut self.woken);
        }
        drop(backlog);
        self.woken.drain(..).for_each(Waker::wake);
    }
}

impl<S: PacketSocket> Future for Driver<S> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.counters.turns += 1;
        let mut rounds = 0;
        loop {
            rounds += 1;
            let more = match this.round(cx, now()) {
                Ok(more) => more,
                Err(end) => {
                    let error = end.error();
                    this.report();
                    this.stop(&end);
                    return Poll::Ready(Err(error));
                }
            };
            if !more && !this.arm(cx) {
                break;
            }
            if rounds == ROUNDS {
                cx.waker().wake_by_ref();
                break;
            }
        }
        if this.report() {
            this.stop(&End::Stopped);
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }
}

impl<S> Drop for Driver<S> {
    fn drop(&mut self) {
        let mut inner = self.hub.lock();
        inner.end.get_or_insert(End::Stopped);
        inner.listens = false;
        let begun = std::mem::take(&mut inner.begun);
        let backlog = std::mem::take(&mut inner.backlog);
        let live = std::mem::take(&mut inner.live);
        inner.acceptors.take(&mut self.woken);
        drop(inner);
        for shared in begun.iter().chain(live.values()) {
            shared.lock().end(End::Stopped, &mut self.woken);
        }
        drop(backlog);
        self.woken.drain(..).for_each(Waker::wake);
    }
}

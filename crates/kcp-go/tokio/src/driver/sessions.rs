//! The sessions of a driver, found by slot or by the address of the peer.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use kcp_go::wire::Conversation;
use slab::Slab;

use crate::end::End;
use crate::shared::Shared;
use kcp::timers::Timers;

/// The resolution of tokio's timers.
pub(super) const TICK: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) shared: Arc<Shared>,
    /// The peer began it.
    pub(super) is_accepted: bool,
    /// When a datagram of the peer came, or when the session began.
    pub(super) heard: Instant,
    /// How long its peer may be silent.
    idle: Duration,
    dead_after: Duration,
    /// It is among those that have something to send.
    is_ready: bool,
    /// A datagram came in this round.
    is_heard: bool,
}

impl Entry {
    pub(super) fn conversation(&self) -> Conversation {
        self.shared.conversation
    }

    /// When the session ends unless its peer is heard. A session that began here has no such time.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.is_accepted.then(|| self.heard + self.idle)
    }
}

#[derive(Debug, Default)]
pub(super) struct Sessions {
    entries: Slab<Entry>,
    by_peer: HashMap<SocketAddr, usize>,
    /// Those that were heard in this round.
    heard: Vec<usize>,
    pub(super) timers: Timers,
}

/// The address by which a session is found: a socket of IPv6 may show peers of IPv4, and a label of
/// a flow is no part of an address.
fn key(peer: SocketAddr) -> SocketAddr {
    match peer {
        SocketAddr::V4(_) => peer,
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::from((v4, v6.port())),
            None => std::net::SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
        },
    }
}

impl Sessions {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, slot: usize) -> Option<&Entry> {
        self.entries.get(slot)
    }

    /// The session with this peer.
    pub(super) fn of(&self, peer: SocketAddr) -> Option<usize> {
        self.by_peer.get(&key(peer)).copied()
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = usize> {
        self.entries.iter().map(|(slot, _)| slot)
    }

    /// Adds a session, for whose peer there is none.
    pub(super) fn insert(
        &mut self,
        shared: Arc<Shared>,
        is_accepted: bool,
        (idle, dead_after): (Duration, Duration),
        now: Instant,
    ) -> usize {
        let peer = key(shared.peer);
        let slot = self.entries.insert(Entry {
            shared,
            is_accepted,
            heard: now,
            idle,
            dead_after,
            is_ready: false,
            is_heard: false,
        });
        self.by_peer.insert(peer, slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: usize) -> Option<Arc<Shared>> {
        let entry = self.entries.try_remove(slot)?;
        self.timers.clear(slot);
        self.by_peer.remove(&key(entry.shared.peer));
        Some(entry.shared)
    }

    /// Gives an opened datagram to a session.
    pub(super) fn deliver(&mut self, slot: usize, now: Instant, plaintext: &[u8]) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        entry.heard = now;
        entry.shared.lock().session.handle_opened(now, plaintext);
        if !entry.is_heard {
            entry.is_heard = true;
            self.heard.push(slot);
        }
    }

    /// Wakes those that wait for what was delivered. Sessions that were heard may have
    /// acknowledgements to send.
    pub(super) fn notify_heard(
        &mut self,
        now: Instant,
        woken: &mut Vec<Waker>,
        ready: &mut VecDeque<usize>,
    ) {
        for slot in self.heard.drain(..) {
            let Some(entry) = self.entries.get_mut(slot) else { continue };
            entry.is_heard = false;
            entry.shared.lock().notify(now, woken);
            if !entry.is_ready {
                entry.is_ready = true;
                ready.push_back(slot);
            }
        }
    }

    /// A session may have something to send.
    pub(super) fn make_ready(&mut self, slot: usize, ready: &mut VecDeque<usize>) {
        if let Some(entry) = self.entries.get_mut(slot)
            && !entry.is_ready
        {
            entry.is_ready = true;
            ready.push_back(slot);
        }
    }

    /// The next session that may have something to send.
    pub(super) fn pop_ready(&mut self, ready: &mut VecDeque<usize>) -> Option<usize> {
        while let Some(slot) = ready.pop_front() {
            if let Some(entry) = self.entries.get_mut(slot)
                && entry.is_ready
            {
                entry.is_ready = false;
                return Some(slot);
            }
        }
        None
    }

    /// The time of a session has come.
    ///
    /// # Errors
    ///
    /// It ends.
    pub(super) fn expire(
        &mut self,
        slot: usize,
        now: Instant,
        woken: &mut Vec<Waker>,
    ) -> Result<(), End> {
        let Some(entry) = self.entries.get(slot) else { return Ok(()) };
        let mut state = entry.shared.lock();
        if state.session.is_dead(now) {
            return Err(End::Dead(entry.dead_after));
        }
        if state.session.timeout().is_some_and(|at| at <= now) {
            state.session.handle_timeout(now);
        }
        if state.is_over(now) {
            return Err(End::Left);
        }
        if entry.ends().is_some_and(|at| at <= now) {
            return Err(End::Idle(entry.idle));
        }
        state.notify(now, woken);
        Ok(())
    }
}

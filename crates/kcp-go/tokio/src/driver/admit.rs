//! Which session gets a datagram, how sessions begin, and how they end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use kcp_go::session::Session;
use kcp_go::wire::{Command, Content, Conversation, Segments, Sn};

use super::Driver;
use crate::end::End;
use crate::shared::{Phase, Shared};
use crate::socket::PacketSocket;

/// The first flight of a peer that was not heard yet: the window that kcp-go assumes then. Of these
/// segments any may come first.
const FIRST_FLIGHT: u32 = 32;

/// What a datagram says of the session to which it belongs. Parity says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    conversation: Conversation,
    /// It can be the first datagram of a session: it brings payload from the first flight, of a
    /// peer that has received nothing.
    begins: bool,
}

impl Mark {
    fn of(content: &Content<'_>) -> Option<Self> {
        let segments = match content {
            Content::Segments(segments) | Content::Data { segments, .. } => segments,
            Content::OutOfBand { conversation, .. } => {
                return Some(Self { conversation: *conversation, begins: false });
            }
            Content::Parity { .. } => return None,
        };
        let conversation = Conversation(u32::from_le_bytes(*segments.first_chunk()?));
        let head = Segments::new(conversation, segments).next()?.ok()?.head;
        let is_first = head.sn.since(Sn(0)).cast_unsigned() < FIRST_FLIGHT && head.una == Sn(0);
        Some(Self { conversation, begins: head.command == Command::Push && is_first })
    }
}

impl<S: PacketSocket> Driver<S> {
    /// The session that gets a datagram, which may begin with it; `None`: nobody gets it.
    pub(super) fn session_of(
        &mut self,
        now: Instant,
        from: SocketAddr,
        content: &Content<'_>,
    ) -> Option<usize> {
        let mark = Mark::of(content);
        let slot = self.sessions.of(from);
        if let Some(slot) = slot {
            let entry = self.sessions.get(slot)?;
            if mark.is_none_or(|mark| mark.conversation == entry.conversation()) {
                return Some(slot);
            }
            // kcp-go lets any first segment of another conversation end a session, and so whoever
            // has captured one.
            let is_quiet = now >= entry.heard + self.config.limits.quiet;
            if !entry.is_accepted || !(is_quiet || entry.shared.lock().is_leaving()) {
                return None;
            }
        }
        let mark = mark.filter(|mark| mark.begins)?;
        self.accept(now, from, mark.conversation, slot)
    }

    /// Begins a session with a peer, in the place of the one in `slot`, where the limits allow it.
    fn accept(
        &mut self,
        now: Instant,
        from: SocketAddr,
        conversation: Conversation,
        slot: Option<usize>,
    ) -> Option<usize> {
        let limits = self.config.limits;
        let hub = Arc::clone(&self.hub);
        let inner = hub.lock();
        let (listens, waiting) = (inner.listens, inner.backlog.len());
        drop(inner);
        if !listens {
            return None;
        }
        let others = self.sessions.len() - usize::from(slot.is_some());
        if others >= limits.sessions
            || waiting >= limits.backlog
            || !self.sources.admit(now, from.ip())
        {
            self.counters.limited += 1;
            return None;
        }
        if let Some(slot) = slot {
            self.end(slot, End::Replaced);
        }
        let mut config = self.config.session.clone();
        config.engine.conversation = conversation;
        let session = Session::new(config, Arc::clone(&self.seal), now);
        let peer = (from, conversation);
        let shared = Shared::new(session, Arc::clone(&hub), peer, self.config.linger);
        let shared = Arc::new(shared);
        let slot = self.insert(now, Arc::clone(&shared), true);
        let mut inner = hub.lock();
        inner.backlog.push_back(shared);
        inner.acceptors.take(&mut self.woken);
        Some(slot)
    }

    /// Takes a session that begins here.
    pub(super) fn begin(&mut self, now: Instant, shared: Arc<Shared>) {
        if self.sessions.of(shared.peer).is_some() {
            shared.lock().end(End::Taken, &mut self.woken);
            return;
        }
        let slot = self.insert(now, shared, false);
        self.sessions.make_ready(slot, &mut self.ready);
    }

    fn insert(&mut self, now: Instant, shared: Arc<Shared>, is_accepted: bool) -> usize {
        let limits = (self.config.limits.idle, self.config.session.engine.dead_after);
        let slot = self.sessions.insert(Arc::clone(&shared), is_accepted, limits, now);
        shared.lock().slot = Some(slot);
        self.counters.begun += 1;
        self.hub.lock().live.insert(slot, shared);
        slot
    }

    /// Ends a session.
    pub(super) fn end(&mut self, slot: usize, end: End) {
        let Some(shared) = self.sessions.remove(slot) else { return };
        let mut state = shared.lock();
        // What has arrived can be read on; a stream that is gone needs nothing.
        state.end(end, &mut self.woken);
        let is_left = state.phase == Phase::Left;
        self.counters.all += state.session.counters();
        drop(state);
        let mut inner = self.hub.lock();
        inner.live.remove(&slot);
        if !is_left {
            // Nobody accepts a session that has ended meanwhile.
            inner.backlog.retain(|waiting| !Arc::ptr_eq(waiting, &shared));
        }
    }
}

#[cfg(test)]
mod tests {
    use kcp_go::wire::{Head, Millis, oob_head};

    use super::*;

    fn datagram(command: Command, sn: u32, una: u32) -> Vec<u8> {
        let head = Head {
            conversation: Conversation(7),
            command,
            fragments: 0,
            window: 128,
            timestamp: Millis(1),
            sn: Sn(sn),
            una: Sn(una),
        };
        [&head.encode(1)[..], b"x"].concat()
    }

    #[test]
    fn a_session_begins_with_payload_of_the_first_flight_alone() {
        for (datagram, begins) in [
            (datagram(Command::Push, 0, 0), true),
            (datagram(Command::Push, 31, 0), true),
            (datagram(Command::Push, 32, 0), false),
            (datagram(Command::Push, u32::MAX, 0), false),
            (datagram(Command::Push, 0, 1), false),
            (datagram(Command::Ack, 0, 0), false),
            (datagram(Command::AskWindow, 0, 0), false),
            ([&oob_head(Conversation(7), 1).unwrap()[..], b"x"].concat(), false),
        ] {
            let mark = Mark::of(&Content::of(&datagram).unwrap());
            assert_eq!(mark, Some(Mark { conversation: Conversation(7), begins }), "{datagram:?}");
        }
    }
}

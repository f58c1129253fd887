//! The commands of the application. A command on a forgotten stream does nothing.

use crate::Instant;

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use super::queue::{Payload, stands_in};
use super::{Link, SWEEP, StreamKey, lookup};
use crate::budget::Reported;
use crate::frame::{FLAG_WAITING, Kind, encode_open};
use crate::offset::{length, memory};
use crate::stream::{Due, IMPLICIT_WINDOW, Stream};
use crate::{HEAD_ROOM, Open, Pages, ResetCode, StreamId};

/// Maximum payload of a CONTROL frame, so that other frames need not wait for a large control
/// message.
const CONTROL_PIECE: usize = 16 << 10;

impl Link {
    /// Opens a stream. OPEN is sent with the first bytes. `None` if the link opens no more streams,
    /// if the memory budget is exhausted, or if the target's name is too long.
    pub fn open(&mut self, open: &Open) -> Option<StreamKey> {
        if self.is_going_away() || !Stream::is_affordable(&*self.budget) {
            return None;
        }
        let id = self.next_id?;
        let mut stream = Stream::new(id, open.priority, IMPLICIT_WINDOW);
        stream.reported =
            open.visitor.and_then(|visitor| self.budget.share(visitor)).map(Reported::new);
        stream.recv.open_window(self.first_window(id), &*self.budget);
        let Some(frame) = encode_open(id, open, stream.recv.granted()) else {
            stream.settle(&*self.budget, &mut self.moving);
            return None;
        };
        stream.open = Some(frame.freeze());
        stream.account(&*self.budget);
        self.next_id = id.next().filter(|next| *next <= self.config.last_id);
        if self.next_id.is_none() {
            self.ids_used_up();
        }
        let key = StreamKey { index: self.streams.insert(stream), id };
        self.ids.insert(id, key.index);
        self.schedule.opens.push_back(key);
        Some(key)
    }

    /// Whether the source of a visitor may open another stream.
    #[must_use]
    pub fn has_room_for(&self, visitor: Option<SocketAddr>) -> bool {
        let share = visitor.and_then(|visitor| self.budget.share(visitor));
        share.is_none_or(|share| share.has_room())
    }

    /// Payload bytes of a stream in flight: sent and not yet consumed by the peer.
    pub fn under_way(&mut self, key: StreamKey) -> u64 {
        lookup(&mut self.streams, key).map_or(0, |stream| stream.send.under_way())
    }

    /// Payload bytes of a stream that are queued or in flight.
    pub fn outstanding(&mut self, key: StreamKey) -> u64 {
        lookup(&mut self.streams, key).map_or(0, |stream| stream.send.outstanding())
    }

    /// Maximum payload of the next [`Link::send`], in bytes. After a 0, [`Link::poll_room`] returns
    /// the stream once there is room.
    pub fn room(&mut self, key: StreamKey) -> usize {
        let limit = self.frame_limit(key);
        let Some(stream) = lookup(&mut self.streams, key) else { return 0 };
        let room = if stream.send.unsent() >= length(limit) || stream.send.is_full() {
            0
        } else {
            let share = self.config.replay_per_stream;
            let own = stream.send.own_room(share, &*self.budget, &self.moving.sending);
            stream.send.credit().min(own).min(length(limit))
        };
        stream.send.announced_room(room);
        memory(room)
    }

    /// Makes [`Link::poll_room`] return the stream after the next CREDIT.
    pub fn await_room(&mut self, key: StreamKey) {
        if let Some(stream) = lookup(&mut self.streams, key) {
            stream.send.announced_room(0);
        }
    }

    /// Maximum payload of a frame of a stream, in bytes: large if no other stream is ready, small
    /// otherwise.
    #[must_use]
    pub fn frame_limit(&self, key: StreamKey) -> usize {
        let own = self.streams.get(key.index).is_some_and(stands_in::<Payload>);
        let is_alone = self.schedule.waiting() <= usize::from(own);
        if is_alone { self.rate.frame_limit() } else { self.rate.shared_limit() }
    }

    /// Queues a payload. `frame` starts with [`HEAD_ROOM`] bytes for the header; the payload is at
    /// most [`Link::room`] bytes. Afterwards `frame` is empty and may have capacity left.
    pub fn send(&mut self, key: StreamKey, frame: &mut BytesMut) {
        let Some(stream) = lookup(&mut self.streams, key) else { return frame.clear() };
        let share = self.config.replay_per_stream;
        let own = stream.send.own_room(share, &*self.budget, &self.moving.sending);
        // Less room than the minimum window: the stream will wait for the peer's CREDIT next.
        let waits = own.saturating_sub(length(frame.len())) < IMPLICIT_WINDOW;
        let flags = if waits { FLAG_WAITING } else { 0 };
        stream.send.push((Kind::Data, flags), key.id, frame, &mut self.store);
        stream.send.grew(&mut self.moving.sending);
        stream.account(&*self.budget);
        self.store.account(&*self.budget);
        self.schedule.make_ready(key, stream);
    }

    /// Queues a payload of `len` bytes in `pages`, at most [`Link::room`] bytes.
    pub fn send_pages(&mut self, key: StreamKey, pages: Rc<dyn Pages>, len: usize) {
        let Some(stream) = lookup(&mut self.streams, key) else { return };
        let share = self.config.replay_per_stream;
        let own = stream.send.own_room(share, &*self.budget, &self.moving.sending);
        let waits = own.saturating_sub(length(len)) < IMPLICIT_WINDOW;
        let flags = if waits { FLAG_WAITING } else { 0 };
        stream.send.push_pages((Kind::Data, flags), key.id, (pages, len), &mut self.store);
        stream.send.grew(&mut self.moving.sending);
        stream.account(&*self.budget);
        self.store.account(&*self.budget);
        self.schedule.make_ready(key, stream);
    }

    /// Queues bytes of the control stream. Returns `false` if its window is full: the peer does not
    /// read, or the message exceeds 2 MiB.
    #[must_use]
    pub fn send_control(&mut self, message: &[u8]) -> bool {
        let Some(key) = self.implicit_key(StreamId::CONTROL) else { return false };
        let Some(stream) = lookup(&mut self.streams, key) else { return false };
        if stream.send.credit() < length(message.len()) {
            return false;
        }
        for piece in message.chunks(CONTROL_PIECE) {
            let mut buf = BytesMut::with_capacity(HEAD_ROOM + piece.len());
            buf.resize(HEAD_ROOM, 0);
            buf.extend_from_slice(piece);
            stream.send.push((Kind::Control, 0), key.id, &mut buf, &mut self.store);
        }
        stream.account(&*self.budget);
        self.schedule.make_ready(key, stream);
        true
    }

    /// Ends the sending direction cleanly.
    pub fn finish(&mut self, key: StreamKey) {
        let Some(stream) = lookup(&mut self.streams, key) else { return };
        if stream.send.finish() {
            self.schedule.make_ready(key, stream);
        }
    }

    /// Aborts the sending direction.
    pub fn reset(&mut self, key: StreamKey, code: ResetCode) {
        let Some(stream) = lookup(&mut self.streams, key) else { return };
        if stream.send.reset(code) {
            stream.account(&*self.budget);
            self.schedule.signals.push(key, stream);
        }
    }

    /// Requests that the peer send no more bytes. Bytes that still arrive are dropped.
    pub fn stop(&mut self, key: StreamKey, code: ResetCode) {
        let Some(stream) = lookup(&mut self.streams, key) else { return };
        if stream.recv.stop(code) {
            self.schedule.signals.push(key, stream);
        }
        stream.recv.release_unused(&*self.budget);
        stream.account(&*self.budget);
        self.try_forget(key);
    }

    /// Refuses a stream that the peer opened. The effect is that of [`Link::reset`] and
    /// [`Link::stop`], but the link keeps no state of the stream, so that refusals which the peer
    /// never acknowledges take no memory. If the refusal is lost with its carrier, the peer learns
    /// from RESUME that the stream has ended, but not the code. A stream on which bytes were sent
    /// is reset and stopped normally.
    pub fn refuse(&mut self, key: StreamKey, code: ResetCode) {
        let Some(stream) = lookup(&mut self.streams, key) else { return };
        if key.id.opener() != Some(self.side.peer()) || !stream.send.is_untouched() {
            self.reset(key, code);
            return self.stop(key, code);
        }
        self.schedule.refusals.push_back((key.id, code));
        self.forget(key);
        self.say_done();
    }

    /// Records that the application has consumed `bytes` bytes of [`super::Event::Data`].
    pub fn consume(&mut self, now: Instant, key: StreamKey, bytes: usize) {
        let Some(stream) = lookup(&mut self.streams, key) else { return };
        let due = stream.recv.consume(length(bytes));
        self.turns.consumed(now, key);
        if stream.recv.has_ended() {
            // No more credit is granted. The stream may have been kept only for these bytes.
            stream.recv.release_unused(&*self.budget);
            stream.account(&*self.budget);
            return self.try_forget(key);
        }
        stream.account(&*self.budget);
        if bytes == 0 {
            return;
        }
        match due {
            Due::Now => {
                stream.recv.owe_credit();
                self.schedule.signals.push(key, stream);
            }
            Due::Soon => {
                self.unswept.push(key, stream);
                self.sweep_at.get_or_insert(now + SWEEP);
            }
        }
    }

    /// Sends a payload from a slice, for tests and tools. Returns whether there was room for all of
    /// it.
    #[must_use]
    pub fn send_slice(&mut self, key: StreamKey, payload: &[u8]) -> bool {
        if self.room(key) < payload.len() || payload.is_empty() {
            return payload.is_empty();
        }
        let mut buf = BytesMut::with_capacity(HEAD_ROOM + payload.len());
        buf.resize(HEAD_ROOM, 0);
        buf.extend_from_slice(payload);
        self.send(key, &mut buf);
        true
    }

    pub(super) fn announce_room(&mut self, key: StreamKey) {
        let waits = lookup(&mut self.streams, key).is_some_and(|stream| stream.send.awaits_room());
        if waits && self.room(key) > 0 {
            self.room.push(key);
        }
    }

    pub(super) fn take_scratch(&mut self) -> Option<Bytes> {
        (!self.scratch.is_empty()).then(|| self.scratch.split().freeze())
    }
}

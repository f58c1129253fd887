//! The sending direction of a stream: the peer's credit, the bytes that it consumed, the end. The
//! frames themselves are in `frames.rs`.

use crate::Instant;

use std::rc::Rc;

use bytes::BytesMut;

use super::IMPLICIT_WINDOW;
use super::frames::{Frames, Popped};
use super::store::Store;
use crate::budget::{Budget, Counted, Moving, unproven};
use crate::frame::{Kind, MAX_PAYLOAD, write_data_head};
use crate::offset::{Offset, length};
use crate::{HEAD_ROOM, Pages, ResetCode, StreamId, ViolationCode};

/// The state of our direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Fin { sent: bool },
    Reset { code: ResetCode, sent: bool },
    Acked,
}

#[derive(Debug)]
pub(crate) struct Send {
    frames: Frames,
    written: Offset,
    consumed: Offset,
    limit: Offset,
    /// The offset after the last byte that was sent on any carrier before the present carrier.
    repeated: Offset,
    end: End,
    /// Whether the application was informed that there is no room, and waits.
    awaits_room: bool,
    /// The memory of the frames that was counted when the peer last consumed bytes.
    moving: Counted,
}

/// Maximum ratio of retained bytes to bytes that the peer has consumed. A window grows no faster:
/// it doubles when half of it is consumed.
const EARNED: u64 = 4;

impl Send {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            frames: Frames::new(),
            written: Offset::ZERO,
            consumed: Offset::ZERO,
            limit: Offset::new(limit),
            repeated: Offset::ZERO,
            end: End::Open,
            awaits_room: false,
            moving: Counted::default(),
        }
    }

    /// The payload bytes that the stream may still retain for replay: at most `share`, and what the
    /// budget allows. That is little until the peer has consumed bytes recently, because it may
    /// never consume them; then it is a share among the streams that move.
    pub(crate) fn own_room(&self, share: u64, budget: &dyn Budget, moving: &Moving) -> u64 {
        let most = if moving.includes(&self.moving) {
            let earned = self.consumed.since(Offset::ZERO).saturating_mul(EARNED);
            moving.share(&self.moving, budget).min(earned)
        } else {
            0
        };
        let fair = most.max(unproven(budget)).saturating_add(IMPLICIT_WINDOW);
        share.saturating_sub(self.outstanding()).min(fair.saturating_sub(self.memory()))
    }

    /// Records that the peer has consumed bytes, before they are acknowledged.
    pub(crate) fn moves(&mut self, now: Instant, moving: &mut Moving) {
        moving.moved(now, &mut self.moving, self.frames.memory());
    }

    /// Records that bytes were queued. The maximum memory of the stream is counted, because it soon
    /// holds as much again.
    pub(crate) fn grew(&mut self, moving: &mut Moving) {
        if self.frames.memory() > self.moving.bytes() {
            moving.holds(&mut self.moving, self.frames.memory());
        }
    }

    /// Removes the stream from `moving` when it is forgotten.
    pub(crate) fn leave(&mut self, moving: &mut Moving) {
        moving.left(&mut self.moving);
    }

    pub(crate) const fn awaits_room(&self) -> bool {
        self.awaits_room
    }

    /// Records the room that the application was informed of.
    pub(crate) fn announced_room(&mut self, room: u64) {
        self.awaits_room = room == 0;
    }

    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.end, End::Open)
    }

    /// Whether nothing was ever sent, not even an end.
    pub(crate) fn is_untouched(&self) -> bool {
        self.is_open() && self.written == Offset::ZERO
    }

    pub(crate) const fn is_acked(&self) -> bool {
        matches!(self.end, End::Acked)
    }

    /// Whether the maximum number of frames is retained.
    pub(crate) fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    /// The remaining credit, in bytes.
    pub(crate) fn credit(&self) -> u64 {
        if self.is_open() { self.limit.since(self.written) } else { 0 }
    }

    /// The offset of the next byte.
    pub(crate) const fn written(&self) -> Offset {
        self.written
    }

    /// The offset up to which the peer has consumed.
    pub(crate) const fn consumed(&self) -> Offset {
        self.consumed
    }

    /// Payload bytes that wait to be sent.
    pub(crate) const fn unsent(&self) -> u64 {
        self.frames.unsent()
    }

    /// Payload bytes written and not yet consumed by the peer.
    pub(crate) fn outstanding(&self) -> u64 {
        self.written.since(self.consumed)
    }

    /// Payload bytes sent and not yet consumed by the peer.
    pub(crate) fn under_way(&self) -> u64 {
        self.sent().since(self.consumed)
    }

    /// Memory that the frames pin, in bytes.
    pub(crate) const fn memory(&self) -> u64 {
        self.frames.memory()
    }

    /// Whether frames or a FIN wait to be sent.
    pub(crate) fn has_output(&self) -> bool {
        !self.frames.all_sent() || matches!(self.end, End::Fin { sent: false })
    }

    /// Queues a payload; the first [`HEAD_ROOM`] bytes of `buf` become the header.
    pub(crate) fn push(
        &mut self,
        kind: (Kind, u8),
        id: StreamId,
        buf: &mut BytesMut,
        store: &mut Store,
    ) {
        let payload = buf.len().saturating_sub(HEAD_ROOM);
        debug_assert!(payload > 0 && payload <= MAX_PAYLOAD, "the caller keeps to room()");
        debug_assert!(length(payload) <= self.credit(), "the caller keeps to room()");
        if payload == 0 || !self.is_open() {
            return buf.clear();
        }
        write_data_head(buf, kind, id, self.written.low(), payload);
        self.frames.push(self.written, buf, store);
        self.written = self.written.plus(length(payload));
    }

    /// Queues a payload of pages; see [`Self::push`].
    pub(crate) fn push_pages(
        &mut self,
        kind: (Kind, u8),
        id: StreamId,
        (pages, len): (Rc<dyn Pages>, usize),
        store: &mut Store,
    ) {
        debug_assert!(len > 0 && len <= MAX_PAYLOAD, "the caller keeps to room()");
        debug_assert!(length(len) <= self.credit(), "the caller keeps to room()");
        let Some(size) = u32::try_from(len).ok().filter(|size| *size > 0 && self.is_open()) else {
            return;
        };
        let mut head = [0; HEAD_ROOM];
        write_data_head(&mut head, kind, id, self.written.low(), len);
        self.frames.push_pages(self.written, &head, (pages, size), store);
        self.written = self.written.plus(length(len));
    }

    /// The next frame to send; it stays retained.
    pub(crate) fn pop(&mut self) -> Option<Popped> {
        self.frames.pop()
    }

    /// The end offset, if a FIN must be sent now; marks the FIN as sent.
    pub(crate) fn take_fin(&mut self) -> Option<Offset> {
        if self.frames.all_sent() && self.end == (End::Fin { sent: false }) {
            self.end = End::Fin { sent: true };
            return Some(self.written);
        }
        None
    }

    /// The code of a RESET that must be sent.
    pub(crate) const fn reset_due(&self) -> Option<ResetCode> {
        match self.end {
            End::Reset { code, sent: false } => Some(code),
            End::Open | End::Fin { .. } | End::Reset { .. } | End::Acked => None,
        }
    }

    pub(crate) fn reset_sent(&mut self) {
        if let End::Reset { sent, .. } = &mut self.end {
            *sent = true;
        }
    }

    /// Ends the direction. Returns `false` if it had already ended.
    pub(crate) fn finish(&mut self) -> bool {
        let open = self.is_open();
        if open {
            self.end = End::Fin { sent: false };
        }
        open
    }

    /// Aborts the direction: queued and retained frames are discarded. Returns `false` if it was
    /// already aborted or acknowledged.
    pub(crate) fn reset(&mut self, code: ResetCode) -> bool {
        if matches!(self.end, End::Reset { .. } | End::Acked) {
            return false;
        }
        self.end = End::Reset { code, sent: false };
        self.drop_frames();
        true
    }

    fn drop_frames(&mut self) {
        self.frames = Frames::new();
        self.consumed = self.written;
    }

    /// Handles the peer's credit and consumption. Returns the newly consumed bytes.
    pub(crate) fn acknowledge(
        &mut self,
        limit: Offset,
        consumed: Offset,
        store: &mut Store,
    ) -> Result<u64, ViolationCode> {
        self.limit = self.limit.max(limit);
        let fresh = consumed.since(self.consumed);
        if fresh == 0 || matches!(self.end, End::Reset { .. } | End::Acked) {
            return Ok(0);
        }
        let sent = self.sent();
        if consumed > sent.max(self.repeated) {
            return Err(ViolationCode::Contradiction);
        }
        self.consumed = consumed;
        if consumed > sent {
            // The peer has read bytes of an earlier carrier after it made its RESUME (a preview).
            // These bytes are not repeated.
            self.frames.rewind(consumed, store);
        } else {
            self.frames.release_before(consumed, store);
        }
        Ok(fresh)
    }

    /// The offset after the last sent byte.
    pub(crate) fn sent(&self) -> Offset {
        self.frames.first_unsent().unwrap_or(self.written)
    }

    /// Records that the peer has received our FIN or RESET. An acknowledgement of an end that we
    /// did not send is ignored.
    pub(crate) fn end_acknowledged(&mut self) {
        match self.end {
            End::Fin { sent: true } | End::Reset { sent: true, .. } => {
                self.end = End::Acked;
                self.drop_frames();
            }
            End::Open | End::Fin { .. } | End::Reset { .. } | End::Acked => {}
        }
    }

    /// Ends the direction because the peer has forgotten the stream.
    pub(crate) fn abandon(&mut self) {
        self.end = End::Acked;
        self.drop_frames();
    }

    /// Resumes after a change of the carrier: the peer has everything before `received`; later
    /// bytes, and an end that the peer has not received, are sent again.
    pub(crate) fn resume(
        &mut self,
        received: Offset,
        end_seen: bool,
        store: &mut Store,
    ) -> Result<(), ViolationCode> {
        if matches!(self.end, End::Acked) {
            return Ok(());
        }
        let is_reset = matches!(self.end, End::Reset { .. });
        if !is_reset && (received > self.written || received < self.consumed) {
            return Err(ViolationCode::Contradiction);
        }
        self.rewind(received, store);
        if end_seen {
            match &mut self.end {
                End::Fin { sent } | End::Reset { sent, .. } => *sent = true,
                End::Open => return Err(ViolationCode::Contradiction),
                End::Acked => {}
            }
        }
        Ok(())
    }

    /// Marks everything from `from` on as unsent.
    pub(crate) fn rewind(&mut self, from: Offset, store: &mut Store) {
        self.repeated = self.repeated.max(self.sent());
        self.frames.rewind(from, store);
        if let End::Fin { sent } | End::Reset { sent, .. } = &mut self.end {
            *sent = false;
        }
    }

    /// The peer's credit beyond the implicit window.
    #[cfg(test)]
    pub(crate) fn extra_credit(&self) -> u64 {
        self.limit.raw().saturating_sub(IMPLICIT_WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(sizes: &[usize]) -> Send {
        let mut send = Send::new(1 << 20);
        for &n in sizes {
            let mut buf = BytesMut::zeroed(HEAD_ROOM + n);
            buf[HEAD_ROOM..].fill(u8::try_from(n % 251).unwrap());
            send.push((Kind::Data, 0), StreamId::new(7), &mut buf, &mut Store::new());
        }
        send
    }

    #[test]
    fn a_frame_is_kept_until_consumed() {
        let mut send = filled(&[10, 20]);
        assert_eq!(send.pop().unwrap().bytes.len(), HEAD_ROOM + 10);
        assert_eq!(send.acknowledge(Offset::ZERO, Offset::new(5), &mut Store::new()), Ok(5));
        send.resume(Offset::new(5), false, &mut Store::new()).unwrap();
        let again = send.pop().unwrap().bytes;
        assert_eq!(&again[..], &[2, 0, 0, 9, 0, 0, 0, 7, 0, 0, 0, 5, 10, 10, 10, 10, 10]);
        assert_eq!(send.pop().unwrap().bytes.len(), HEAD_ROOM + 20);
        assert_eq!(send.unsent(), 0);
    }

    #[test]
    fn the_end_of_our_direction_by_table() {
        // (the event, whether the end must be sent, whether it is acknowledged afterwards)
        type Step = fn(&mut Send);
        let table: &[(&str, &[Step], bool, bool)] = &[
            ("open", &[], false, false),
            (
                "finish",
                &[|s| {
                    s.finish();
                }],
                true,
                false,
            ),
            (
                "finish, sent",
                &[|s| {
                    s.finish();
                    s.take_fin();
                }],
                false,
                false,
            ),
            (
                "finish, unsent, ack",
                &[|s| {
                    s.finish();
                    s.end_acknowledged();
                }],
                true,
                false,
            ),
            (
                "finish, sent, ack",
                &[|s| {
                    s.finish();
                    s.take_fin();
                    s.end_acknowledged();
                }],
                false,
                true,
            ),
            (
                "finish, sent, lost",
                &[|s| {
                    s.finish();
                    s.take_fin();
                    s.resume(Offset::ZERO, false, &mut Store::new()).unwrap();
                }],
                true,
                false,
            ),
            (
                "finish, sent, seen",
                &[|s| {
                    s.finish();
                    s.take_fin();
                    s.resume(Offset::ZERO, true, &mut Store::new()).unwrap();
                    s.end_acknowledged();
                }],
                false,
                true,
            ),
            (
                "reset",
                &[|s| {
                    s.reset(ResetCode::Aborted);
                }],
                true,
                false,
            ),
            (
                "reset after fin",
                &[|s| {
                    s.finish();
                    s.take_fin();
                    s.reset(ResetCode::Aborted);
                }],
                true,
                false,
            ),
            (
                "reset, sent, ack",
                &[|s| {
                    s.reset(ResetCode::Aborted);
                    s.reset_sent();
                    s.end_acknowledged();
                }],
                false,
                true,
            ),
            (
                "finish after reset",
                &[|s| {
                    s.reset(ResetCode::Aborted);
                    s.reset_sent();
                    s.finish();
                }],
                false,
                false,
            ),
            (
                "reset after ack",
                &[|s| {
                    s.finish();
                    s.take_fin();
                    s.end_acknowledged();
                    s.reset(ResetCode::Aborted);
                }],
                false,
                true,
            ),
        ];
        for (name, steps, due, acked) in table {
            let mut send = Send::new(100);
            for step in *steps {
                step(&mut send);
            }
            let is_due = send.has_output() || send.reset_due().is_some();
            assert_eq!((is_due, send.is_acked()), (*due, *acked), "{name}");
        }
    }

    #[test]
    fn consumption_of_what_was_not_sent_is_a_contradiction() {
        let mut send = filled(&[10, 20]);
        send.pop();
        assert_eq!(
            send.acknowledge(Offset::ZERO, Offset::new(11), &mut Store::new()),
            Err(ViolationCode::Contradiction)
        );
    }

    #[test]
    fn credit_only_grows() {
        let mut send = filled(&[]);
        let before = send.extra_credit();
        send.acknowledge(Offset::new(5), Offset::ZERO, &mut Store::new()).unwrap();
        assert_eq!(send.extra_credit(), before);
    }
}

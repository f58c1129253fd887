//! Our direction of a stream: frames in order, each kept until the peer has consumed it.
//!
//! One queue is both the send queue and the replay buffer: `frames[..next]` were sent and are
//! retained, `frames[next..]` wait. A resume only moves `next`. A frame's bytes hold its head, so
//! it is sent again as it is. What a frame costs is the memory it keeps, not the bytes it carries.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::small::{COPY_BELOW, SmallFrames};
use crate::frame::{Kind, MAX_PAYLOAD, write_data_head};
use crate::offset::{Offset, length, memory};
use crate::{HEAD_ROOM, ResetCode, StreamId, ViolationCode};

/// Frames kept at most: one costs some sixty bytes whatever it carries, so that a window of tiny
/// writes must not be sixty times as much memory. While a stream stalls at it, its source's
/// bytes gather into larger reads. At 1,400 bytes a frame it carries 450 Mbit/s over 100 ms.
const FRAMES_MAX: usize = 4096;

/// Where our direction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Fin { sent: bool },
    Reset { code: ResetCode, sent: bool },
    Acked,
}

#[derive(Debug)]
struct Frame {
    /// Head and payload.
    bytes: Bytes,
    /// Offset of the first payload byte.
    start: Offset,
    /// Capacity behind `bytes` in the buffer they were cut from, as long as no later frame was cut
    /// from it: nobody else can use it.
    slack: u32,
}

impl Frame {
    fn payload(&self) -> u64 {
        length(self.bytes.len() - HEAD_ROOM)
    }

    fn end(&self) -> Offset {
        self.start.plus(self.payload())
    }

    fn memory(&self) -> u64 {
        length(self.bytes.len() + size_of::<Self>()) + u64::from(self.slack)
    }
}

#[derive(Debug)]
pub(crate) struct Send {
    frames: VecDeque<Frame>,
    next: usize,
    unsent: u64,
    /// What all frames cost.
    memory: u64,
    written: Offset,
    consumed: Offset,
    limit: Offset,
    end: End,
}

impl Send {
    pub(crate) const fn new(limit: u64) -> Self {
        Self {
            frames: VecDeque::new(),
            next: 0,
            unsent: 0,
            memory: 0,
            written: Offset::ZERO,
            consumed: Offset::ZERO,
            limit: Offset::new(limit),
            end: End::Open,
        }
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

    /// Whether as many frames are kept as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.frames.len() >= FRAMES_MAX
    }

    /// Bytes the peer still allows.
    pub(crate) fn credit(&self) -> u64 {
        if self.is_open() { self.limit.since(self.written) } else { 0 }
    }

    /// Payload bytes that wait to be sent.
    pub(crate) const fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Payload bytes written and not yet consumed by the peer.
    pub(crate) fn outstanding(&self) -> u64 {
        self.written.since(self.consumed)
    }

    /// Bytes of memory that the frames keep.
    pub(crate) const fn memory(&self) -> u64 {
        self.memory
    }

    /// Whether frames or a FIN wait to be sent.
    pub(crate) fn has_output(&self) -> bool {
        self.next < self.frames.len() || matches!(self.end, End::Fin { sent: false })
    }

    /// Queues a payload; its first [`HEAD_ROOM`] bytes become the head.
    pub(crate) fn push(
        &mut self,
        kind: (Kind, u8),
        id: StreamId,
        buf: &mut BytesMut,
        small: &mut SmallFrames,
    ) {
        let payload = buf.len().saturating_sub(HEAD_ROOM);
        debug_assert!(payload > 0 && payload <= MAX_PAYLOAD, "the caller keeps to room()");
        debug_assert!(length(payload) <= self.credit(), "the caller keeps to room()");
        if payload == 0 || !self.is_open() {
            return buf.clear();
        }
        write_data_head(buf, kind, id, self.written.low(), payload);
        let (bytes, slack) = if payload < COPY_BELOW {
            (small.keep(buf), 0)
        } else {
            let bytes = buf.split().freeze();
            self.take_over_slack(&bytes);
            (bytes, u32::try_from(buf.capacity()).unwrap_or(u32::MAX))
        };
        let frame = Frame { bytes, start: self.written, slack };
        self.memory += frame.memory();
        self.frames.push_back(frame);
        self.written = self.written.plus(length(payload));
        self.unsent += length(payload);
    }

    /// `next` may have been cut from what is behind the last frame: then it is counted with it.
    fn take_over_slack(&mut self, next: &Bytes) {
        if let Some(last) = self.frames.back_mut()
            && last.bytes.as_ptr_range().end == next.as_ptr()
        {
            self.memory -= u64::from(std::mem::take(&mut last.slack));
        }
    }

    /// The next frame to send; it stays retained.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let frame = self.frames.get(self.next)?;
        self.next += 1;
        self.unsent -= frame.payload();
        Some(frame.bytes.clone())
    }

    /// The end offset, if a FIN is to be sent now; marks it sent.
    pub(crate) fn take_fin(&mut self) -> Option<Offset> {
        if self.next == self.frames.len() && self.end == (End::Fin { sent: false }) {
            self.end = End::Fin { sent: true };
            return Some(self.written);
        }
        None
    }

    /// The code of a RESET that is to be sent.
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

    /// No more bytes. False when the direction had ended before.
    pub(crate) fn finish(&mut self) -> bool {
        let open = self.is_open();
        if open {
            self.end = End::Fin { sent: false };
        }
        open
    }

    /// Aborts: what is queued or retained is thrown away. False when the direction had been
    /// aborted or acknowledged before.
    pub(crate) fn reset(&mut self, code: ResetCode) -> bool {
        if matches!(self.end, End::Reset { .. } | End::Acked) {
            return false;
        }
        self.end = End::Reset { code, sent: false };
        self.drop_frames();
        true
    }

    fn drop_frames(&mut self) {
        self.frames = VecDeque::new();
        self.next = 0;
        self.unsent = 0;
        self.memory = 0;
        self.consumed = self.written;
    }

    /// The peer's credit and consumption. Returns the bytes it consumed since the last time; their
    /// frames go to `spent`, whose memory can be used again.
    pub(crate) fn acknowledge(
        &mut self,
        limit: Offset,
        consumed: Offset,
        spent: &mut Vec<Bytes>,
    ) -> Result<u64, ViolationCode> {
        self.limit = self.limit.max(limit);
        let fresh = consumed.since(self.consumed);
        if fresh == 0 || matches!(self.end, End::Reset { .. } | End::Acked) {
            return Ok(0);
        }
        if consumed > self.sent() {
            return Err(ViolationCode::Contradiction);
        }
        self.consumed = consumed;
        self.release_before(consumed, |frame| {
            if frame.len() >= COPY_BELOW {
                spent.push(frame);
            }
        });
        Ok(fresh)
    }

    /// The end of what was sent.
    fn sent(&self) -> Offset {
        self.frames.get(self.next).map_or(self.written, |frame| frame.start)
    }

    fn release_before(&mut self, offset: Offset, mut released: impl FnMut(Bytes)) {
        while self.next > 0
            && let Some(frame) = self.frames.pop_front_if(|frame| frame.end() <= offset)
        {
            self.memory -= frame.memory();
            released(frame.bytes);
            self.next -= 1;
        }
        // A stream that is quiet keeps nothing, not even an empty queue.
        if self.frames.is_empty() && self.frames.capacity() > 4 {
            self.frames = VecDeque::new();
        }
    }

    /// The peer has seen our FIN or RESET. An acknowledgement of an end that we did not send says
    /// nothing.
    pub(crate) fn end_acknowledged(&mut self) {
        match self.end {
            End::Fin { sent: true } | End::Reset { sent: true, .. } => {
                self.end = End::Acked;
                self.drop_frames();
            }
            End::Open | End::Fin { .. } | End::Reset { .. } | End::Acked => {}
        }
    }

    /// The peer has forgotten the stream: whatever we still had is acknowledged by that.
    pub(crate) fn abandon(&mut self) {
        self.end = End::Acked;
        self.drop_frames();
    }

    /// After a carrier changed: the peer holds everything before `received`; what follows is sent
    /// again, and so is an end that it has not seen.
    pub(crate) fn resume(&mut self, received: Offset, end_seen: bool) -> Result<(), ViolationCode> {
        if matches!(self.end, End::Acked) {
            return Ok(());
        }
        let is_reset = matches!(self.end, End::Reset { .. });
        if !is_reset && (received > self.written || received < self.consumed) {
            return Err(ViolationCode::Contradiction);
        }
        self.rewind(received);
        if end_seen {
            match &mut self.end {
                End::Fin { sent } | End::Reset { sent, .. } => *sent = true,
                End::Open => return Err(ViolationCode::Contradiction),
                End::Acked => {}
            }
        }
        Ok(())
    }

    /// Everything from `from` on is to be sent again.
    pub(crate) fn rewind(&mut self, from: Offset) {
        self.next = self.frames.len();
        self.release_before(from, drop);
        self.next = 0;
        if let Some(frame) = self.frames.front_mut() {
            let known = memory(from.since(frame.start));
            if known > 0 {
                // The peer holds the front part: the rest goes on under a head of its own.
                let mut rest = BytesMut::with_capacity(frame.bytes.len() - known);
                rest.extend_from_slice(&frame.bytes[..HEAD_ROOM]);
                rest.extend_from_slice(&frame.bytes[HEAD_ROOM + known..]);
                let payload = rest.len() - HEAD_ROOM;
                let id = StreamId::new(u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]));
                let kind = if id == StreamId::CONTROL { Kind::Control } else { Kind::Data };
                write_data_head(&mut rest, (kind, 0), id, from.low(), payload);
                *frame = Frame { bytes: rest.freeze(), start: from, slack: 0 };
            }
        }
        self.unsent = self.frames.iter().map(Frame::payload).sum();
        self.memory = self.frames.iter().map(Frame::memory).sum();
        if let End::Fin { sent } | End::Reset { sent, .. } = &mut self.end {
            *sent = false;
        }
    }

    /// The share of the peer's credit beyond what every stream has.
    #[cfg(test)]
    pub(crate) fn extra_credit(&self) -> u64 {
        self.limit.raw().saturating_sub(super::IMPLICIT_WINDOW)
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
            send.push((Kind::Data, 0), StreamId::new(7), &mut buf, &mut SmallFrames::default());
        }
        send
    }

    #[test]
    fn a_frame_is_kept_until_consumed() {
        let mut send = filled(&[10, 20]);
        assert_eq!(send.pop().unwrap().len(), HEAD_ROOM + 10);
        assert_eq!(send.acknowledge(Offset::ZERO, Offset::new(5), &mut Vec::new()), Ok(5));
        send.resume(Offset::new(5), false).unwrap();
        let again = send.pop().unwrap();
        assert_eq!(&again[..], &[2, 0, 0, 9, 0, 0, 0, 7, 0, 0, 0, 5, 10, 10, 10, 10, 10]);
        assert_eq!(send.pop().unwrap().len(), HEAD_ROOM + 20);
        assert_eq!(send.unsent(), 0);
    }

    #[test]
    fn the_end_of_our_direction_by_table() {
        // (what happens, is the end to be sent, is it acknowledged afterwards)
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
                    s.resume(Offset::ZERO, false).unwrap();
                }],
                true,
                false,
            ),
            (
                "finish, sent, seen",
                &[|s| {
                    s.finish();
                    s.take_fin();
                    s.resume(Offset::ZERO, true).unwrap();
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
            send.acknowledge(Offset::ZERO, Offset::new(11), &mut Vec::new()),
            Err(ViolationCode::Contradiction)
        );
    }

    #[test]
    fn credit_only_grows() {
        let mut send = filled(&[]);
        let before = send.extra_credit();
        send.acknowledge(Offset::new(5), Offset::ZERO, &mut Vec::new()).unwrap();
        assert_eq!(send.extra_credit(), before);
    }
}

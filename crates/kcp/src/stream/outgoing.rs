//! The sending half without timers: written bytes, cut into segments, until they are acknowledged.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes, BytesMut};

use super::number::Sn;

/// The size of a buffer that small writes share.
const CHUNK: usize = 8 << 10;

/// The number of slots of a ring that an idle end keeps.
const LEAST: usize = 8;

/// The maximum number of fragments of a message: the field has one byte.
const FRAGMENTS_MAX: usize = 255;

/// A segment that was sent, until `una` is beyond it.
#[derive(Debug)]
pub(crate) struct Sent {
    /// The payload. Empty once the segment is acknowledged.
    pub(crate) payload: Bytes,
    pub(crate) fragments: u8,
    /// The number of the last transmission of the segment.
    pub(crate) transmission: u64,
    pub(crate) transmissions: u32,
    pub(crate) state: State,
}

/// ```text
///   Flying --acknowledged--> Done
///     ^ |                     ^
///     | lost                  |
///     +-- sent again -- Lost --+ acknowledged after all
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Flying,
    /// The segment waits for retransmission.
    Lost,
    Done,
}

/// A segment that was not sent yet.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) payload: Bytes,
    pub(crate) fragments: u8,
}

#[derive(Debug)]
pub(crate) struct Outgoing {
    payload_max: usize,
    is_stream: bool,
    window: usize,
    /// Bytes of the stream that are not cut yet. Large writes are kept without a copy.
    whole: VecDeque<Bytes>,
    whole_bytes: usize,
    /// Segments that are cut: messages.
    cut: VecDeque<Fresh>,
    /// The buffer that small writes share.
    shared: BytesMut,
    /// `snd_una`.
    first: Sn,
    sent: VecDeque<Sent>,
}

impl Outgoing {
    pub(crate) fn new(payload_max: usize, window: u16, is_stream: bool) -> Self {
        Self {
            payload_max,
            is_stream,
            window: usize::from(window),
            whole: VecDeque::new(),
            whole_bytes: 0,
            cut: VecDeque::new(),
            shared: BytesMut::new(),
            first: Sn(0),
            sent: VecDeque::new(),
        }
    }

    /// Sets the maximum payload of segments that are cut from now on.
    pub(crate) const fn set_payload(&mut self, payload_max: usize) {
        self.payload_max = payload_max;
    }

    /// The number of bytes that may be written now.
    pub(crate) fn room(&self) -> usize {
        let segments = self.whole_bytes.div_ceil(self.payload_max) + self.cut.len();
        self.window.saturating_sub(segments + self.sent.len()) * self.payload_max
    }

    /// Takes as many bytes as there is room for from the front of `bytes`.
    pub(crate) fn write(&mut self, bytes: &mut Bytes) -> usize {
        let part = bytes.split_to(bytes.len().min(self.room()));
        let length = part.len();
        if length > 0 {
            self.whole_bytes += length;
            self.whole.push_back(part);
        }
        length
    }

    /// Cuts a message into segments. `false` if there is no room for it, or the message is too
    /// long. A stream takes the message as bytes.
    pub(crate) fn message(&mut self, mut message: Bytes) -> bool {
        let fragments = message.len().div_ceil(self.payload_max);
        if message.len() > self.room() || !(1..=FRAGMENTS_MAX).contains(&fragments) {
            return false;
        }
        if self.is_stream {
            self.write(&mut message);
            return true;
        }
        for left in (0..fragments).rev() {
            let payload = message.split_to(message.len().min(self.payload_max));
            let fragments = u8::try_from(left).unwrap_or(0);
            self.cut.push_back(Fresh { payload, fragments });
        }
        true
    }

    /// Bytes of the stream that are not cut yet.
    pub(crate) const fn unsent(&self) -> usize {
        self.whole_bytes
    }

    pub(crate) fn has_fresh(&self) -> bool {
        self.whole_bytes > 0 || !self.cut.is_empty()
    }

    /// The length of the next segment. `None` if there is none.
    pub(crate) fn next_length(&self) -> Option<usize> {
        match self.cut.front() {
            Some(fresh) => Some(fresh.payload.len()),
            None => Some(self.whole_bytes.min(self.payload_max)).filter(|length| *length > 0),
        }
    }

    /// Cuts the next segment. A large write is sliced, and small writes are copied into one
    /// segment.
    pub(crate) fn pop_fresh(&mut self) -> Option<Fresh> {
        if let Some(fresh) = self.cut.pop_front() {
            return Some(fresh);
        }
        let front = self.whole.front_mut()?;
        let length = self.whole_bytes.min(self.payload_max);
        self.whole_bytes -= length;
        if front.len() > length {
            return Some(Fresh { payload: front.split_to(length), fragments: 0 });
        }
        if front.len() == length {
            return self.whole.pop_front().map(|payload| Fresh { payload, fragments: 0 });
        }
        if self.shared.capacity() < length {
            self.shared = BytesMut::with_capacity(CHUNK.max(length));
        }
        while self.shared.len() < length {
            let Some(front) = self.whole.front_mut() else { break };
            let part = front.len().min(length - self.shared.len());
            self.shared.extend_from_slice(&front[..part]);
            front.advance(part);
            if front.is_empty() {
                self.whole.pop_front();
            }
        }
        Some(Fresh { payload: self.shared.split().freeze(), fragments: 0 })
    }

    /// The number of the next fresh segment (`snd_nxt`).
    pub(crate) fn next(&self) -> Sn {
        self.first.plus(u32::try_from(self.sent.len()).unwrap_or(u32::MAX))
    }

    /// The number of segments that were sent and are not before `una`.
    pub(crate) fn outstanding(&self) -> usize {
        self.sent.len()
    }

    pub(crate) fn push_sent(&mut self, sent: Sent) {
        self.sent.push_back(sent);
    }

    /// The segment `sn` if it is outstanding.
    pub(crate) fn get(&self, sn: Sn) -> Option<&Sent> {
        self.sent.get(usize::try_from(sn.since(self.first)).ok()?)
    }

    /// The segment `sn` if it is outstanding, for changes.
    pub(crate) fn sent(&mut self, sn: Sn) -> Option<&mut Sent> {
        let slot = usize::try_from(sn.since(self.first)).ok()?;
        self.sent.get_mut(slot)
    }

    /// The oldest and the newest segment that are not acknowledged.
    pub(crate) fn ends(&self) -> Option<(Sn, Sn)> {
        let is_open = |sent: &Sent| sent.state != State::Done;
        let last = self.sent.iter().rposition(is_open)?;
        let last = u32::try_from(last).ok()?;
        // The first segment is not acknowledged. Otherwise it would have been removed.
        Some((self.first, self.first.plus(last)))
    }

    /// Removes the first segment if it is before `una`.
    pub(crate) fn pop_before(&mut self, una: Sn) -> Option<(Sn, Sent)> {
        if !self.first.is_before(una) {
            return None;
        }
        let sent = self.sent.pop_front()?;
        let sn = self.first;
        self.first = sn.plus(1);
        Some((sn, sent))
    }

    /// Removes the segments at the front that are acknowledged individually.
    pub(crate) fn trim(&mut self) {
        while self.sent.front().is_some_and(|sent| sent.state == State::Done) {
            self.sent.pop_front();
            self.first = self.first.plus(1);
        }
    }

    /// Releases memory if the end has no data to send and no segment in flight.
    pub(crate) fn rest(&mut self) {
        if self.sent.is_empty() && !self.has_fresh() {
            self.sent.shrink_to(LEAST);
            self.whole.shrink_to(LEAST);
            self.cut.shrink_to(LEAST);
            self.shared = BytesMut::new();
        }
    }
}

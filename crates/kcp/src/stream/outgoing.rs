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
pub struct Sent {
    /// The payload. Empty once the segment is acknowledged.
    pub payload: Bytes,
    /// The number of segments of the same message behind this segment. 0 in a stream.
    pub fragments: u8,
    /// The number of the last transmission of the segment.
    pub transmission: u64,
    /// How often the segment was sent.
    pub transmissions: u32,
    /// Whether the segment has arrived.
    pub state: State,
}

/// Whether a segment has arrived.
///
/// ```text
///   Flying --acknowledged--> Done
///     ^ |                     ^
///     | lost                  |
///     +-- sent again -- Lost --+ acknowledged after all
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The segment is under way.
    Flying,
    /// The segment waits for retransmission.
    Lost,
    /// The segment is acknowledged.
    Done,
}

/// A segment that was not sent yet.
#[derive(Debug)]
pub struct Fresh {
    /// The payload.
    pub payload: Bytes,
    /// The number of segments of the same message behind this segment. 0 in a stream.
    pub fragments: u8,
}

/// The bytes that were written and are not acknowledged yet.
#[derive(Debug)]
pub struct Outgoing {
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
    /// Nothing is written. A segment has at most `payload_max` bytes, and `window` segments may
    /// wait for their acknowledgement. `is_stream` tells a stream from messages.
    #[must_use]
    pub fn new(payload_max: usize, window: u16, is_stream: bool) -> Self {
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

    /// Segments that are cut from now on have at most `payload_max` bytes.
    pub const fn set_payload(&mut self, payload_max: usize) {
        self.payload_max = payload_max;
    }

    /// Bytes that may be written now, before acknowledgements make room.
    pub fn room(&self) -> usize {
        let segments = self.whole_bytes.div_ceil(self.payload_max) + self.cut.len();
        self.window.saturating_sub(segments + self.sent.len()) * self.payload_max
    }

    /// Takes as many bytes as there is room for from the front of `bytes`.
    pub fn write(&mut self, bytes: &mut Bytes) -> usize {
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
    pub fn message(&mut self, mut message: Bytes) -> bool {
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
    pub const fn unsent(&self) -> usize {
        self.whole_bytes
    }

    /// Whether a segment waits that was not sent yet.
    pub fn has_fresh(&self) -> bool {
        self.whole_bytes > 0 || !self.cut.is_empty()
    }

    /// The length of the next segment. `None` if there is none.
    pub fn next_length(&self) -> Option<usize> {
        match self.cut.front() {
            Some(fresh) => Some(fresh.payload.len()),
            None => Some(self.whole_bytes.min(self.payload_max)).filter(|length| *length > 0),
        }
    }

    /// Cuts the next segment. A large write is sliced, and small writes are copied into one
    /// segment.
    pub fn pop_fresh(&mut self) -> Option<Fresh> {
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
    pub fn next(&self) -> Sn {
        self.first.plus(u32::try_from(self.sent.len()).unwrap_or(u32::MAX))
    }

    /// The number of segments that were sent and are not before `una`.
    pub fn outstanding(&self) -> usize {
        self.sent.len()
    }

    /// The next fresh segment is sent.
    pub fn push_sent(&mut self, sent: Sent) {
        self.sent.push_back(sent);
    }

    /// The segment `sn` if it is outstanding.
    pub fn get(&self, sn: Sn) -> Option<&Sent> {
        self.sent.get(usize::try_from(sn.since(self.first)).ok()?)
    }

    /// The segment `sn` if it is outstanding, for changes.
    pub fn sent(&mut self, sn: Sn) -> Option<&mut Sent> {
        let slot = usize::try_from(sn.since(self.first)).ok()?;
        self.sent.get_mut(slot)
    }

    /// The oldest and the newest segment that are not acknowledged.
    pub fn ends(&self) -> Option<(Sn, Sn)> {
        let is_open = |sent: &Sent| sent.state != State::Done;
        let last = self.sent.iter().rposition(is_open)?;
        let last = u32::try_from(last).ok()?;
        // The first segment is not acknowledged. Otherwise it would have been removed.
        Some((self.first, self.first.plus(last)))
    }

    /// Removes the first segment if it is before `una`.
    pub fn pop_before(&mut self, una: Sn) -> Option<(Sn, Sent)> {
        if !self.first.is_before(una) {
            return None;
        }
        let sent = self.sent.pop_front()?;
        let sn = self.first;
        self.first = sn.plus(1);
        Some((sn, sent))
    }

    /// Removes the segments at the front that are acknowledged one by one.
    pub fn trim(&mut self) {
        while self.sent.front().is_some_and(|sent| sent.state == State::Done) {
            self.sent.pop_front();
            self.first = self.first.plus(1);
        }
    }

    /// Releases memory if the end has no data to send and no segment in flight.
    pub fn rest(&mut self) {
        if self.sent.is_empty() && !self.has_fresh() {
            self.sent.shrink_to(LEAST);
            self.whole.shrink_to(LEAST);
            self.cut.shrink_to(LEAST);
            self.shared = BytesMut::new();
        }
    }
}

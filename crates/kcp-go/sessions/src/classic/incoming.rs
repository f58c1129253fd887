//! Segments from the peer, in order or behind a hole, and the acknowledgements that are due.

use std::collections::VecDeque;

use crate::wire::{Millis, Segment, Sn};

/// Why no message is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// No message is complete.
    #[error("no message is complete")]
    Empty,
    /// The message is longer than the buffer, and stays in the queue.
    #[error("the message is longer than the buffer")]
    Short,
}

/// A segment that is acknowledged at the next flush.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    pub(super) sn: Sn,
    pub(super) timestamp: Millis,
}

#[derive(Debug)]
struct Stored {
    sn: Sn,
    fragments: u8,
    payload: Vec<u8>,
}

/// Each queue holds at most `window` segments, and a segment is no longer than its datagram.
#[derive(Debug)]
pub(super) struct Incoming {
    window: u16,
    /// The number of the next segment in order.
    next: Sn,
    /// Segments in order, for the reader.
    ready: VecDeque<Stored>,
    /// Segments after `next`, or at it while `ready` is full, by number.
    ahead: VecDeque<Stored>,
    owed: Vec<Owed>,
}

impl Incoming {
    pub(super) const fn new(window: u16) -> Self {
        Self {
            window,
            next: Sn(0),
            ready: VecDeque::new(),
            ahead: VecDeque::new(),
            owed: Vec::new(),
        }
    }

    /// Continues at another number. No segment may have arrived before.
    pub(super) fn start_at(&mut self, next: Sn) {
        if self.ahead.is_empty() {
            self.next = next;
        }
    }

    pub(super) const fn next(&self) -> Sn {
        self.next
    }

    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn ahead(&self) -> usize {
        self.ahead.len()
    }

    pub(super) const fn owed(&self) -> usize {
        self.owed.len()
    }

    /// The number of segments for which the reader's queue has room.
    pub(super) fn room(&self) -> u16 {
        let ready = u16::try_from(self.ready.len()).unwrap_or(u16::MAX);
        self.window.saturating_sub(ready)
    }

    /// Takes a PUSH. A PUSH beyond the window is dropped and not acknowledged.
    pub(super) fn push(&mut self, segment: &Segment<'_>) {
        let sn = segment.head.sn;
        if !sn.is_before(self.next.plus(u32::from(self.window))) {
            return;
        }
        self.owed.push(Owed { sn, timestamp: segment.head.timestamp });
        if sn.is_before(self.next) {
            return;
        }
        let at = self.ahead.partition_point(|stored| stored.sn.is_before(sn));
        if self.ahead.get(at).is_none_or(|stored| stored.sn != sn) {
            let (fragments, payload) = (segment.head.fragments, segment.payload.to_vec());
            self.ahead.insert(at, Stored { sn, fragments, payload });
        }
        self.advance();
    }

    /// Moves segments in order to the reader while there is room.
    fn advance(&mut self) {
        while self.room() > 0
            && let Some(stored) = self.ahead.pop_front_if(|stored| stored.sn == self.next)
        {
            self.ready.push_back(stored);
            self.next = self.next.plus(1);
        }
    }

    /// The number of segments of the first message if the message is complete.
    fn message(&self) -> Option<usize> {
        let first = self.ready.front()?;
        if self.ready.len() <= usize::from(first.fragments) {
            return None;
        }
        let last = self.ready.iter().position(|stored| stored.fragments == 0);
        Some(last.map_or(self.ready.len(), |last| last + 1))
    }

    /// The length of the first message in bytes if the message is complete.
    pub(super) fn peek(&self) -> Option<usize> {
        let count = self.message()?;
        Some(self.ready.iter().take(count).map(|stored| stored.payload.len()).sum())
    }

    /// Moves the first message into `to`. Returns its length, and whether the peer has to be
    /// informed that the window is open again.
    pub(super) fn pop(&mut self, to: &mut [u8]) -> Result<(usize, bool), ReceiveError> {
        let count = self.message().ok_or(ReceiveError::Empty)?;
        let length = self.peek().ok_or(ReceiveError::Empty)?;
        let mut rest = to.get_mut(..length).ok_or(ReceiveError::Short)?;
        let was_closed = self.room() == 0;
        for stored in self.ready.drain(..count) {
            let (now, later) = rest.split_at_mut(stored.payload.len());
            now.copy_from_slice(&stored.payload);
            rest = later;
        }
        self.advance();
        Ok((length, was_closed && self.room() > 0))
    }

    /// The acknowledgements that are sent now. Segments before `una` need no acknowledgement, but
    /// the last acknowledgement is always sent.
    pub(super) fn take_owed(&mut self) -> impl Iterator<Item = Owed> {
        let (next, last) = (self.next, self.owed.len().saturating_sub(1));
        let owed = std::mem::take(&mut self.owed).into_iter().enumerate();
        owed.filter(move |(at, owed)| *at == last || !owed.sn.is_before(next)).map(|(_, owed)| owed)
    }
}

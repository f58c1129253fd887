//! Writes frames to the lanes of their streams.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use proto::{Link, Outgoing, Priority, StreamKey};
use transport::{Lanes, SendLane};

/// The limit of queued bytes that lanes did not take. Above it no payload is requested from the
/// machine, so that few bytes are committed to a lane and can no longer be overtaken.
const WAITING_MAX: usize = 256 << 10;

/// A stream that sent this number of bytes on the first lane waits until the bytes have arrived,
/// and then changes to its own lane. A stream that sent less changes once it has nothing in flight.
const HELD_BACK_AFTER: u64 = 64 << 10;

/// The interval between checks of all lanes; [`PER_TURN`] is the number of lanes per turn. Longer
/// turns would delay other streams at both ends.
const ROUND: Duration = Duration::from_secs(10);
const PER_TURN: usize = 1 << 10;

/// The number of lanes from which rounds are short. Otherwise each visitor that sends little and
/// then nothing would keep a lane for half a minute, and the memory of a peak is seldom returned to
/// the system. A visitor that sends every few hundred milliseconds keeps its lane.
const MANY: usize = 512;
const ROUND_OF_MANY: Duration = Duration::from_millis(250);

/// The lanes to which this end writes.
#[derive(Default)]
pub(super) struct Outlanes {
    /// Lanes by the index of the stream's key. The id in the key distinguishes a stream from a
    /// later stream at the same index.
    slots: Vec<Option<Box<Slot>>>,
    /// The number of lanes that the last round kept, and of lanes opened since then.
    lanes: usize,
    /// Payload of the batch that is being collected, in order.
    batch: VecDeque<(StreamKey, Bytes, Last)>,
    /// Frames of one stream that are being written.
    run: VecDeque<Bytes>,
    /// Streams whose lane did not take all bytes.
    blocked: VecDeque<StreamKey>,
    waiting: usize,
    rest: Rest,
}

/// The round of checks for silent lanes.
#[derive(Default)]
struct Rest {
    /// The slots before this index were checked. 0 between rounds.
    next: usize,
    /// The number of lanes that this round has kept so far.
    left: usize,
    ended: Option<Instant>,
}

/// Whether a frame is the last of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    No,
    Fin,
}

struct Slot {
    key: StreamKey,
    /// Whether bytes were sent since the last round of [`Rest`].
    is_used: bool,
    route: Route,
}

enum Route {
    /// No lane was available, so the stream uses the first lane, on which it has `sent` this number
    /// of bytes.
    First {
        sent: u64,
        /// A lane is available now.
        lane: Option<Box<dyn SendLane>>,
    },
    /// The peer no longer reads the lane: it has sent STOP or is about to send it.
    Nowhere,
    Own {
        lane: Box<dyn SendLane>,
        /// The bytes that the lane did not take.
        waiting: VecDeque<Bytes>,
        finishes: bool,
    },
}

impl fmt::Debug for Outlanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlanes").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl Outlanes {
    /// Whether a lane did not take everything.
    pub(super) fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Offers waiting bytes to their lanes again.
    pub(super) fn retry(&mut self, cx: &mut Context<'_>) -> io::Result<usize> {
        let mut written = 0;
        for _ in 0..self.blocked.len() {
            let Some(key) = self.blocked.pop_front() else { break };
            written += self.offer(cx, key)?;
        }
        Ok(written)
    }

    /// Passes the batch to the lanes, the frames of each stream together.
    pub(super) fn write_batch(&mut self, cx: &mut Context<'_>) -> io::Result<usize> {
        let mut written = 0;
        while let Some((key, frame, last)) = self.batch.pop_front() {
            let mut ends = last == Last::Fin;
            self.run.push_back(frame);
            while let Some((_, frame, last)) = self.batch.pop_front_if(|(next, ..)| *next == key) {
                ends |= last == Last::Fin;
                self.run.push_back(frame);
            }
            let run = &mut self.run;
            match self.slots.get_mut(key.index()) {
                Some(Some(slot)) if slot.key == key => {
                    let Route::Own { waiting, finishes, .. } = &mut slot.route else {
                        run.clear();
                        continue;
                    };
                    self.waiting += run.iter().map(Bytes::len).sum::<usize>();
                    *finishes |= ends;
                    if waiting.is_empty() {
                        std::mem::swap(waiting, run);
                        written += self.offer(cx, key)?;
                    } else {
                        waiting.append(run);
                    }
                }
                Some(_) | None => run.clear(),
            }
        }
        Ok(written)
    }

    /// Writes the waiting bytes of a lane until the lane takes no more.
    fn offer(&mut self, cx: &mut Context<'_>, key: StreamKey) -> io::Result<usize> {
        let Some(slot) = self.slots.get_mut(key.index()) else { return Ok(0) };
        let Some(own) = slot.as_deref_mut().filter(|slot| slot.key == key) else { return Ok(0) };
        let Route::Own { lane, waiting, finishes } = &mut own.route else { return Ok(0) };
        let mut written = 0;
        while !waiting.is_empty() {
            match lane.poll_write(cx, waiting) {
                Poll::Ready(Ok(n)) => written += n,
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    self.waiting -= written;
                    return Ok(written + self.desert(key));
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    self.waiting -= written;
                    self.blocked.push_back(key);
                    return Ok(written);
                }
            }
        }
        // The next stream reuses the memory of the queue.
        if self.run.capacity() < waiting.capacity() {
            std::mem::swap(&mut self.run, waiting);
        }
        *waiting = VecDeque::new();
        if *finishes {
            lane.finish();
            *slot = None;
        }
        self.waiting -= written;
        Ok(written)
    }

    /// Abandons a lane that the peer no longer reads. Returns the number of discarded bytes.
    fn desert(&mut self, key: StreamKey) -> usize {
        let Some(Some(slot)) = self.slots.get_mut(key.index()) else { return 0 };
        let route = std::mem::replace(&mut slot.route, Route::Nowhere);
        let Route::Own { waiting, .. } = route else { return 0 };
        let lost = waiting.iter().map(Bytes::len).sum();
        self.waiting -= lost;
        lost
    }

    /// Removes a stream. Its lane is aborted if the lane has not ended.
    fn remove(&mut self, key: StreamKey) {
        self.blocked.retain(|blocked| *blocked != key);
        self.batch.retain(|(queued, ..)| *queued != key);
        let Some(slot) = self.slots.get_mut(key.index()) else { return };
        if let Some(Route::Own { waiting, .. }) =
            slot.take_if(|slot| slot.key == key).map(|slot| slot.route)
        {
            self.waiting -= waiting.iter().map(Bytes::len).sum::<usize>();
        }
    }

    /// Ends the lanes of streams that were silent for a round and have nothing in flight: a lane
    /// takes twice as much memory at each end as an idle stream. A stream that sends again gets
    /// another lane, and no byte can overtake another byte. Returns true if the round is not
    /// complete.
    pub(super) fn rest(&mut self, machine: &mut Link, now: Instant) -> bool {
        // A queued end of a stream needs its lane.
        if !self.batch.is_empty() {
            return false;
        }
        let Rest { next, left, ended } = &mut self.rest;
        let round = if self.lanes < MANY { ROUND } else { ROUND_OF_MANY };
        if *next == 0 && ended.is_some_and(|ended| now < ended + round) {
            return false;
        }
        let end = self.slots.len().min(*next + PER_TURN);
        for slot in self.slots.get_mut(*next..end).into_iter().flatten() {
            let Some(own) = slot.as_deref_mut() else { continue };
            let Route::Own { lane, waiting, finishes } = &mut own.route else { continue };
            let was_used = std::mem::take(&mut own.is_used);
            let is_silent = !was_used && waiting.is_empty() && !*finishes;
            if is_silent && machine.under_way(own.key) == 0 {
                lane.finish();
                *slot = None;
            } else {
                *left += 1;
            }
        }
        *next = end;
        if end == self.slots.len() {
            self.lanes = *left;
            self.rest = Rest { next: 0, left: 0, ended: Some(now) };
        }
        self.rest.next > 0
    }

    fn slot(&mut self, key: StreamKey) -> &mut Option<Box<Slot>> {
        if self.slots.len() <= key.index() {
            self.slots.resize_with(key.index() + 1, || None);
        }
        &mut self.slots[key.index()]
    }
}

/// A batch of frames, sorted by lane.
pub(super) struct Batch<'a> {
    first: &'a mut VecDeque<Bytes>,
    lanes: Further<'a>,
    outgoing: &'a mut Outlanes,
}

/// Opens lanes, as long as they are available.
pub(super) struct Further<'a> {
    lanes: &'a mut dyn Lanes,
    /// Whether no lane is available. The transport is queried once per batch.
    has_none: bool,
}

impl<'a> Further<'a> {
    pub(super) fn new(lanes: &'a mut dyn Lanes) -> Self {
        Self { lanes, has_none: false }
    }

    fn open(&mut self, priority: Priority) -> Option<Box<dyn SendLane>> {
        if self.has_none {
            return None;
        }
        // The first lane reports an error of the carrier.
        let lane = self.lanes.open(priority).ok().flatten();
        self.has_none = lane.is_none();
        lane
    }
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        first: &'a mut VecDeque<Bytes>,
        lanes: Further<'a>,
        outgoing: &'a mut Outlanes,
    ) -> Self {
        Self { first, lanes, outgoing }
    }

    /// Whether the stream has its own lane. A new stream gets a lane of the class `opens`.
    fn has_lane(&mut self, key: StreamKey, opens: Option<Priority>) -> bool {
        let slots = &mut *self.outgoing;
        let slot = slots.slot(key);
        if slot.as_ref().is_none_or(|slot| slot.key != key) {
            let Some(priority) = opens else { return false };
            let route = match self.lanes.open(priority) {
                Some(lane) => Route::Own { lane, waiting: VecDeque::new(), finishes: false },
                None => Route::First { sent: 0, lane: None },
            };
            *slot = Some(Box::new(Slot { key, is_used: true, route }));
            slots.lanes += 1;
        }
        let Some(Some(slot)) = slots.slots.get_mut(key.index()) else { return false };
        slot.is_used = true;
        !matches!(slot.route, Route::First { .. })
    }
}

impl Outgoing for Batch<'_> {
    const LANES: bool = true;

    fn push(&mut self, frame: Bytes) {
        self.first.push_back(frame);
    }

    fn push_payload(&mut self, key: StreamKey, priority: Priority, frame: Bytes) {
        if self.has_lane(key, Some(priority)) {
            self.outgoing.batch.push_back((key, frame, Last::No));
        } else {
            if let Some(slot) = self.outgoing.slot(key)
                && let Route::First { sent, .. } = &mut slot.route
            {
                *sent += frame.len() as u64;
            }
            self.first.push_back(frame);
        }
    }

    fn push_fin(&mut self, key: StreamKey, frame: Bytes) {
        // The end of a stream that sent no byte needs no lane.
        if self.has_lane(key, None) {
            self.outgoing.batch.push_back((key, frame, Last::Fin));
        } else {
            self.first.push_back(frame);
            self.outgoing.remove(key);
        }
    }

    fn abort(&mut self, key: StreamKey) {
        self.outgoing.remove(key);
    }

    fn holds_back(&mut self, key: StreamKey, priority: Priority, under_way: u64) -> bool {
        let slot = self.outgoing.slot(key).as_deref_mut();
        let Some(Slot { route, .. }) = slot.filter(|slot| slot.key == key) else { return false };
        let Route::First { sent, lane } = route else { return false };
        if lane.is_none() {
            *lane = self.lanes.open(priority);
        }
        match lane.take_if(|_| under_way == 0) {
            Some(lane) => {
                *route = Route::Own { lane, waiting: VecDeque::new(), finishes: false };
                false
            }
            None => lane.is_some() && *sent >= HELD_BACK_AFTER,
        }
    }

    fn takes_payload(&self) -> bool {
        self.outgoing.waiting < WAITING_MAX
    }
}

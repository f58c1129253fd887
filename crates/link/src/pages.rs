//! Payload as pages: when a stream sends pages, when a carrier is read as pages, and the pages kept
//! for retransmission. Only the pump of a stream knows whether the stream is bulk and then requests
//! pages; everything else is decided here.
//!
//! ```text
//!   pump --Inlet::pages--> Slot: kept pages, and once more to be sent --> lane     (writer)
//!   lane --exactly a header, then pages--> Outlet::deliver_pages                   (reader)
//! ```
//!
//! The state machine holds a reference to the slot of each frame until the peer has consumed the
//! frame. The kept pages of a slot share their memory with the pages that are sent. A retransmitted
//! frame shares it once more; a carrier without pages gets a copy.
//!
//! | decision | rule |
//! |---|---|
//! | [`may_send`]: a stream sends pages | no other stream or flow of the link has moved a payload below [`SMALL_PAYLOAD`] bytes for [`QUIET`]: in parallel with small payloads, a bulk stream sends bytes. A third of the pipes of the thread is free. Parallel bulk streams all send pages |
//! | [`Mixed`]: a reader begins to take pages | a payload with [`LARGE_PAYLOAD`] outstanding bytes, or [`READS_TO_ENTER`] consecutive large reads of large payloads |
//! | [`Bulk`]: a reader takes pages | for each payload with at least [`MIN_PAGES`] outstanding bytes. Its other reads end with the header of the next payload: a longer read would take that payload as bytes. Each of these reads costs a call, for which [`MIN_PAGES`] bytes of pages compensate. After [`READS_TO_LEAVE`] uncompensated reads the reader takes bytes again |
//!
//! Tests override these rules by [`pages::rule`]: every payload moves as pages, or none.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use net::pages::{self, Rule};
use proto::StreamKey;

/// The maximum number of frames of pages that a link keeps: 16 MiB of windows, or 16 streams of
/// four frames.
const SLOTS: usize = 64;

/// The size in bytes below which a payload belongs to a stream or flow that is not bulk, or not
/// yet.
pub(crate) const SMALL_PAYLOAD: usize = 16 << 10;

/// The time after the last small payload of another stream during which a bulk stream sends bytes.
const QUIET: Duration = Duration::from_millis(200);

/// The payload bytes of the largest frame. A larger frame has no advantage, because a pipe must
/// hold it.
const MAX_PAGES: usize = 256 << 10;

/// The minimum frame limit in bytes at which pages are worth their system calls.
const MIN_FRAME_LIMIT: usize = 64 << 10;

/// A read of fewer bytes gives no information about the payloads of the peer.
const MIN_READ: usize = 16 << 10;

/// The size in bytes from which a read is large, if its payloads are.
const LARGE_READ: usize = 60 << 10;

/// The minimum mean size of payloads, or of their parts, in a large read. A payload with more bytes
/// outstanding is read as pages at once.
const LARGE_PAYLOAD: usize = 32 << 10;

/// The number of consecutive large reads until pages are read.
const READS_TO_ENTER: u8 = 4;

/// The minimum payload in bytes that is worth the system calls for pages.
const MIN_PAGES: usize = 16 << 10;

/// The number of reads between pages not compensated by pages, after which bytes are read again.
const READS_TO_LEAVE: u8 = 16;

/// Whether the bulk stream `key` may send pages now. `frame_limit` is called last and returns the
/// payload bytes of its largest frame; `None`: the carrier takes no pages.
pub(crate) fn may_send(
    key: StreamKey,
    recent: &RecentSmall,
    retained: &RetainedPages,
    frame_limit: impl FnOnce() -> Option<usize>,
) -> bool {
    let rule = pages::rule();
    let is_forced = rule == Rule::Always;
    let is_wanted = is_forced || (recent.leaves_alone(key) && pages::may_keep());
    if rule == Rule::Never || !is_wanted {
        return false;
    }
    if retained.is_full() && !retained.is_mostly_of(key) {
        // The streams that hold most slots may have stalled, so that no CREDIT arrives that frees a
        // slot.
        return false;
    }
    frame_limit().is_some_and(|limit| is_forced || limit >= MIN_FRAME_LIMIT)
}

/// Returns the size of the next payload of pages, of at most `room` bytes. `None`: the next CREDIT
/// makes room for a larger payload.
pub(crate) fn payload_size(room: usize, is_under_way: impl FnOnce() -> bool) -> Option<usize> {
    let is_rest_of_window = room < MIN_PAGES && pages::rule() != Rule::Always && is_under_way();
    (!is_rest_of_window).then_some(room.min(MAX_PAGES))
}

/// How a reader takes the payloads of its lane.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reading {
    Mixed(Mixed),
    Bulk(Bulk),
}

impl Reading {
    /// Makes the state of a reader without information about its next payloads. `gives_pages`: its
    /// lane returns pages.
    pub(crate) fn new(gives_pages: bool) -> Self {
        match pages::rule() {
            Rule::Always if gives_pages => Self::Bulk(Bulk::default()),
            Rule::Always | Rule::Bulk => Self::Mixed(Mixed { gives_pages, large_reads: 0 }),
            Rule::Never => Self::Mixed(Mixed { gives_pages: false, large_reads: 0 }),
        }
    }
}

/// All payloads are read as bytes: they belong to streams of any kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixed {
    /// Whether the lane returns pages.
    gives_pages: bool,
    /// The number of consecutive large reads.
    large_reads: u8,
}

impl Mixed {
    /// Records a read of `read` bytes with `payloads` payloads, or parts of payloads; `left` bytes
    /// of the last payload are outstanding. Returns whether pages are read from now on.
    pub(crate) fn shows_bulk(
        &mut self,
        read: usize,
        payloads: usize,
        left: impl FnOnce() -> usize,
    ) -> bool {
        if !self.gives_pages || read < MIN_READ {
            return false;
        }
        if left() >= LARGE_PAYLOAD {
            // A frame of this length belongs to a bulk stream.
            return true;
        }
        let is_large = read >= LARGE_READ && read >= payloads * LARGE_PAYLOAD;
        self.large_reads = if is_large { self.large_reads + 1 } else { 0 };
        self.large_reads >= READS_TO_ENTER
    }
}

/// Large payloads are read as pages, and the frames between them as bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bulk {
    /// The number of reads between pages not compensated by pages.
    unpaid: u8,
}

impl Bulk {
    /// The minimum remainder of a payload that is read as pages.
    pub(crate) fn min_pages() -> usize {
        if pages::rule() == Rule::Always { 1 } else { MIN_PAGES }
    }

    /// Records a read between pages that ended with the header of a payload of `left` bytes, or of
    /// none. Returns whether pages still compensate for such reads.
    pub(crate) fn pays(&mut self, left: usize) -> bool {
        self.unpaid = match u8::try_from(left / MIN_PAGES).unwrap_or(READS_TO_LEAVE) {
            0 => self.unpaid.saturating_add(1),
            paid => self.unpaid.saturating_sub(paid),
        };
        self.unpaid <= READS_TO_LEAVE
    }
}

/// The content of a slot.
#[derive(Debug)]
enum Kept {
    /// The slot is free.
    Nothing,
    Pages(pages::Pages),
    /// A copy, for a carrier without pages.
    Bytes(Bytes),
}

/// The payload of one frame.
#[derive(Debug)]
struct Slot {
    /// The index of the slot.
    number: usize,
    kept: RefCell<Kept>,
    /// The stream whose payload is kept, or was kept last.
    of: Cell<StreamKey>,
}

impl Slot {
    fn to_send(&self, len: usize) -> Option<pages::Pages> {
        let kept = &mut *self.kept.borrow_mut();
        let Kept::Pages(pages) = kept else { return None };
        if !pages.keep_last(len) {
            return None;
        }
        pages.again()
    }

    fn is_free(&self) -> bool {
        matches!(*self.kept.borrow(), Kept::Nothing)
    }
}

impl proto::Pages for Slot {
    fn copy(&self, len: usize) -> Bytes {
        let kept = &mut *self.kept.borrow_mut();
        if let Kept::Pages(_) = kept
            && let Kept::Pages(pages) = std::mem::replace(kept, Kept::Nothing)
        {
            let mut bytes = BytesMut::with_capacity(pages.len());
            if pages.copy_out(&mut bytes).is_ok() {
                *kept = Kept::Bytes(bytes.freeze());
            }
        }
        let Kept::Bytes(bytes) = kept else { return Bytes::new() };
        bytes.advance(bytes.len().saturating_sub(len));
        bytes.clone()
    }

    fn number(&self) -> usize {
        self.number
    }
}

/// The pages that a link keeps until the peer has consumed them.
#[derive(Debug, Default)]
pub(crate) struct RetainedPages {
    slots: RefCell<Vec<Rc<Slot>>>,
    /// The number of slots with a payload.
    used: Cell<usize>,
}

impl RetainedPages {
    /// Whether all slots have a payload.
    pub(crate) fn is_full(&self) -> bool {
        if self.used.get() >= SLOTS {
            self.sweep();
        }
        self.used.get() >= SLOTS
    }

    /// Whether a stream has most of the payloads.
    fn is_mostly_of(&self, key: StreamKey) -> bool {
        let slots = self.slots.borrow();
        let own = slots.iter().filter(|slot| slot.of.get() == key && !slot.is_free()).count();
        own * 2 > self.used.get()
    }

    /// Keeps pages of a stream, to which the state machine then refers. `None`: all slots have a
    /// payload.
    pub(crate) fn keep(&self, key: StreamKey, pages: pages::Pages) -> Option<Rc<dyn proto::Pages>> {
        let kept = Kept::Pages(pages.for_replay());
        let mut slots = self.slots.borrow_mut();
        let free = slots.iter().find(|slot| slot.is_free()).cloned();
        let slot = match free {
            Some(slot) => slot,
            None if slots.len() >= SLOTS => return None,
            None => {
                let (number, of) = (slots.len(), Cell::new(key));
                slots.push(Rc::new(Slot { number, kept: RefCell::new(Kept::Nothing), of }));
                Rc::clone(slots.last()?)
            }
        };
        self.used.set(self.used.get() + 1);
        slot.of.set(key);
        *slot.kept.borrow_mut() = kept;
        Some(slot)
    }

    /// Returns the last `len` bytes of a kept payload, to be sent. `None`: they must be copied.
    pub(crate) fn to_send(&self, number: usize, len: usize) -> Option<pages::Pages> {
        self.slots.borrow().get(number)?.to_send(len)
    }

    /// Frees the slots to which the state machine no longer refers.
    pub(crate) fn sweep(&self) {
        if self.used.get() == 0 {
            return;
        }
        let mut used = 0;
        for slot in &*self.slots.borrow() {
            if Rc::strong_count(slot) == 1 {
                *slot.kept.borrow_mut() = Kept::Nothing;
            } else if !slot.is_free() {
                used += 1;
            }
        }
        self.used.set(used);
    }
}

/// The last small payloads of the two streams that moved small payloads last. So for each stream it
/// is known when another stream last moved a small payload.
#[derive(Debug, Default)]
pub(crate) struct RecentSmall {
    last: Cell<Option<Small>>,
    before: Cell<Option<Small>>,
    /// The time of the last turn of a reader or writer, because a command does not read the clock.
    clock: Cell<Option<Instant>>,
}

/// A small payload.
#[derive(Clone, Copy, Debug)]
struct Small {
    /// `None`: a flow.
    key: Option<StreamKey>,
    at: Instant,
}

impl RecentSmall {
    /// Records the time at the beginning of a turn.
    pub(crate) fn begin_turn(&self, now: Instant) {
        self.clock.set(Some(now));
    }

    /// Records a payload of `bytes` bytes that has arrived or is sent. `key`: `None` for a
    /// datagram.
    pub(crate) fn moved(&self, key: Option<StreamKey>, bytes: usize) {
        if bytes < SMALL_PAYLOAD
            && let Some(at) = self.clock.get()
        {
            if self.last.get().is_some_and(|small| small.key != key) {
                self.before.set(self.last.get());
            }
            self.last.set(Some(Small { key, at }));
        }
    }

    /// Whether no other stream has moved a small payload for [`QUIET`].
    fn leaves_alone(&self, key: StreamKey) -> bool {
        let is_other = |small: &Small| small.key != Some(key);
        let last = self.last.get().filter(is_other).or_else(|| self.before.get().filter(is_other));
        let is_over =
            |at| self.clock.get().is_some_and(|now| now.saturating_duration_since(at) >= QUIET);
        last.is_none_or(|small| is_over(small.at))
    }
}

#[cfg(test)]
mod tests {
    use proto::{LinkConfig, Open, Priority, Side, Target, Unlimited};

    use super::*;

    #[test]
    fn pages_pay_for_the_reads_between_them_and_unpaid_reads_lead_back_to_bytes() {
        if pages::rule() != Rule::Bulk {
            return;
        }
        let mut bulk = Bulk::default();
        for _ in 0..100 {
            // A CREDIT, a small payload, and a payload that compensates for both.
            assert!([0, MIN_PAGES - 1, 2 * MIN_PAGES].into_iter().all(|left| bulk.pays(left)));
        }
        let stays = (0..READS_TO_LEAVE).all(|_| bulk.pays(0));
        assert!(stays, "the next payload may pay");
        assert!(bulk.pays(16 << 20));
        assert!((0..READS_TO_LEAVE).all(|_| bulk.pays(MIN_PAGES - 1)));
        assert!(!bulk.pays(MIN_PAGES - 1));
    }

    #[test]
    fn a_large_payload_or_large_reads_in_a_row_lead_to_pages() {
        if pages::rule() != Rule::Bulk {
            return;
        }
        let Reading::Mixed(mut mixed) = Reading::new(true) else { panic!("no pages at first") };
        assert!(!mixed.shows_bulk(MIN_READ - 1, 1, || 0) && mixed.large_reads == 0);
        let mut large = |payloads| mixed.shows_bulk(LARGE_READ, payloads, || LARGE_PAYLOAD - 1);
        assert!((1..READS_TO_ENTER).all(|_| !large(1)));
        assert!(!large(2), "its payloads are small");
        assert!((1..READS_TO_ENTER).all(|_| !large(1)), "the reads were not in a row");
        assert!(large(1));
        let Reading::Mixed(mut mixed) = Reading::new(true) else { panic!("no pages at first") };
        assert!(mixed.shows_bulk(MIN_READ, 1, || LARGE_PAYLOAD));
        let Reading::Mixed(mut mixed) = Reading::new(false) else { panic!("a lane of bytes") };
        assert!(!mixed.shows_bulk(LARGE_READ, 1, || LARGE_PAYLOAD), "a lane of bytes");
    }

    #[test]
    fn a_bulk_stream_is_alone_when_no_other_has_moved_a_small_payload_for_a_while() {
        let start = crate::now();
        let at = |share: u32| start + QUIET * share / 4;
        let mut machine =
            proto::Link::new(Side::Client, LinkConfig::default(), Rc::new(Unlimited), start);
        let open = Open {
            target: Target::Service("a".to_owned()),
            visitor: None,
            priority: Priority::Normal,
            fields: None,
        };
        let [bulk, echo] = [(); 2].map(|()| machine.open(&open).unwrap());
        let recent = RecentSmall::default();
        assert!(recent.leaves_alone(bulk), "nothing has moved yet");
        recent.begin_turn(at(0));
        recent.moved(Some(bulk), 1);
        assert!(recent.leaves_alone(bulk), "its own payload");
        recent.moved(Some(echo), SMALL_PAYLOAD);
        assert!(recent.leaves_alone(bulk), "not a small payload");
        recent.moved(Some(echo), SMALL_PAYLOAD - 1);
        assert!(!recent.leaves_alone(bulk));
        assert!(!recent.leaves_alone(echo), "that of the other stream");
        recent.begin_turn(at(2));
        recent.moved(Some(bulk), 1);
        recent.begin_turn(at(3));
        assert!(!recent.leaves_alone(bulk), "its own payload hides no other");
        recent.begin_turn(at(4));
        assert!(recent.leaves_alone(bulk));
        recent.moved(None, 100);
        assert!(!recent.leaves_alone(bulk), "a datagram");
    }
}

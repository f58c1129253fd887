//! Payload as pages: the rules by which a stream enters and leaves, and the pages that are kept for
//! replay. A variable of tests turns the rules off, or lets every payload be pages
//! ([`pages::rule`]).
//!
//! ```text
//!   pump --Inlet::pages--> Slot: kept pages, and once more to be sent --> lane     (writer)
//!   lane --exactly a head, then pages--> Outlet::deliver_pages                     (reader)
//! ```
//!
//! The state machine holds a reference to the slot of each frame until the peer has consumed the
//! frame. The kept pages of a slot share their memory with the pages that are sent. A frame that is
//! sent again shares it once more; a carrier that takes bytes gets a copy.
//!
//! | who | rule |
//! |---|---|
//! | a stream that sends | its pump has proved that it is bulk, and no other stream or flow of the link has moved a payload below [`LITTLE`] bytes for [`QUIET`]: beside bytes, a bulk stream sends bytes. A third of the pipes of the thread is free. Bulk streams beside each other all send pages |
//! | a carrier that is read | a payload of which [`LARGE`] bytes are to come, or [`ENTER`] large reads in a row, of large payloads. Then the reader takes pages for each payload of which at least [`WORTH`] bytes are to come. Its other reads end with the head of the next payload: a longer read would take that payload as bytes. Each of these reads costs a call, which [`WORTH`] bytes of pages pay. With [`LEAVE`] unpaid calls the reader takes bytes again |

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use net::pages::{self, Rule};
use proto::StreamKey;

use crate::inner::Inner;

/// Frames of pages that a link keeps at most: 16 MiB of windows, or 16 streams of four frames.
const SLOTS: usize = 64;

/// A payload of fewer bytes is that of a stream or flow that is not bulk, or not yet.
pub(crate) const LITTLE: usize = 16 << 10;

/// After the last of these payloads, so long no bulk stream sends pages.
const QUIET: Duration = Duration::from_millis(200);

/// Payload bytes of the largest frame. More gain nothing: a pipe has to hold them.
const FRAME: usize = 256 << 10;

/// The least room that is worth the calls for pages.
const ROOM: usize = 64 << 10;

/// A read of that many bytes is large, if its payloads are.
const READ: usize = 60 << 10;

/// The mean size of payloads, or of their parts, in a large read. A payload of which more is to
/// come is read as pages at once.
const LARGE: usize = 32 << 10;

/// Large reads in a row until pages are read.
const ENTER: u8 = 4;

/// A payload that is worth the calls for pages.
pub(crate) const WORTH: usize = 16 << 10;

/// Calls for a part of a frame that no pages have paid, until bytes are read again.
const LEAVE: u8 = 16;

/// What a slot keeps.
#[derive(Debug)]
enum Kept {
    /// Nobody refers to the slot.
    Nothing,
    Pages(pages::Pages),
    /// Copied for a carrier that takes bytes.
    Bytes(Bytes),
}

/// The payload of one frame.
#[derive(Debug)]
pub(crate) struct Slot {
    kept: RefCell<Kept>,
    /// The stream whose payload is kept, or was kept last.
    of: Cell<StreamKey>,
}

impl Slot {
    /// The last `len` bytes, to be sent. `None`: they have to be copied.
    pub(crate) fn to_send(&self, len: usize) -> Option<pages::Pages> {
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

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The pages that a link keeps.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    slots: RefCell<Vec<Rc<Slot>>>,
    /// Slots with a payload.
    used: Cell<usize>,
}

impl Shelf {
    /// Whether all slots have a payload.
    fn is_full(&self) -> bool {
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

    /// Keeps the pages of a stream. `None`: as many are kept as may be.
    fn put(&self, key: StreamKey, kept: Kept) -> Option<Rc<Slot>> {
        let mut slots = self.slots.borrow_mut();
        let free = slots.iter().find(|slot| slot.is_free()).cloned();
        let slot = match free {
            Some(slot) => slot,
            None if slots.len() >= SLOTS => return None,
            None => {
                slots.push(Rc::new(Slot { kept: RefCell::new(Kept::Nothing), of: Cell::new(key) }));
                Rc::clone(slots.last()?)
            }
        };
        self.used.set(self.used.get() + 1);
        slot.of.set(key);
        *slot.kept.borrow_mut() = kept;
        Some(slot)
    }

    /// Frees what the state machine does not refer to any more.
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

/// The last two streams that moved little payloads. So it is known of each stream when another one
/// did last.
#[derive(Debug, Default)]
pub(crate) struct Company {
    last: Cell<Option<Seen>>,
    before: Cell<Option<Seen>>,
    /// The time of the last turn of a reader or writer: a command has no time of its own.
    clock: Cell<Option<Instant>>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// `None`: a flow.
    key: Option<StreamKey>,
    at: Instant,
}

impl Company {
    /// A turn begins.
    pub(crate) fn turns(&self, now: Instant) {
        self.clock.set(Some(now));
    }

    /// A payload of `bytes` bytes has arrived or is sent. `key`: `None` for a datagram.
    pub(crate) fn moved(&self, key: Option<StreamKey>, bytes: usize) {
        if bytes < LITTLE
            && let Some(at) = self.clock.get()
        {
            if self.last.get().is_some_and(|seen| seen.key != key) {
                self.before.set(self.last.get());
            }
            self.last.set(Some(Seen { key, at }));
        }
    }

    /// Whether no other stream has moved a little payload for [`QUIET`].
    fn leaves_alone(&self, key: StreamKey) -> bool {
        let is_other = |seen: &Seen| seen.key != Some(key);
        let last = self.last.get().filter(is_other).or_else(|| self.before.get().filter(is_other));
        let is_over =
            |at| self.clock.get().is_some_and(|now| now.saturating_duration_since(at) >= QUIET);
        last.is_none_or(|seen| is_over(seen.at))
    }
}

impl Inner {
    /// Whether a stream may send pages now.
    pub(crate) fn takes_pages(&self, key: StreamKey) -> bool {
        let rule = pages::rule();
        if rule == Rule::Never {
            return false;
        }
        let is_forced = rule == Rule::Always;
        if !is_forced && (!self.company.leaves_alone(key) || !pages::may_keep()) {
            return false;
        }
        let machine = self.machine.borrow();
        let (active, limit) = (machine.active_carrier(), machine.frame_limit(key));
        if self.shelf.is_full() && !self.shelf.is_mostly_of(key) {
            // The streams that keep most slots may have stalled: no CREDIT may come that frees a
            // slot.
            return false;
        }
        let carriers = self.carriers.borrow();
        let has_way =
            carriers.iter().any(|carrier| Some(carrier.number) == active && carrier.takes_pages);
        has_way && (is_forced || limit >= ROOM)
    }

    /// Bytes of the next payload of pages.
    pub(crate) fn page_room(&self, key: StreamKey) -> usize {
        let mut machine = self.machine.borrow_mut();
        if self.shelf.is_full() {
            // The next CREDIT makes room in the slots, and tells the stream of room.
            machine.await_room(key);
            return 0;
        }
        let room = machine.room(key);
        if room < WORTH && pages::rule() != Rule::Always && machine.outstanding(key) > 0 {
            // The rest of a window: with the next CREDIT it is a part of a larger frame.
            machine.await_room(key);
            return 0;
        }
        room.min(FRAME)
    }

    /// Queues a payload of pages.
    pub(crate) fn send_pages(&self, key: StreamKey, pages: pages::Pages) {
        let len = pages.len();
        self.sent.set(self.sent.get() + len as u64);
        match self.shelf.put(key, Kept::Pages(pages.for_replay())) {
            Some(slot) => self.machine.borrow_mut().send_pages(key, slot, len),
            // `page_room` left a slot free.
            None => self.machine.borrow_mut().reset(key, proto::ResetCode::Internal),
        }
    }
}

/// When a reader takes pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Up to [`ENTER`]: large payloads in a row. Beyond: unpaid calls.
    count: u8,
}

impl Default for Reading {
    fn default() -> Self {
        Self { count: if pages::rule() == Rule::Always { ENTER } else { 0 } }
    }
}

impl Reading {
    /// Whether pages are read.
    pub(crate) const fn is_on(self) -> bool {
        self.count >= ENTER
    }

    /// A read has brought `read` bytes with `payloads` payloads, or parts of payloads. `left` bytes
    /// of the last payload are to come.
    pub(crate) fn has_read(&mut self, read: usize, payloads: usize, left: usize) {
        if self.is_on() || pages::rule() == Rule::Never {
            return;
        }
        if left >= LARGE {
            // A frame of this length is that of a bulk stream.
            self.count = ENTER;
            return;
        }
        let is_large = read >= READ && read >= payloads * LARGE;
        self.count = if is_large { self.count + 1 } else { 0 };
    }

    /// A read of the rest of a frame has brought the head of a payload of `left` bytes, or of none.
    pub(crate) fn has_read_part(&mut self, left: usize) {
        self.count = match u8::try_from(left / WORTH).unwrap_or(LEAVE) {
            0 => self.count.saturating_add(1),
            paid => self.count.saturating_sub(paid).max(ENTER),
        };
        if self.count > ENTER + LEAVE {
            self.leave();
        }
    }

    /// The stream takes no pages.
    pub(crate) fn leave(&mut self) {
        *self = Self::default();
    }

    /// The least payload that is taken as pages.
    pub(crate) fn worth() -> usize {
        if pages::rule() == Rule::Always { 1 } else { WORTH }
    }
}

#[cfg(test)]
mod tests {
    use proto::{LinkConfig, Open, Priority, Side, Target, Unlimited};

    use super::*;

    #[test]
    fn pages_pay_for_the_reads_of_parts_and_unpaid_reads_lead_back_to_bytes() {
        if pages::rule() != Rule::Bulk {
            return;
        }
        let mut reading = Reading::default();
        reading.has_read(READ, 1, LARGE);
        assert!(reading.is_on());
        for _ in 0..100 {
            // A CREDIT, a little payload, and a payload that pays for both.
            [0, WORTH - 1, 2 * WORTH].into_iter().for_each(|left| reading.has_read_part(left));
        }
        assert!(reading.is_on());
        (0..LEAVE).for_each(|_| reading.has_read_part(0));
        assert!(reading.is_on(), "the next payload may pay");
        reading.has_read_part(16 << 20);
        (0..LEAVE).for_each(|_| reading.has_read_part(WORTH - 1));
        reading.has_read_part(WORTH - 1);
        assert!(!reading.is_on());
    }

    #[test]
    fn a_bulk_stream_is_alone_when_no_other_has_moved_little_for_a_while() {
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
        let company = Company::default();
        assert!(company.leaves_alone(bulk), "nothing has moved yet");
        company.turns(at(0));
        company.moved(Some(bulk), 1);
        assert!(company.leaves_alone(bulk), "its own payload");
        company.moved(Some(echo), LITTLE);
        assert!(company.leaves_alone(bulk), "not a little one");
        company.moved(Some(echo), LITTLE - 1);
        assert!(!company.leaves_alone(bulk));
        assert!(!company.leaves_alone(echo), "that of the other one");
        company.turns(at(2));
        company.moved(Some(bulk), 1);
        company.turns(at(3));
        assert!(!company.leaves_alone(bulk), "its own payload hides no other one");
        company.turns(at(4));
        assert!(company.leaves_alone(bulk));
        company.moved(None, 100);
        assert!(!company.leaves_alone(bulk), "a datagram");
    }
}

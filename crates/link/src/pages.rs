//! Payload as pages: the rules by which a stream enters and leaves, and the pages that are kept for
//! replay. The rules are off, unless a variable of tests turns them on ([`pages::carrier_rule`]).
//!
//! ```text
//!   pump --Inlet::pages--> Slot: kept pages, and once more to be sent --> lane     (writer)
//!   lane --exactly a head, then pages--> PageOutlet::deliver_pages                 (reader)
//! ```
//!
//! The state machine holds a reference to the slot of each frame until the peer has consumed the
//! frame. The kept pages of a slot share their memory with the pages that are sent. A frame that is
//! sent again shares it once more; a carrier that takes bytes gets a copy.
//!
//! | who | rule |
//! |---|---|
//! | a stream that sends | its pump has proved that it is bulk. One stream of a link at a time, while no other stream waits for its turn: streams that share a carrier are served better by small frames of bytes |
//! | a carrier that is read | a payload of which [`LARGE`] bytes are to come, or [`ENTER`] large reads in a row, of large payloads. Then the reader takes a head at a time, and pages for each payload of at least [`WORTH`] bytes, until [`LEAVE`] heads in a row announced less |

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::{Buf as _, Bytes, BytesMut};
use net::pages::{self, Rule};
use proto::StreamKey;

use crate::inner::Inner;

/// Frames of pages that a link keeps at most: 4 MiB of windows.
const SLOTS: usize = 16;

/// Payload bytes of the largest frame. More gain nothing: a pipe has to hold them.
const FRAME: usize = 256 << 10;

/// The least room that is worth the calls for pages.
const ROOM: usize = 64 << 10;

/// A read of that many bytes is large, if its payloads are.
const READ: usize = 60 << 10;

/// The mean size of payloads, or of their parts, in a large read. A payload of which more is to come
/// is read as pages at once.
const LARGE: usize = 32 << 10;

/// Large reads in a row until pages are read.
const ENTER: u8 = 4;

/// A payload that is worth the calls for pages.
pub(crate) const WORTH: usize = 16 << 10;

/// Heads in a row that announced less, until bytes are read again.
const LEAVE: u8 = 16;

/// What a slot keeps.
#[derive(Debug)]
enum Kept {
    /// Nobody refers to the slot.
    Nothing,
    /// The payload, and once more as long as it was never sent.
    Pages(pages::Pages, Option<pages::Pages>),
    /// Copied for a carrier that takes bytes.
    Bytes(Bytes),
}

/// The payload of one frame.
#[derive(Debug)]
pub(crate) struct Slot(RefCell<Kept>);

impl Slot {
    /// The last `len` bytes, to be sent. `None`: they have to be copied.
    pub(crate) fn to_send(&self, len: usize) -> Option<pages::Pages> {
        let kept = &mut *self.0.borrow_mut();
        let Kept::Pages(pages, first) = kept else { return None };
        if let Some(first) = first.take().filter(|first| first.len() == len) {
            return Some(first);
        }
        if !pages.keep_last(len) {
            return None;
        }
        pages.again()
    }
}

impl proto::Pages for Slot {
    fn copy(&self, len: usize) -> Bytes {
        let kept = &mut *self.0.borrow_mut();
        if let Kept::Pages(..) = kept
            && let Kept::Pages(pages, first) = std::mem::replace(kept, Kept::Nothing)
        {
            drop(first);
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
    /// The stream whose payloads they are.
    of: Cell<Option<StreamKey>>,
}

impl Shelf {
    /// Whether `key` may bring pages now.
    fn admits(&self, key: StreamKey) -> bool {
        if self.of.get() != Some(key) {
            self.sweep();
            if self.used.get() > 0 {
                return false;
            }
            self.of.set(Some(key));
        }
        true
    }

    /// Keeps `pages`. `None`: as many are kept as may be.
    fn put(&self, kept: Kept) -> Option<Rc<Slot>> {
        let mut slots = self.slots.borrow_mut();
        let free = slots.iter().find(|slot| matches!(*slot.0.borrow(), Kept::Nothing)).cloned();
        let slot = match free {
            Some(slot) => slot,
            None if slots.len() >= SLOTS => return None,
            None => {
                slots.push(Rc::new(Slot(RefCell::new(Kept::Nothing))));
                Rc::clone(slots.last()?)
            }
        };
        self.used.set(self.used.get() + 1);
        *slot.0.borrow_mut() = kept;
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
                *slot.0.borrow_mut() = Kept::Nothing;
            } else if !matches!(*slot.0.borrow(), Kept::Nothing) {
                used += 1;
            }
        }
        self.used.set(used);
        if used == 0 {
            self.of.set(None);
        }
    }
}

impl Inner {
    /// Whether a stream may send pages now.
    pub(crate) fn takes_pages(&self, key: StreamKey) -> bool {
        let rule = pages::carrier_rule();
        if rule == Rule::Never || !self.shelf.admits(key) {
            return false;
        }
        let (active, limit) = {
            let machine = self.machine.borrow();
            (machine.active_carrier(), machine.frame_limit_alone(key))
        };
        let carriers = self.carriers.borrow();
        let has_way =
            carriers.iter().any(|carrier| Some(carrier.number) == active && carrier.takes_pages);
        has_way && (rule == Rule::Always || limit.is_some_and(|limit| limit >= ROOM))
    }

    /// Bytes of the next payload of pages.
    pub(crate) fn page_room(&self, key: StreamKey) -> usize {
        self.shelf.sweep();
        if self.shelf.used.get() >= SLOTS {
            // The next CREDIT makes room in the slots, and tells the stream of room.
            self.machine.borrow_mut().await_room(key);
            return 0;
        }
        let mut machine = self.machine.borrow_mut();
        let room = machine.room(key);
        if room < WORTH && pages::carrier_rule() != Rule::Always && machine.outstanding(key) > 0 {
            // The rest of a window: with the next CREDIT it is a part of a larger frame.
            machine.await_room(key);
            return 0;
        }
        room.min(FRAME)
    }

    /// Queues a payload of pages.
    pub(crate) fn send_pages(&self, key: StreamKey, pages: pages::Pages) {
        let len = pages.len();
        let again = pages.again();
        let kept = match again {
            Some(again) => Kept::Pages(pages, Some(again)),
            None => {
                let mut bytes = BytesMut::with_capacity(len);
                if pages.copy_out(&mut bytes).is_err() {
                    return self.machine.borrow_mut().reset(key, proto::ResetCode::Internal);
                }
                Kept::Bytes(bytes.freeze())
            }
        };
        self.sent.set(self.sent.get() + len as u64);
        match self.shelf.put(kept) {
            Some(slot) => self.machine.borrow_mut().send_pages(key, slot, len),
            // `page_room` left a slot free.
            None => self.machine.borrow_mut().reset(key, proto::ResetCode::Internal),
        }
    }
}

/// When a reader takes pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Up to [`ENTER`]: large payloads in a row. Beyond: heads in a row that announced little.
    count: u8,
}

impl Default for Reading {
    fn default() -> Self {
        Self { count: if pages::carrier_rule() == Rule::Always { ENTER } else { 0 } }
    }
}

impl Reading {
    /// Whether pages are read.
    pub(crate) const fn is_on(self) -> bool {
        self.count >= ENTER
    }

    /// A read has brought `read` bytes with `payloads` payloads, or parts of payloads. `left` bytes of
    /// the last payload are to come.
    pub(crate) fn has_read(&mut self, read: usize, payloads: usize, left: usize) {
        if self.is_on() || pages::carrier_rule() == Rule::Never {
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

    /// A head announced a payload of `left` bytes, or none.
    pub(crate) fn has_head(&mut self, left: usize) {
        self.count = if left >= WORTH { ENTER } else { self.count + 1 };
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
        if pages::carrier_rule() == Rule::Always { 1 } else { WORTH }
    }
}

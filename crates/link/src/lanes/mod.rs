//! Lanes of single streams, on carriers whose transport has such lanes. A lost packet stalls the
//! stream to which it belongs and no other stream.
//!
//! ```text
//!   writer --frames by stream--> outgoing/ --a lane per stream--> peer
//!   peer --> accept.rs: a small task per lane --> reader/ --> proto::Link
//! ```
//! `proto` decides which frames may be on which lane.

mod outgoing;
mod unread;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use outgoing::{Batch, Further, Outlanes};
use proto::{Budget, CarrierNumber, Link, StreamId};
use transport::{Lanes, RecvLane};
use unread::Unread;

/// The lanes of a carrier in addition to its first lane.
pub(crate) struct StreamLanes {
    lanes: RefCell<Box<dyn Lanes>>,
    outgoing: RefCell<Outlanes>,
    /// The wakers of lanes whose frames are ahead of the first lane.
    early: RefCell<BTreeMap<Early, Waker>>,
    unread: Unread,
    /// The number of open lanes of the peer.
    open: Cell<usize>,
    /// The latest window of unread bytes, from which that of the link's next carrier is derived.
    window: Rc<Cell<u64>>,
}

/// The key of a waiting lane. Lanes are woken in this order: first the lanes of this side's
/// streams, then the peer's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Early {
    pub(crate) is_peers: bool,
    pub(crate) stream: StreamId,
    /// The number of the lane, because several lanes may claim the same stream.
    pub(crate) lane: u64,
}

impl fmt::Debug for StreamLanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside").finish_non_exhaustive()
    }
}

impl StreamLanes {
    /// Makes the lanes for a greeted peer with `streams` streams: the peer may open a lane for each
    /// stream at once. `window` is the window of unread bytes of the link's last carrier.
    pub(crate) fn new(
        mut lanes: Box<dyn Lanes>,
        budget: &Rc<dyn Budget>,
        streams: usize,
        window: &Rc<Cell<u64>>,
    ) -> Self {
        let unread = Unread::new(Rc::clone(budget), window.get());
        lanes.authenticated(unread.window());
        lanes.allow(streams);
        Self {
            open: Cell::new(streams),
            lanes: RefCell::new(lanes),
            outgoing: RefCell::default(),
            early: RefCell::default(),
            unread,
            window: Rc::clone(window),
        }
    }

    /// Records that `bytes` bytes were read on any lane.
    pub(crate) fn has_read(&self, bytes: usize, machine: &Link) {
        let (bytes, now) = (bytes as u64, crate::now());
        if let Some(window) = self.unread.has_read(bytes, now, machine.round_trip()) {
            self.window.set(window);
            self.lanes.borrow_mut().limit_unread(window);
        }
    }

    /// Whether the peer holds a large credit that it has not used for a long time.
    pub(crate) fn is_hoarding(&self) -> bool {
        self.unread.is_hoarding(crate::now())
    }

    /// Ends lanes of silent streams. Returns true if more lanes must be checked in another turn.
    pub(crate) fn rest(&self, machine: &mut Link, now: Instant) -> bool {
        self.outgoing.borrow_mut().rest(machine, now)
    }

    /// Called after frames arrived on the first lane. Wakes only the lanes that need not wait any
    /// more, because a peer may have many lanes.
    pub(crate) fn go_on(&self, machine: &Link, number: CarrierNumber) {
        self.lanes.borrow_mut().allow(self.wanted(machine));
        let mut early = self.early.borrow_mut();
        while let Some(first) = early.first_entry() {
            if machine.is_early(number, first.key().stream) {
                break;
            }
            first.remove().wake();
        }
    }

    /// Sets the number of open lanes of the peer.
    pub(crate) fn set_open(&self, lanes: usize) {
        self.open.set(lanes);
    }

    /// The number of lanes that the peer is expected to use: the current number, but at most the
    /// number of streams. Silent streams use no lane, and a transport reserves memory for each lane
    /// that it allows. A transport allows twice this number, so the number can double with each
    /// round trip.
    fn wanted(&self, machine: &Link) -> usize {
        self.open.get().min(machine.stream_count())
    }

    /// Wakes the task of `cx` once this lane need not wait any more.
    pub(crate) fn wait(&self, cx: &Context<'_>, early: Early) {
        self.early.borrow_mut().insert(early, cx.waker().clone());
    }

    /// Accepts the next lane that the peer opens.
    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn RecvLane>>> {
        self.lanes.borrow_mut().poll_accept(cx)
    }

    /// Offers waiting bytes to their lanes again. Returns the number of bytes that the lanes took.
    pub(crate) fn retry(&self, cx: &mut Context<'_>) -> io::Result<usize> {
        self.outgoing.borrow_mut().retry(cx)
    }

    /// Takes the next batch from the machine: frames for the carrier's first lane into `first`,
    /// other frames for [`StreamLanes::write_batch`]. Returns the size of all frames in bytes.
    pub(crate) fn fill(
        &self,
        machine: &mut Link,
        now: Instant,
        number: CarrierNumber,
        first: &mut VecDeque<Bytes>,
    ) -> usize {
        let mut lanes = self.lanes.borrow_mut();
        let mut outgoing = self.outgoing.borrow_mut();
        let mut batch = Batch::new(first, Further::new(&mut **lanes), &mut outgoing);
        let filled = machine.poll_transmit(now, number, &mut batch);
        // The peer answers lanes that this side opens with its own lanes.
        lanes.allow(self.wanted(machine));
        filled
    }

    /// Passes the batch to the lanes. Returns the number of bytes that the lanes took.
    pub(crate) fn write_batch(&self, cx: &mut Context<'_>) -> io::Result<usize> {
        self.outgoing.borrow_mut().write_batch(cx)
    }

    /// Whether a lane did not take all of its bytes.
    pub(crate) fn is_blocked(&self) -> bool {
        self.outgoing.borrow().is_blocked()
    }
}

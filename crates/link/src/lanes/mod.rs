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

/// The lanes that a carrier has beside its first lane.
pub(crate) struct StreamLanes {
    lanes: RefCell<Box<dyn Lanes>>,
    outgoing: RefCell<Outlanes>,
    /// The wakers of lanes that are ahead of the first lane.
    early: RefCell<BTreeMap<Early, Waker>>,
    unread: Unread,
    /// The number of open lanes of the peer.
    open: Cell<usize>,
    /// The latest window of unread bytes. The next carrier of the link begins with it.
    window: Rc<Cell<u64>>,
}

/// Wakers in the order of turns: first the lanes of this side's streams, then the peer's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Early {
    pub(crate) is_peers: bool,
    pub(crate) stream: StreamId,
    /// The number of the lane, as several lanes may claim one stream.
    pub(crate) lane: u64,
}

impl fmt::Debug for StreamLanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside").finish_non_exhaustive()
    }
}

impl StreamLanes {
    /// The lanes for a greeted peer with `streams` streams: the peer may open a lane for each
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

    /// `bytes` bytes were read on any lane.
    pub(crate) fn has_read(&self, bytes: usize, machine: &Link) {
        let (bytes, now) = (bytes as u64, crate::now());
        if let Some(window) = self.unread.has_read(bytes, now, machine.round_trip()) {
            self.window.set(window);
            self.lanes.borrow_mut().limit_unread(window);
        }
    }

    /// Whether the peer holds much credit that it has not used for a long time.
    pub(crate) fn is_hoarding(&self) -> bool {
        self.unread.is_hoarding(crate::now())
    }

    /// Ends lanes of silent streams. True: more lanes are to be looked at in another turn.
    pub(crate) fn rest(&self, machine: &mut Link, now: Instant) -> bool {
        self.outgoing.borrow_mut().rest(machine, now)
    }

    /// The first lane brought frames. Wakes the lanes whose turn has come, and no other lanes: a
    /// peer may have many.
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

    /// The number of open lanes of the peer changes to `count`.
    pub(crate) fn set_open(&self, lanes: usize) {
        self.open.set(lanes);
    }

    /// The number of lanes that the peer is expected to use: as many as it uses now, and no more
    /// than there are streams. Silent streams use none, and a transport holds memory for each lane
    /// that it allows. A transport allows twice the number, so it can double with each round trip.
    fn wanted(&self, machine: &Link) -> usize {
        self.open.get().min(machine.stream_count())
    }

    /// Wakes the task of `cx` once it is the turn of that lane.
    pub(crate) fn wait(&self, cx: &Context<'_>, early: Early) {
        self.early.borrow_mut().insert(early, cx.waker().clone());
    }

    /// The next lane that the peer opens.
    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn RecvLane>>> {
        self.lanes.borrow_mut().poll_accept(cx)
    }

    /// Offers waiting bytes to their lanes again. Returns the number of bytes that the lanes took.
    pub(crate) fn retry(&self, cx: &mut Context<'_>) -> io::Result<usize> {
        self.outgoing.borrow_mut().retry(cx)
    }

    /// Takes the next batch from the machine: frames for the carrier's first lane into `first`,
    /// other frames for [`StreamLanes::write_batch`]. Returns the bytes of all frames.
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
        // The peer answers the lanes that this side opens by lanes of its own.
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

//! Lanes of single streams, on carriers whose transport has them: a lost packet stalls the stream it
//! is of, and no other.
//!
//! ```text
//!   writer --frames by stream--> outgoing/ --a lane per stream--> peer
//!   peer --> incoming.rs: a small task per lane --> reader.rs --> proto::Link
//! ```
//! What may be on which lane is the business of `proto`.

mod incoming;
mod outgoing;
mod unread;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Instant;

pub(crate) use incoming::accept;
use outgoing::Outlanes;
use proto::{Budget, CarrierNumber, Link, StreamId};
use transport::Lanes;
use unread::Unread;

/// What a carrier has beside its first lane.
pub(crate) struct Beside {
    lanes: RefCell<Box<dyn Lanes>>,
    outgoing: RefCell<Outlanes>,
    /// Of lanes that are ahead of the first one.
    early: RefCell<BTreeMap<Early, Waker>>,
    unread: Unread,
}

/// Lanes in the order in which their turns come: those of streams that are ours, then the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Early {
    is_peers: bool,
    stream: StreamId,
    /// Which of the carrier's, as several may claim one stream.
    lane: u64,
}

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside").finish_non_exhaustive()
    }
}

impl Beside {
    /// The peer has been greeted, and has `streams` open: it may have lanes for all at once.
    pub(crate) fn new(mut lanes: Box<dyn Lanes>, budget: &Rc<dyn Budget>, streams: usize) -> Self {
        lanes.welcome(unread::LEAST);
        lanes.allow(streams);
        Self {
            lanes: RefCell::new(lanes),
            outgoing: RefCell::default(),
            early: RefCell::default(),
            unread: Unread::new(Rc::clone(budget)),
        }
    }

    /// So many bytes were read, of whichever lane.
    pub(crate) fn has_read(&self, bytes: usize, machine: &Link) {
        let (bytes, now) = (bytes as u64, crate::now());
        if let Some(window) = self.unread.has_read(bytes, now, machine.round_trip()) {
            self.lanes.borrow_mut().limit_unread(window);
        }
    }

    /// Whether the peer was promised much memory that it has not used for long.
    pub(crate) fn is_hoarding(&self) -> bool {
        self.unread.is_hoarding(crate::now())
    }

    /// Ends lanes of streams that rest. True: there are more to be looked at, in another turn.
    pub(crate) fn rest(&self, machine: &mut Link, now: Instant) -> bool {
        self.outgoing.borrow_mut().rest(machine, now)
    }

    /// The first lane has brought something: those whose turn has come go on, and no others, of which a
    /// peer may have many.
    pub(crate) fn go_on(&self, machine: &Link, number: CarrierNumber) {
        self.lanes.borrow_mut().allow(machine.stream_count());
        let mut early = self.early.borrow_mut();
        while let Some(first) = early.first_entry() {
            if machine.is_early(number, first.key().stream) {
                break;
            }
            first.remove().wake();
        }
    }

    /// Wakes the task of `cx` once it is the turn of that lane.
    fn wait(&self, cx: &Context<'_>, early: Early) {
        self.early.borrow_mut().insert(early, cx.waker().clone());
    }
}

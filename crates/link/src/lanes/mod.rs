//! Lanes of single streams, on carriers whose transport has them: a lost packet stalls the stream it
//! is of, and no other.
//!
//! ```text
//!   writer --frames by stream--> outgoing.rs --a lane per stream--> peer
//!   peer --> incoming.rs: a small task per lane --> reader.rs --> proto::Link
//! ```
//! What may be on which lane is the business of `proto`.

mod incoming;
mod outgoing;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::task::{Context, Waker};

pub(crate) use incoming::accept;
use outgoing::Outlanes;
use proto::{Budget, CarrierNumber, Link, StreamId};
use transport::Lanes;

/// Bytes of a peer that may wait unread on all lanes of a carrier together, of this part of the
/// memory budget at most. A reader takes what arrives, so that they are those behind a gap in a lane:
/// 32 MiB are a second of 250 Mbit/s, or two round trips of 100 ms at 1 Gbit/s.
const UNREAD_MAX: u64 = 32 << 20;
const UNREAD_LEAST: u64 = 256 << 10;
const UNREAD_PART: u64 = 8;

/// What a carrier has beside its first lane.
pub(crate) struct Beside {
    lanes: RefCell<Box<dyn Lanes>>,
    outgoing: RefCell<Outlanes>,
    /// Of lanes that are ahead of the first one.
    early: RefCell<BTreeMap<Early, Waker>>,
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
    pub(crate) fn new(mut lanes: Box<dyn Lanes>, budget: &dyn Budget, streams: usize) -> Self {
        lanes.welcome((budget.total() / UNREAD_PART).clamp(UNREAD_LEAST, UNREAD_MAX));
        lanes.allow(streams);
        Self { lanes: RefCell::new(lanes), outgoing: RefCell::default(), early: RefCell::default() }
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

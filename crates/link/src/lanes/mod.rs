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
use std::fmt;
use std::task::{Context, Waker};

pub(crate) use incoming::accept;
use outgoing::Outlanes;
use proto::Budget;
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
    early: RefCell<Vec<Waker>>,
}

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside").finish_non_exhaustive()
    }
}

impl Beside {
    /// The peer has been greeted.
    pub(crate) fn new(mut lanes: Box<dyn Lanes>, budget: &dyn Budget) -> Self {
        lanes.welcome((budget.total() / UNREAD_PART).clamp(UNREAD_LEAST, UNREAD_MAX));
        Self { lanes: RefCell::new(lanes), outgoing: RefCell::default(), early: RefCell::default() }
    }

    /// The first lane has brought something.
    pub(crate) fn go_on(&self) {
        // Whoever is still ahead waits anew.
        let early = std::mem::take(&mut *self.early.borrow_mut());
        early.into_iter().for_each(Waker::wake);
    }

    /// Wakes the task of `cx` once the first lane has brought something.
    fn wait(&self, cx: &Context<'_>) {
        self.early.borrow_mut().push(cx.waker().clone());
    }
}

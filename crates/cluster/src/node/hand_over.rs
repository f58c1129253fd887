//! The epoch of the node goes on in another process of the node, which has the sockets of this
//! process: what this process leaves, and how the other process begins with it.
//!
//! ```text
//!   this process   HandOver ──> the batch under way ends ──> HandedOver ──> writes nothing
//!                                                              │  └── GoOn ──> as before
//!   the other                                      Node::adopt ┘──> renews the lease ──> member
//! ```
//!
//! Two processes never write in one epoch: this process has no batch under way when it says what it
//! leaves, and its conditions would not hold after the first batch of the other. A renewal that is
//! under way does no harm.
//!
//! The clients come to the other process one after the other, mostly within a second. What they
//! held waits for them for [`AWAITED`].

use std::time::Duration;

use super::claims::UNKNOWN;
use super::desk::Desk;
use super::writes::Job;
use crate::heirloom::key_text;
use crate::names::Generation;

/// The time for which the clients of a former process of the node are awaited. A client whose link
/// to the former process is lost at the same moment needs up to half a minute.
pub const AWAITED: Duration = Duration::from_secs(60);

/// Whether another process of the node goes on with the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum HandOver {
    No,
    /// The batch under way has no answer yet.
    Asked,
    /// The other process has been told.
    Done,
}

/// The releases that wait to be written.
pub(super) fn releases(desk: &Desk) -> Vec<(String, Generation)> {
    let released = |job: &Job| match job {
        Job::Release(key, generation, rest) => {
            let number = if rest.is_some() { UNKNOWN } else { *generation };
            Some((key_text(&desk.keys, key), number))
        }
        // The notes of lost records are read again, clients are told of by their records, and
        // nobody waits for a claim any more.
        Job::Claim(..) | Job::Keep(_) | Job::Home(_) | Job::Delete(..) => None,
    };
    desk.jobs.iter().filter_map(released).collect()
}

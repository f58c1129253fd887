//! What a client is to do, and what it reports.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use proto::greeting::{Identity, Name};
use proto::{Budget, InstanceId, LinkConfig};

use super::error::DialError;
use crate::backoff::Retry;
use crate::dial::Path;
use crate::inner::Link;

/// What a client needs to keep one link to one server.
#[derive(Clone, Debug)]
pub struct Client {
    /// Ways to the server, preferred first; at least one.
    pub paths: Vec<Path>,
    /// Who we are.
    pub name: Name,
    /// How we show it.
    pub identity: Identity,
    /// Random per process, the same for all its links.
    pub instance: InstanceId,
    /// Whether this process has logged in before; shared by all its links.
    pub logged_in: Arc<AtomicBool>,
    /// Set when this process is about to end: no further link is made, those that live go on.
    pub leaving: Arc<AtomicBool>,
    /// Pauses between attempts.
    pub retry: Retry,
    /// Windows and times. `resume_timeout` and `keepalive` are the server's to say.
    pub link: LinkConfig,
    /// The worker's lease.
    pub budget: Rc<dyn Budget>,
    /// The number of the next link; shared by all of this process.
    pub serials: Arc<AtomicU64>,
}

/// Something worth telling a person.
#[derive(Debug)]
pub enum Report<'a> {
    /// No path led to the server. Tried again after the pause.
    Unreachable {
        /// The path whose error is told.
        path: &'a Path,
        /// Why.
        error: &'a DialError,
        /// Until the next attempt.
        pause: Duration,
    },
    /// A carrier was greeted.
    Connected {
        /// Over this path.
        path: &'a Path,
        /// It continues a link that had lost its carrier, or moves one.
        resumed: bool,
    },
}

/// Told which link is to be used from now on; `None` when that one has ended.
pub type OnLink = dyn Fn(Option<&Link>);

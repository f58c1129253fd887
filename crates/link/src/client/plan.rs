//! The settings of a client, and its reports.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use proto::greeting::{Features, Identity, Name};
use proto::{Budget, InstanceId, LinkConfig};

use super::error::DialError;
use super::redial::Redial;
use crate::backoff::Retry;
use crate::dial::Path;
use crate::inner::Link;

/// The settings of a client that maintains one link to one server.
#[derive(Clone, Debug)]
pub struct Client {
    /// At least one path to the server, the preferred path first.
    pub paths: Vec<Path>,
    /// The path of the standby.
    pub standby: StandbyPath,
    /// Who chooses among the paths by measurement. `None`: the order of `paths` decides.
    pub choice: Option<Rc<dyn PathChoice>>,
    /// Whether the links of the process take turns over several paths.
    pub spreads: bool,
    /// What the client announces beside the features that follow from the other settings.
    pub features: Features,
    /// The name of the client.
    pub name: Name,
    /// The proof of the name: a token, a certificate or a one-time code.
    pub identity: Identity,
    /// A random number per process, the same for all its links.
    pub instance: InstanceId,
    /// Whether this process has logged in before. All links of the process share the flag.
    pub logged_in: Arc<AtomicBool>,
    /// Whether this process runs in parallel with other processes of its name, because it has a
    /// shared service. All links of the process share the flag.
    pub shares: Arc<AtomicBool>,
    /// Set when the process is about to exit. The client makes no new link, and live links
    /// continue.
    pub leaving: Arc<AtomicBool>,
    /// Pauses between attempts.
    pub retry: Retry,
    /// The command that ends the pauses.
    pub redial: Rc<Redial>,
    /// Windows and time-outs. The server sets `resume_timeout` and `keepalive`.
    pub link: LinkConfig,
    /// The memory budget, which is the lease of the worker.
    pub budget: Rc<dyn Budget>,
    /// The serial number of the next link. All links of the process share it.
    pub serials: Arc<AtomicU64>,
}

/// Chooses among the paths of a client by what was measured of them. The link tries the paths in
/// this order, returns to no path by itself, and starts no trial of a path: the owner of the choice
/// moves the link ([`Link::move_to`]).
pub trait PathChoice: fmt::Debug {
    /// The indexes of the paths, the best path first. Paths that are missing come last.
    fn order(&self) -> Vec<usize>;

    /// Called when an attempt over the path with this index has ended. An attempt that the link no
    /// longer needs has no end.
    fn attempted(&self, path: usize, outcome: Result<(), &DialError>);
}

/// The path over which a link keeps a standby beside its active carrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StandbyPath {
    /// The link has no standby.
    #[default]
    Nowhere,
    /// The last path, while a better path carries the link. Dials of the better paths are expensive
    /// and often fail, so the pauses between them grow.
    Last,
    /// The path behind the path of the active carrier, among the first [`SPREAD_MAX`] paths. The
    /// first path follows the last path.
    Next,
}

/// The maximum number of paths on which a link with [`StandbyPath::Next`] keeps a standby. More
/// networks than four at one machine are rare, and each standby costs both ends a connection.
pub const SPREAD_MAX: usize = 4;

/// A report for the log.
#[derive(Debug)]
pub enum Report<'a> {
    /// The server was unreachable over all paths. The client retries after the pause.
    Unreachable {
        /// The path of `error`.
        path: &'a Path,
        /// Why the path failed.
        error: &'a DialError,
        /// Time until the next attempt.
        pause: Duration,
    },
    /// A link has a new carrier.
    Connected {
        /// The serial number of the link.
        link: u64,
        /// The path of the carrier.
        path: &'a Path,
        /// Whether the carrier resumes or moves an existing link.
        resumed: bool,
        /// Why the path differs from that of the previous carrier, or from the preferred path if
        /// the link is new. `None` if it is the same path.
        reason: Option<PathChange>,
    },
    /// A better path than that of the active carrier was tried and failed.
    NotBetter {
        /// The serial number of the link.
        link: u64,
        /// The path of `error`.
        path: &'a Path,
        /// Why the path failed.
        error: &'a DialError,
        /// Time until a better path is tried again, unless the path requests it earlier.
        pause: Duration,
    },
}

/// Why a link uses another path than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathChange {
    /// The preceding paths failed: the URL and the error of each. For a path without an error yet,
    /// the text is that it did not answer.
    Failed(Vec<String>),
    /// The path was silent.
    Silent(String),
    /// The path was silent or lost, and the standby took over.
    TookOver(String),
    /// This path has a low rate, given in bytes per second.
    LowRate(String, u64),
    /// This path was tried because of the low rate of another path, and is not faster.
    NotQuicker(String),
    /// The new path precedes the previous path in the list, and answers.
    Preferred,
    /// A command has moved the link to this path ([`Link::move_to`]).
    Commanded,
}

impl PathChange {
    /// The machine-readable name, for labels and JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Failed(_) => "failed",
            Self::Silent(_) => "silent",
            Self::TookOver(_) => "took_over",
            Self::LowRate(..) => "low_rate",
            Self::NotQuicker(_) => "not_quicker",
            Self::Preferred => "preferred",
            Self::Commanded => "commanded",
        }
    }
}

impl fmt::Display for PathChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(errors) => f.write_str(&errors.join(", and ")),
            Self::Silent(path) => write!(f, "{path} is silent"),
            Self::TookOver(path) => write!(f, "{path} is silent or lost, and a standby was ready"),
            Self::LowRate(path, rate) => write!(f, "{path} carries only {rate} bytes per second"),
            Self::NotQuicker(path) => write!(f, "{path} is not quicker"),
            Self::Preferred => f.write_str("this path is preferred and answers"),
            Self::Commanded => f.write_str("a command asks for this path"),
        }
    }
}

/// Called with the link to use from now on, and with `None` when that link has ended.
pub type OnLink = dyn Fn(Option<&Link>);

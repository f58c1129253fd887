//! The settings of a client, and its reports.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use proto::greeting::{Identity, Name};
use proto::{Budget, InstanceId, LinkConfig};

use super::error::DialError;
use super::redial::Redial;
use crate::backoff::Retry;
use crate::dial::Path;
use crate::inner::Link;

/// Settings of a client that keeps one link to one server.
#[derive(Clone, Debug)]
pub struct Client {
    /// Paths to the server, the preferred path first. At least one.
    pub paths: Vec<Path>,
    /// Whether the last path is a fallback that is always ready: while a better path carries the
    /// link, a carrier of the last path is the standby of the link.
    pub standby: bool,
    /// The name of the client.
    pub name: Name,
    /// The proof of the name: a token, a certificate or a one-time code.
    pub identity: Identity,
    /// Random per process; all links of the process have the same value.
    pub instance: InstanceId,
    /// Whether this process has logged in before. All links of the process share it.
    pub logged_in: Arc<AtomicBool>,
    /// Whether this process stands beside other processes of its name, because it has a shared
    /// service. All links of the process share it.
    pub shares: Arc<AtomicBool>,
    /// Set when the process is about to end. The client makes no further link, and live links go
    /// on.
    pub leaving: Arc<AtomicBool>,
    /// Pauses between attempts.
    pub retry: Retry,
    /// The command that ends these pauses.
    pub redial: Rc<Redial>,
    /// Windows and times. The server decides `resume_timeout` and `keepalive`.
    pub link: LinkConfig,
    /// The memory budget; the lease of the worker.
    pub budget: Rc<dyn Budget>,
    /// The serial number of the next link. All links of the process share it.
    pub serials: Arc<AtomicU64>,
}

/// A report for the log.
#[derive(Debug)]
pub enum Report<'a> {
    /// No path led to the server. The client tries again after the pause.
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
        /// The carrier continues or moves a link that exists.
        resumed: bool,
        /// Why the path is another one than that of the carrier before, or than the preferred path
        /// if the link is new. `None` if it is the same path.
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
        /// Time until a better path is tried again, unless the path asks for it before.
        pause: Duration,
    },
}

/// Why a link uses another path than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathChange {
    /// The paths that stand before this path failed: each with its URL and its error. The text says
    /// that a path did not answer if it has no error yet.
    Failed(Vec<String>),
    /// The path was silent.
    Silent(String),
    /// The path was silent or lost, and the standby took over.
    TookOver(String),
    /// This path has a low rate; in bytes per second.
    LowRate(String, u64),
    /// This path was tried because of the low rate of another path, and is not quicker.
    NotQuicker(String),
    /// The new path stands before the former path in the list, and answers.
    Preferred,
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
        }
    }
}

/// Called with the link that is to be used from now on, and with `None` when that link has ended.
pub type OnLink = dyn Fn(Option<&Link>);

//! The commands to move a link to another path and to probe a path, on their way from
//! [`crate::Link`] to the supervisor of the link.

use std::cell::RefCell;
use std::time::Duration;

use tokio::sync::oneshot;

/// A completed move. The URLs of both paths are equal if the link had the path already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMove {
    /// The URL of the previous path.
    pub from: String,
    /// The URL of the present path.
    pub to: String,
}

/// Why a link was not moved. The link continues over its previous path, unless that path was lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// The link has one path.
    #[error("there is no other path to the server")]
    OnlyPath,
    /// No path has this URL.
    #[error("no path to the server has the URL {0}")]
    Unknown(String),
    /// The server was not reached over the path.
    #[error("{to}: {why}")]
    Failed {
        /// The URL of the path.
        to: String,
        /// Why the path failed.
        why: String,
    },
    /// The path does not exist at this moment, which says nothing about the network.
    #[error("{to}: {why}")]
    Unavailable {
        /// The URL of the path.
        to: String,
        /// Why the path does not exist.
        why: String,
    },
    /// The link lost its carrier or ended, or another command has replaced this command.
    #[error("the connection was lost meanwhile, and the client dials its paths in their order")]
    Interrupted,
}

/// Where a command moves a link.
#[derive(Debug)]
pub(crate) enum Destination {
    /// To the path with this URL.
    Url(String),
    /// To the path behind the present path.
    Next,
    /// To a new carrier of the present path, or else to another path.
    Anew,
}

/// The outcome of a command to move.
pub(crate) type Moved = Result<PathMove, MoveError>;

/// A command to move a link. Dropping it interrupts the move.
#[derive(Debug)]
pub(crate) struct MoveOrder {
    pub(crate) to: Destination,
    done: oneshot::Sender<Moved>,
}

impl MoveOrder {
    /// Makes a command, and the receiver of its outcome.
    pub(crate) fn new(to: Destination) -> (Self, oneshot::Receiver<Moved>) {
        let (done, outcome) = oneshot::channel();
        (Self { to, done }, outcome)
    }

    /// Answers the command.
    pub(crate) fn answer(self, outcome: Moved) {
        // A caller that has left needs no answer.
        let _ = self.done.send(outcome);
    }
}

/// The outcome of a probe: the duration of a round trip.
pub(crate) type Probed = Result<Duration, MoveError>;

/// A command to probe a path. Dropping it interrupts the probe.
#[derive(Debug)]
pub(crate) struct ProbeOrder {
    /// The URL of the path.
    pub(crate) to: String,
    done: oneshot::Sender<Probed>,
}

impl ProbeOrder {
    /// Makes a command, and the receiver of its outcome.
    pub(crate) fn new(to: String) -> (Self, oneshot::Receiver<Probed>) {
        let (done, outcome) = oneshot::channel();
        (Self { to, done }, outcome)
    }

    /// Answers the command.
    pub(crate) fn answer(self, outcome: Probed) {
        // A caller that has left needs no answer.
        let _ = self.done.send(outcome);
    }
}

/// The commands that the supervisor of a link has not taken yet. A later command replaces an
/// earlier command of its kind.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    to_move: RefCell<Option<MoveOrder>>,
    to_probe: RefCell<Option<ProbeOrder>>,
}

impl Orders {
    /// Gives a command to move.
    pub(crate) fn give(&self, order: MoveOrder) {
        let former = self.to_move.replace(Some(order));
        drop(former);
    }

    /// Takes the command to move.
    pub(crate) fn take(&self) -> Option<MoveOrder> {
        self.to_move.borrow_mut().take()
    }

    /// Gives a command to probe.
    pub(crate) fn give_probe(&self, order: ProbeOrder) {
        let former = self.to_probe.replace(Some(order));
        drop(former);
    }

    /// Takes the command to probe.
    pub(crate) fn take_probe(&self) -> Option<ProbeOrder> {
        self.to_probe.borrow_mut().take()
    }
}

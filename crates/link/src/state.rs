//! The settings of a link, its state, and the reason for its end.

use std::rc::Rc;

use proto::greeting::Features;
use proto::{Budget, LinkConfig, Side, Violation};

/// Settings of a new link.
#[derive(Debug)]
pub struct Settings {
    /// The side of this end.
    pub side: Side,
    /// Windows and time-outs of the protocol.
    pub config: LinkConfig,
    /// The memory budget, which is the lease of the worker.
    pub budget: Rc<dyn Budget>,
    /// The serial number in logs. Logs never show the id of the link.
    pub serial: u64,
    /// The features in use: those of the greeting that began the link.
    pub features: Features,
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Frames flow.
    Live,
    /// The link has no carrier. Streams wait, and sockets stay open.
    Stalled,
    /// The link takes no new streams. Open streams continue.
    GoingAway,
    /// The link has ended, and its streams were reset.
    Ended(End),
}

/// Why a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// This end closed the link.
    #[error("closed")]
    Closed,
    /// The link retired: another link replaced it, and its last stream has ended.
    #[error("retired")]
    Retired,
    /// The peer closed the link.
    #[error("closed by the other side")]
    ByPeer,
    /// The peer ended the link because of a protocol violation with this code.
    #[error("ended by the other side (code {0:#x})")]
    Accused(u16),
    /// The link had no carrier for `resume_timeout`.
    #[error("no carrier for resume_timeout")]
    Expired,
    /// The server no longer knows the link.
    #[error("forgotten by the server")]
    Forgotten,
    /// The peer violated the protocol.
    #[error("{0}")]
    Violation(Violation),
    /// A task of the link panicked. The message of the panic is in the log.
    #[error("defect in this program")]
    Panicked,
}

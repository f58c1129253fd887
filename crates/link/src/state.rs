//! The settings of a link, its state, and the reason of its end.

use std::rc::Rc;

use proto::greeting::Features;
use proto::{Budget, LinkConfig, Side, Violation};

/// Settings of a new link.
#[derive(Debug)]
pub struct Settings {
    /// The side of this end.
    pub side: Side,
    /// Windows and times of the protocol.
    pub config: LinkConfig,
    /// The memory budget; the lease of the worker.
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
    /// The link takes no new streams. Open streams go on.
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
    /// The link retired: another link took its place, and its last stream has ended.
    #[error("retired")]
    Retired,
    /// The peer closed the link.
    #[error("closed by the other side")]
    ByPeer,
    /// The peer ended the link because it saw a violation of the protocol; the code of the
    /// violation.
    #[error("ended by the other side (code {0:#x})")]
    Accused(u16),
    /// The link had no carrier for `resume_timeout`.
    #[error("no carrier for resume_timeout")]
    Expired,
    /// The server does not know the link any more.
    #[error("forgotten by the server")]
    Forgotten,
    /// The peer broke the protocol.
    #[error("{0}")]
    Violation(Violation),
    /// A task of the link panicked. The log has the message of the panic.
    #[error("defect in this program")]
    Panicked,
}

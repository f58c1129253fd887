//! What a link is made of, and how it stands.

use std::rc::Rc;

use proto::{Budget, LinkConfig, Side, Violation};

/// What a link is made of.
#[derive(Debug)]
pub struct Settings {
    /// Which end.
    pub side: Side,
    /// Windows and times.
    pub config: LinkConfig,
    /// The worker's lease.
    pub budget: Rc<dyn Budget>,
    /// Number in logs; the link's id stays out of them.
    pub serial: u64,
}

/// How a link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Frames flow.
    Live,
    /// No carrier: streams wait, sockets stay open.
    Stalled,
    /// It takes no new streams; those that live go on.
    GoingAway,
    /// Over; all its streams were reset.
    Ended(End),
}

/// Why a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// This end closed it.
    #[error("closed")]
    Closed,
    /// It was told to go, another link took its place, and its last stream has ended.
    #[error("retired")]
    Retired,
    /// The far end closed it.
    #[error("closed by the other side")]
    ByPeer,
    /// The far end ended it for a violation of the protocol that it saw.
    #[error("ended by the other side (code {0:#x})")]
    Accused(u16),
    /// No carrier for `resume_timeout`.
    #[error("no carrier for resume_timeout")]
    Expired,
    /// The server does not know it any more.
    #[error("forgotten by the server")]
    Forgotten,
    /// The peer broke the protocol.
    #[error("{0}")]
    Violation(Violation),
    /// A task of it panicked; its message is in the log.
    #[error("defect in this program")]
    Panicked,
}

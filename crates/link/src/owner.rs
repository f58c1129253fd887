//! What a link is made of, who owns it, and what its owner is told.

use std::fmt;
use std::rc::Rc;

use proto::control::ControlMessage;
use proto::{Budget, LinkConfig, Open, Side, Violation};
use transport::{Inlet, Outlet};

use crate::Link;

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

/// Who owns a link: takes its streams and messages. Called on the link's worker, never while the
/// link is borrowed; must not block.
pub trait Owner: fmt::Debug {
    /// The peer opened a stream.
    fn accept(&self, link: &Link, open: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet>;
    /// A message came on the control stream.
    fn message(&self, link: &Link, message: ControlMessage);
    /// The link changed its state.
    fn changed(&self, link: &Link, state: State);
}

/// What the task that supervises a link waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The active carrier died and no other took over.
    CarrierLost,
    /// Long silence: try the next path beside the present one.
    Probe,
    /// The active carrier takes little of what there is to send: `Inner::little`.
    Strained,
    /// The link is over.
    Ended(End),
}

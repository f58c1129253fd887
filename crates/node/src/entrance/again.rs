//! Failover of visitors whose stream was refused to another client that shares the entrance.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use proto::ResetCode;
use relay::{RetryHandler, Socket};
use tokio::time::Instant;

use super::Entrance;
use super::admit::{Attempts, EnteringVisitor, VisitorOrigin};
use super::hold::{MovingVisitor, arrive};
use super::name::NameVisitor;
use crate::backends::{Picked, Tried};
use crate::names::Space;
use crate::session::{HOLD, Worker};
use capture::log::Carried;

/// Directs a visitor of a shared entrance to another client if the stream of the visitor is
/// refused.
pub(super) struct Failover {
    pub(super) worker: Rc<Worker>,
    pub(super) entrance: Arc<Entrance>,
    pub(super) picked: Arc<Picked>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) origin: VisitorOrigin,
    pub(super) tried: Vec<Tried>,
    /// The requests of the visitor on the refused stream.
    pub(super) carried: Option<Rc<Carried>>,
}

impl RetryHandler for Failover {
    fn is_worth_it(&self) -> bool {
        self.entrance.backends.had_better_leave(self.picked.session, self.peer)
    }

    fn may_repeat(&self, sent: &[u8]) -> bool {
        match &self.origin {
            // Bytes of other protocols are not known to be repeatable.
            VisitorOrigin::Port(_) => false,
            VisitorOrigin::Name(visitor) => {
                visitor.lead.space == Space::Http && h1::is_repeatable(sent)
            }
            VisitorOrigin::Request(..) => h1::is_repeatable(sent),
        }
    }

    fn retry(self: Box<Self>, socket: Option<Socket>, first: BytesMut, why: ResetCode) {
        let Self { worker, entrance, picked, peer, origin, mut tried, carried } = *self;
        // A stream whose bytes pass through a layer is returned in another way.
        let Some(socket) = socket else { return };
        if let Some(carried) = carried {
            carried.go_on();
        }
        let (service, client) = (entrance.name(), picked.client.as_str());
        tracing::debug!(service, client, %why, "the visitor of a refused stream goes on");
        entrance.backends.note_refusal(&picked, why);
        tried.push(Tried { picked, why, is_counted: is_counted(why) });
        let (origin, first) = match origin {
            VisitorOrigin::Name(visitor) if visitor.lead.space == Space::Http => {
                (VisitorOrigin::Name(NameVisitor { first, ..visitor }), BytesMut::new())
            }
            origin @ (VisitorOrigin::Name(_)
            | VisitorOrigin::Port(_)
            | VisitorOrigin::Request(..)) => (origin, first),
        };
        let attempts = Attempts { first, tried };
        let entering = EnteringVisitor {
            socket,
            peer,
            origin,
            preferred: None,
            until: Instant::now() + HOLD,
            attempts,
        };
        if let Some(visitor) = MovingVisitor::new(&entrance, entering) {
            arrive(&worker, visitor);
        }
    }
}

/// Whether the stream itself has counted its refusal.
pub const fn is_counted(why: ResetCode) -> bool {
    !matches!(
        why,
        ResetCode::Aborted
            | ResetCode::Shutdown
            | ResetCode::Internal
            | ResetCode::Timeout
            | ResetCode::Moved
    )
}

impl fmt::Debug for Failover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Failover({})", self.entrance.name())
    }
}

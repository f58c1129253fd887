//! The description of an incoming flow.

use std::fmt;
use std::rc::Rc;

use proto::ResetCode;
use transport::LocalFuture;

use super::moved::MovedSocket;
use crate::dial::Allow;
use crate::{Permit, Targets, Visitor};

/// The far end of an incoming flow.
#[derive(Default)]
pub struct FlowCaller {
    /// The rule for the target. It checks the name and every resolved address. Without a rule every
    /// target is permitted.
    pub allow: Option<Allow>,
    /// The visitor. The number of flows of its source is limited
    /// ([`FlowBounds::per_source`](crate::FlowBounds::per_source)).
    pub visitor: Visitor,
    /// Returned when the flow ends.
    pub permit: Option<Permit>,
    /// The fallback targets, used if the first target cannot be reached or refuses datagrams.
    pub stand_ins: Option<Rc<dyn Targets>>,
    /// The entry by which the next flow of the visitor finds this flow. Without an entry the socket
    /// of the flow never moves.
    pub entry: Option<Box<dyn FlowEntry>>,
    /// The former flow of the visitor.
    pub former: Option<LocalFuture<'static, FormerFlow>>,
}

/// The entry of a flow in a directory of all workers. The end of the flow drops the entry.
pub trait FlowEntry: fmt::Debug {
    /// The number of the flow, unique in the process.
    fn id(&self) -> u64;

    /// Called when the link of the flow has ended. The socket remains for the next flow of the
    /// visitor, until it is idle.
    fn park(&self);
}

/// What a flow gets from the former flow of its visitor: the socket, or `None` if the flow begins
/// anew; and the permit, unless the socket has it. The error is the answer to a visitor that is not
/// admitted.
pub type FormerFlow = Result<(Option<MovedSocket>, Option<Permit>), ResetCode>;

impl fmt::Debug for FlowCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowCaller").field("visitor", &self.visitor).finish_non_exhaustive()
    }
}

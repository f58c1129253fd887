//! What is known of a flow that arrives.

use std::fmt;
use std::rc::Rc;

use crate::dial::Allow;
use crate::{Permit, Targets, Visitor};

/// The far end of a flow that arrives.
#[derive(Default)]
pub struct FlowCaller {
    /// The rule for the target. It is asked about the name and about every resolved address.
    /// Without a rule every target is permitted.
    pub allow: Option<Allow>,
    /// The visitor. Its source has a share of the flows
    /// ([`FlowBounds::per_source`](crate::FlowBounds::per_source)).
    pub visitor: Visitor,
    /// Returned when the flow ends.
    pub permit: Option<Permit>,
    /// The targets that stand in for the first one, if it cannot be reached or refuses what it
    /// gets.
    pub stand_ins: Option<Rc<dyn Targets>>,
}

impl fmt::Debug for FlowCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowCaller").field("visitor", &self.visitor).finish_non_exhaustive()
    }
}

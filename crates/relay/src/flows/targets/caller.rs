//! The description of an incoming flow.

use std::fmt;
use std::rc::Rc;

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
}

impl fmt::Debug for FlowCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowCaller").field("visitor", &self.visitor).finish_non_exhaustive()
    }
}

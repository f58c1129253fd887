//! The memory of a visitor whose destination is not decided.

use super::visit::{AcceptRules, ArrivingVisitor, NotAccepted};

pub(super) fn charge(
    rules: &impl AcceptRules,
    visitor: &mut ArrivingVisitor,
) -> Result<(), NotAccepted> {
    visitor.held = rules.hold(visitor.peer)?;
    Ok(())
}

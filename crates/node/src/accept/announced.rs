//! The header of the PROXY protocol, in which a load balancer announces the address of a visitor.

use super::visit::{AcceptRules, ArrivingVisitor, NotAccepted};
use crate::descriptors;

/// Finds out whether a header comes first. A header from any other peer is payload.
pub(super) fn expect(rules: &impl AcceptRules, visitor: &mut ArrivingVisitor) {
    visitor.is_expected = rules.are_announced(visitor.peer);
}

/// Reads the header in front of the bytes of a visitor. The address of the visitor is that in the
/// header, or that of the balancer if it connects on its own behalf. From then on the seat of the
/// socket counts for the visitor.
pub(super) async fn read(visitor: &mut ArrivingVisitor) -> Result<(), NotAccepted> {
    if !visitor.is_expected {
        return Ok(());
    }
    let header = relay::announced(&visitor.socket).await.map_err(NotAccepted::Header)?;
    if header.visitor.is_some() {
        if !visitor.socket.count_for(descriptors::source(header.visitor)) {
            return Err(NotAccepted::Full(header.visitor));
        }
        visitor.peer = header.visitor;
    }
    visitor.announced = Some(header);
    Ok(())
}

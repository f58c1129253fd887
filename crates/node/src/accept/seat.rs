//! The seat: the visitor's descriptor counts in the share of its holder and of its source.

use std::net::SocketAddr;
use std::sync::Arc;

use relay::{Holder, Socket};

use super::visit::{AcceptRules, ArrivingVisitor, NotAccepted};
use crate::descriptors;

pub(super) fn take(
    rules: &impl AcceptRules,
    visitor: &mut ArrivingVisitor,
) -> Result<(), NotAccepted> {
    // Behind a balancer the source is the visitor, once its address is known.
    let peer = visitor.peer.filter(|_| !visitor.is_expected);
    let socket = &visitor.socket;
    let taken = rules.holder(|holder| match holder {
        Some(holder) if rules.gives_way(holder) => {
            holder.seat(socket, descriptors::source(peer)).map(Some)
        }
        Some(holder) => seat(holder, socket, peer).map(Some),
        None => Some(None),
    });
    let seat = taken.ok_or(NotAccepted::Seat)?;
    seat.into_iter().for_each(|seat| visitor.socket.sit(seat));
    Ok(())
}

/// A seat for an accepted visitor, if neither the holder nor the source has used up its share.
fn seat(holder: &Arc<Holder>, socket: &Socket, peer: Option<SocketAddr>) -> Option<relay::Seat> {
    let source = descriptors::source(peer);
    holder.bears().then(|| holder.seat(socket, source)).flatten()
}

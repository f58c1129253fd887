//! WebRTC offers in a build without WebRTC: they are refused with a reason.

use std::rc::Rc;
use std::sync::Arc;

use relay::StreamLane;

use crate::home::Home;
use crate::turns::Turn;
use crate::visit::VisitKey;
use crate::wire;
use crate::wire::{Reply, Why};
use node::session::Worker;

pub(super) async fn take(
    _: &Rc<Worker>,
    _: &Arc<dyn Home>,
    whose: &VisitKey,
    mut lane: StreamLane,
    _turn: Turn,
) {
    tracing::debug!(visitor = %whose.visitor, "an offer of WebRTC, without which this was built");
    if wire::read_offer(&mut lane).await.is_ok() {
        // A lost server needs no answer.
        let _ = wire::write(&mut lane, &wire::bytes(&Reply::Refused(Why::Without))).await;
        wire::over(&mut lane).await;
    }
}

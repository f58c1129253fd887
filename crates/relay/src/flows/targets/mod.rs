//! The end of flows that sends to a target: a connected socket for each flow. A target sees one
//! port per peer, whatever happens to carriers. A socket with an outdated address is replaced
//! (`follow`).
//!
//! ```text
//!   Looking: the name is being resolved, a few datagrams wait
//!      │ connect(2)
//!      ▼
//!   Open: datagrams are sent at the end of the turn; answers are passed to the link
//!      │ idle, closed by the far side, evicted, or the target is denied or unknown
//!      ▼
//!   Closed
//! ```

mod all;
mod caller;
mod flow;
mod follow;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use proto::ResetCode;
use transport::{FlowInlet, FlowOutlet, LocalFuture};

use super::{DropReason, FlowSettings};
use crate::dial::{DialError, TargetAddr, addresses_of};

pub use all::FlowTargets;
pub use caller::FlowCaller;
use flow::{FlowTally, State, Target};

/// Connects an incoming flow with `target`, which must be a [`TargetAddr::Udp`]. Returns the outlet
/// at once; up to 8 datagrams (64 KiB) wait for the lookup of a name. A flow that cannot be
/// connected is closed with the reason. `flows`: the flows of the same service, or of the forwards
/// of the same link, on this worker.
pub fn connect_flow(
    target: TargetAddr,
    caller: FlowCaller,
    inlet: Box<dyn FlowInlet>,
    settings: &Rc<FlowSettings>,
    flows: &Rc<FlowTargets>,
) -> Rc<dyn FlowOutlet> {
    let source = settings.bounds.source_of(&caller.visitor);
    let is_udp = matches!(target, TargetAddr::Udp { .. });
    let flow = Target::new(target, inlet, settings, flows, caller);
    if !is_udp {
        flow.end(Some(ResetCode::Unknown));
        return flow;
    }
    if !flows.add(&flow, source) {
        settings.stats.count_dropped(DropReason::Limit, 1);
        flow.report_full(DropReason::Limit);
        flow.end(Some(ResetCode::Limit));
        return flow;
    }
    follow::start(flows);
    flow.enter();
    let mut lookup = look_up(&flow);
    // An IP address needs no lookup, so a burst that opens a flow does not wait for the next turn.
    let lookup = match lookup.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(found) => {
            flow.found(found);
            None
        }
        Poll::Pending => Some(lookup),
    };
    if !matches!(*flow.state.borrow(), State::Closed) {
        tokio::task::spawn_local(Serving { flow: Rc::clone(&flow), lookup });
    }
    flow
}

type Lookup = LocalFuture<'static, Result<Vec<SocketAddr>, DialError>>;

/// Resolves the target of a flow.
fn look_up(flow: &Target) -> Lookup {
    // Cloning the `Lookups` would touch a counter that all workers share.
    let own = Rc::clone(&flow.settings);
    let (target, allow) = (flow.address.borrow().clone(), flow.allow.clone());
    Box::pin(async move {
        let FlowSettings { dial, lookups, .. } = &*own;
        let found = addresses_of(&target, allow.as_ref(), lookups);
        tokio::time::timeout(*dial, found)
            .await
            .unwrap_or_else(|_| Err(DialError::Timeout(target.clone())))
    })
}

/// The task of a flow: waits for the lookup, then for the socket.
struct Serving {
    flow: Rc<Target>,
    lookup: Option<Lookup>,
}

impl Future for Serving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { flow, lookup } = &mut *self;
        flow.waker.note(cx);
        loop {
            let socket = match &*flow.state.borrow() {
                State::Closed => return Poll::Ready(()),
                State::Looking => None,
                State::Open { socket, .. } => Some(Rc::clone(socket)),
            };
            let Some(socket) = socket else {
                // The flow has switched to another target.
                let waiting = lookup.get_or_insert_with(|| look_up(flow));
                let found = ready!(waiting.as_mut().poll(cx));
                *lookup = None;
                flow.found(found);
                continue;
            };
            let tally = FlowTally(flow);
            let Poll::Pending = socket.poll_read(cx, &tally, |arrival| flow.arrived(&arrival));
            // Pending: the send buffer is full, and the socket wakes this task later.
            let _ = socket.poll_flush(cx, &tally);
            if !flow.moves_on(&socket) {
                return Poll::Pending;
            }
        }
    }
}

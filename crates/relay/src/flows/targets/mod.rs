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
//!
//! A flow with an entry in a directory of flows can give its socket to the next flow of its visitor
//! (`moving`), which then begins with the state Open.

mod all;
mod caller;
mod flow;
mod follow;
mod moved;
mod moving;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use net::source::Source;
use proto::ResetCode;
use transport::{FlowInlet, FlowOutlet, LocalFuture};

use super::{DropReason, FlowSettings};
use crate::dial::{DialError, TargetAddr, addresses_of};

pub use all::FlowTargets;
pub use caller::{FlowCaller, FlowEntry, FormerFlow};
use flow::{FlowTally, State, Target};
pub use moved::MovedSocket;

/// Connects an incoming flow with `target`, which must be a [`TargetAddr::Udp`]. Returns the outlet
/// at once; up to 8 datagrams (64 KiB) wait for the lookup of a name. A flow that cannot be
/// connected is closed with the reason. `flows`: the flows of the same service, or of the forwards
/// of the same link, on this worker.
pub fn connect_flow(
    target: TargetAddr,
    mut caller: FlowCaller,
    inlet: Box<dyn FlowInlet>,
    settings: &Rc<FlowSettings>,
    flows: &Rc<FlowTargets>,
) -> Rc<dyn FlowOutlet> {
    let source = settings.bounds.source_of(&caller.visitor);
    let former = caller.former.take();
    let is_udp = matches!(target, TargetAddr::Udp { .. });
    let flow = Target::new(target, inlet, settings, flows, caller);
    if !is_udp {
        flow.end(Some(ResetCode::Unknown));
        return flow;
    }
    let mut serving = Serving { flow: Rc::clone(&flow), former: None, lookup: None };
    match former {
        None => serving.begin(source),
        Some(former) => serving.former = Some((former, source)),
    }
    // An IP address needs no lookup, and the socket of a flow of this worker is there at once, so a
    // burst that opens a flow does not wait for the next turn.
    serving.proceed(&mut Context::from_waker(Waker::noop()));
    if !matches!(*flow.state.borrow(), State::Closed) {
        tokio::task::spawn_local(serving);
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

/// The task of a flow: waits for the former flow of the visitor, then for the lookup, then for the
/// socket.
struct Serving {
    flow: Rc<Target>,
    /// The former flow of the visitor, and the source for which the flow counts if it begins anew.
    former: Option<(LocalFuture<'static, FormerFlow>, Option<Source>)>,
    lookup: Option<Lookup>,
}

impl Serving {
    /// Puts the flow into the table. It ends if there is no room.
    fn begin(&self, source: Option<Source>) {
        let Target { flows, settings, .. } = &*self.flow;
        if !flows.add(&self.flow, source) {
            settings.stats.count_dropped(DropReason::Limit, 1);
            self.flow.report_full(DropReason::Limit);
            return self.flow.end(Some(ResetCode::Limit));
        }
        follow::start(flows);
        self.flow.enter();
    }

    /// Proceeds with a flow that has no socket, until it waits for something.
    fn proceed(&mut self, cx: &mut Context<'_>) {
        while matches!(*self.flow.state.borrow(), State::Looking) {
            if let Some((former, _)) = &mut self.former {
                let Poll::Ready(outcome) = former.as_mut().poll(cx) else { return };
                let source = self.former.take().and_then(|(_, source)| source);
                self.succeed(outcome, source);
                continue;
            }
            // Without a lookup, the flow has switched to another target.
            let lookup = self.lookup.get_or_insert_with(|| look_up(&self.flow));
            let Poll::Ready(found) = lookup.as_mut().poll(cx) else { return };
            self.lookup = None;
            self.flow.found(found);
        }
    }

    /// Handles what the former flow of the visitor has left.
    fn succeed(&self, former: FormerFlow, source: Option<Source>) {
        match former {
            Ok((mut socket, permit)) => {
                // The permit stays with the visitor, also where the socket is of no use.
                let with_socket = socket.as_mut().and_then(|socket| socket.permit.take());
                self.flow.admitted(permit.or(with_socket));
                if !socket.is_some_and(|socket| self.flow.adopt(socket)) {
                    self.begin(source);
                }
            }
            Err(code) => self.flow.end(Some(code)),
        }
    }
}

impl Future for Serving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.flow.waker.note(cx);
        loop {
            self.proceed(cx);
            let Self { flow, .. } = &*self;
            let socket = match &*flow.state.borrow() {
                State::Closed => return Poll::Ready(()),
                State::Looking => return Poll::Pending,
                State::Open { socket, .. } => Rc::clone(socket),
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

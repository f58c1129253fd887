//! The links of other nodes to this node: who may log in, where the links are, and what they open.

mod arrival;
mod owner;
mod places;
mod proof;
mod verifier;
mod welcome;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::link::Link;
use ::link::server::accept as accept_links;
use net::handover;
use node::session::Worker;
use node::unauthenticated::Unauthenticated;
use tokio::task::spawn_local;
use tokio::time::sleep;
use transport::Listener;

use crate::shared::NodeShared;
pub(crate) use places::Incomings;

/// How long a UDP listener keeps accepting after a handover, as for the listeners of clients: a
/// node that has received the first response continues with this process.
const LATE: Duration = Duration::from_secs(5);

/// Accepts other nodes on this worker while the worker runs.
pub(crate) fn accept(worker: &Rc<Worker>, shared: &Arc<NodeShared>, listener: Box<dyn Listener>) {
    let (here, own) = (Rc::clone(worker), Arc::clone(shared));
    let transport = listener.transport();
    let strangers = Unauthenticated::new(worker, transport, move |incoming, place| {
        let (here, own) = (Rc::clone(&here), Arc::clone(&own));
        async move {
            let _place = place;
            welcome::welcome(&here, &own, (transport, incoming)).await;
        }
    });
    // After a handover, the packets of a UDP handshake in progress still reach this process.
    let lasts = if transport.stays() { LATE } else { Duration::ZERO };
    spawn_local(async move {
        handover::serving().await;
        let handed_over = async {
            handover::handed_over().await;
            sleep(lasts).await;
        };
        tokio::select! {
            () = accept_links(listener, &strangers) => {}
            () = handed_over => {}
        }
    });
}

/// Asks for successors of all links. Returns whether the other nodes have them all.
pub(crate) async fn retire(shared: &Arc<NodeShared>) -> bool {
    let sessions = shared.incomings.sessions().into_values();
    let sessions: Vec<_> = sessions.filter(|session| !session.has_left()).collect();
    let ids: Vec<_> = sessions.iter().map(|session| session.id).collect();
    for handle in shared.handles.iter() {
        let ids = ids.clone();
        let retire = move |worker: &Rc<Worker>| {
            let links = ids.into_iter().flat_map(|id| worker.state.links_of(id));
            links.for_each(|(_, link)| link.go_away());
        };
        // A worker that has stopped has no links.
        let _ = handle.call(retire).await;
    }
    sessions.iter().all(|session| session.has_left())
}

/// Ends the links that have neither a stream nor a flow.
pub(crate) async fn close_idle(shared: &Arc<NodeShared>) {
    let sessions: Vec<_> = shared.incomings.sessions().into_values().map(|of| of.id).collect();
    for handle in shared.handles.iter() {
        let sessions = sessions.clone();
        let close = move |worker: &Rc<Worker>| {
            for session in sessions {
                let links = worker.state.links_of(session);
                let is_idle = |link: &Link| link.stream_count() == 0 && link.flow_count() == 0;
                let idle = links.iter().filter(|(_, link)| is_idle(link));
                idle.for_each(|(_, link)| link.say_goodbye());
            }
        };
        // A worker that has stopped has no links.
        let _ = handle.call(close).await;
    }
}

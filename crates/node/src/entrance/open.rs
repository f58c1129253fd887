//! Opening and closing entrances on all workers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use net::inherited::PassedOn;
use proto::Budget;
use relay::{FlowSettings, Settings, socket_options};
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::guard::Guard;
use super::on_worker::{Entrances, OpenEntrance};
use super::shared::Entrance;
use super::tcp::Acceptor;
use super::udp::FlowAcceptor;
use super::watch::EntranceWatch;
use crate::descriptors;
use crate::listeners::{Listener, Listeners};
use crate::session::{Handle, Worker};

/// The longest time for which a port waits for the entrance to which it was left.
const PASSED: Duration = Duration::from_secs(2);

/// Lets this worker serve visitors of the entrance. Until the worker listens, these are visitors
/// that other workers have accepted.
fn open(worker: &Worker, entrance: Arc<Entrance>) {
    let room = descriptors::room();
    let in_force = entrance.in_force();
    let (picked, is_here) = (Arc::clone(in_force.accountable()), in_force.is_here());
    let gate = Some(Arc::clone(in_force.gate()));
    drop(in_force);
    let flows = entrance.carries_flows().then(|| {
        let times = picked.aim.terms.flows;
        let watcher = (!is_here).then(|| EntranceWatch::of_flows(&entrance));
        let bounds = Arc::clone(&entrance.bounds);
        Rc::new(FlowSettings { times, bounds, room, watcher, ..FlowSettings::default() })
    });
    let (timeouts, socket) = (picked.aim.terms.timeouts, socket_options(&picked.aim.terms));
    // The targets of a proxy are reported by the end that dials them.
    let watcher = (!is_here).then(|| EntranceWatch::of_streams(&entrance, &picked));
    let budget: Option<Rc<dyn Budget>> = Some(Rc::new(worker.state.portion.clone()));
    let settings =
        Settings { timeouts, socket, room, watcher, budget, gate, ..Settings::default() };
    let settings = RefCell::new(vec![(picked, Rc::new(settings))]);
    let (id, proxy) = (entrance.id, RefCell::default());
    let open = OpenEntrance { entrance, listening: None, settings, flows, proxy };
    worker.state.of::<Entrances>().0.borrow_mut().insert(id, open);
}

/// Starts to accept visitors on this worker.
fn listen(worker: &Rc<Worker>, id: u64, listener: Listener) -> std::io::Result<()> {
    let entrances = worker.state.of::<Entrances>();
    let mut entrances = entrances.0.borrow_mut();
    // The entrance has been closed meanwhile; this return closes the listener.
    let Some(open) = entrances.get_mut(&id) else { return Ok(()) };
    let room = open.settings().room;
    if let (Listener::Udp(socket), Some(flows)) = (&listener, &open.flows) {
        let door = Rc::new(FlowAcceptor {
            worker: Rc::clone(worker),
            entrance: Arc::clone(&open.entrance),
            times: Cell::new(flows.times),
        });
        let steering = open.entrance.steering.clone().map(|steering| (steering, worker.index));
        let listening = relay::listen_flows(socket.try_clone()?, steering, door, Rc::clone(flows))?;
        open.listening = Some(Guard::Udp(listening));
        return Ok(());
    }
    let door = Rc::new(Acceptor {
        worker: Rc::clone(worker),
        entrance: Arc::clone(&open.entrance),
        turn: Cell::new(0),
    });
    open.listening = Some(match listener {
        Listener::Tcp(socket) => Guard::Tcp(relay::listen(socket, door, room)?),
        // Its entrance has the settings of flows.
        Listener::Udp(_) => return Err(std::io::ErrorKind::Unsupported.into()),
        Listener::Unix(unix) => {
            let listening = relay::listen_unix(unix.socket, &open.entrance.address, door, room)?;
            Guard::Unix(unix.file, listening)
        }
    });
    Ok(())
}

/// Opens an entrance on all workers. No worker accepts before all workers are ready, because a
/// worker without a link hands its first visitor to another worker.
pub async fn open_everywhere(
    handles: &[Handle],
    entrance: &Arc<Entrance>,
    listeners: Listeners,
) -> std::io::Result<()> {
    for handle in handles {
        let entrance = Arc::clone(entrance);
        handle.call(move |worker| open(worker, entrance)).await.map_err(std::io::Error::other)?;
    }
    let id = entrance.id;
    for (handle, listener) in handles.iter().zip(listeners.by_worker()) {
        handle
            .call(move |worker| listen(worker, id, listener))
            .await
            .map_err(std::io::Error::other)??;
    }
    Ok(())
}

/// Ends the flows of an entrance whose target has changed. A peer that continues to send gets a
/// flow to the new target.
pub async fn renew_flows(handles: &[Handle], id: u64) {
    for handle in handles {
        // A worker that has stopped has no flows.
        let renewed = handle.call(move |worker| {
            if let Some(open) = worker.state.of::<Entrances>().0.borrow().get(&id)
                && let Some(Guard::Udp(listening)) = &open.listening
            {
                listening.renew();
            }
        });
        let _ = renewed.await;
    }
}

/// Removes, on all workers, a session that no longer shares an entrance.
pub async fn forget_everywhere(handles: &[Handle], id: u64, session: u64) {
    for handle in handles {
        // A stopped worker has dropped all its entrances.
        let forgotten = handle.call(move |worker| {
            if let Some(open) = worker.state.of::<Entrances>().0.borrow().get(&id)
                && let Some(stats) = open.forget(session)
            {
                worker.state.remember(&stats, open.label());
            }
        });
        let _ = forgotten.await;
    }
}

/// Closes an entrance on this worker.
fn close(worker: &Worker, id: u64) {
    let open = worker.state.of::<Entrances>().0.borrow_mut().remove(&id);
    if let Some(open) = &open {
        for stats in open.all_stats() {
            worker.state.remember(&stats, open.label());
        }
        if let Some(steering) = &open.entrance.steering {
            steering.close();
        }
    }
}

/// Closes an entrance on all workers. The port is free when the future completes.
pub async fn close_everywhere(handles: &[Handle], id: u64) {
    for handle in handles {
        // A worker that has stopped has closed the entrance.
        let _ = handle.call(move |worker| close(worker, id)).await;
    }
}

/// As [`close_everywhere`], and leaves the port to another entrance of this process: until the
/// other entrance opens, 2 s at most, visitors wait in the queue of the port.
pub async fn pass_on_everywhere(handles: &[Handle], id: u64) {
    let mut group = Vec::with_capacity(handles.len());
    for handle in handles {
        let kept = handle.call(move |worker| {
            let entrances = worker.state.of::<Entrances>();
            let kept = entrances.0.borrow().get(&id).and_then(OpenEntrance::duplicate);
            close(worker, id);
            kept
        });
        group.extend(kept.await.ok().flatten());
    }
    // A part of a group would lose the visitors that the kernel assigns to the other sockets.
    let Some(first) = handles.first().filter(|_| group.len() == handles.len()) else { return };
    let passed = PassedOn::offer(group);
    let waiting = first.call(move |_| {
        spawn_local(async move {
            sleep(PASSED).await;
            drop(passed);
        });
    });
    // A worker that has stopped drops the sockets.
    let _ = waiting.await;
}

//! Visitors that a worker accepts itself, over TCP or a Unix socket.

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use relay::{Handler, Holder, Socket};
use tokio::time::Instant;

use super::admit::{Attempts, EnteringVisitor, VisitorOrigin, enter, turn_away};
use super::hold::{MovingVisitor, hand_over};
use super::{Entrance, settings_of};
use crate::accept::{self, AcceptRules, ArrivingVisitor, NotAccepted};
use crate::answer::Answer;
use crate::session::{HOLD, Worker};

/// The handler of accepted visitors on one worker.
pub(super) struct Acceptor {
    pub(super) worker: Rc<Worker>,
    pub(super) entrance: Arc<Entrance>,
    pub(super) turn: Cell<usize>,
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Acceptor({})", self.entrance.name())
    }
}

impl AcceptRules for Acceptor {
    fn are_announced(&self, peer: Option<SocketAddr>) -> bool {
        self.entrance.announcers.contain(peer)
    }

    fn holder<T>(&self, ask: impl FnOnce(Option<&Arc<Holder>>) -> T) -> T {
        ask(self.entrance.in_force().gate().holder())
    }
}

impl Handler for Acceptor {
    fn handle(&self, socket: Socket, peer: Option<SocketAddr>) {
        let Self { worker, entrance, .. } = self;
        let mut visitor = ArrivingVisitor::new(socket, peer);
        if let Err(why) = accept::arrive(self, &mut visitor) {
            return refuse(worker, entrance, visitor, why);
        }
        if visitor.waits() {
            let (worker, entrance) = (Rc::clone(worker), Arc::clone(entrance));
            tokio::task::spawn_local(async move {
                match accept::settle(&mut visitor).await {
                    Ok(()) => enter(&worker, &entrance, entering(visitor)),
                    Err(why) => refuse(&worker, &entrance, visitor, why),
                }
            });
            return;
        }
        let to = match visitor.socket {
            Socket::Tcp(_) => None,
            Socket::Unix(_) => self.next_worker(),
        };
        match to.filter(|to| *to != worker.index).and_then(|to| worker.peers.get(to)) {
            None => enter(worker, entrance, entering(visitor)),
            Some(handle) => {
                let Some(visitor) = MovingVisitor::new(entrance, entering(visitor)) else { return };
                let handle = handle.clone();
                tokio::task::spawn_local(hand_over(handle, visitor));
            }
        }
    }

    fn has_room(&self) -> bool {
        self.holder(|holder| holder.is_none_or(|holder| holder.has_room()))
    }
}

/// A visitor that has passed the stages of its listener.
fn entering(visitor: ArrivingVisitor) -> EnteringVisitor {
    let ArrivingVisitor { socket, peer, announced, .. } = visitor;
    EnteringVisitor {
        socket,
        peer,
        origin: VisitorOrigin::Port(announced.map(Box::new)),
        preferred: None,
        until: Instant::now() + HOLD,
        attempts: Attempts::default(),
    }
}

/// Turns a visitor away that a stage of the listener has refused.
fn refuse(worker: &Worker, entrance: &Entrance, visitor: ArrivingVisitor, why: NotAccepted) {
    let settings = settings_of(worker, entrance).unwrap_or_default();
    let full = |visitor: Option<SocketAddr>| {
        let service = entrance.name();
        tracing::debug!(service, ?visitor, "no descriptor is left for the visitor");
        Answer::Full
    };
    let answer = match why {
        NotAccepted::Header(error) => {
            error.complain(visitor.peer, &entrance.address);
            Answer::Down(error.code())
        }
        NotAccepted::Seat => full(visitor.peer),
        NotAccepted::Full(visitor) => full(visitor),
        NotAccepted::Memory => Answer::Busy,
    };
    turn_away(worker, entering(visitor), &settings, answer);
}

impl Acceptor {
    /// The next worker with a live link, for a visitor of a socket from which only this worker
    /// accepts.
    fn next_worker(&self) -> Option<usize> {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        let from = turn % self.worker.peers.len();
        let all = self.entrance.backends.all();
        all.iter().find_map(|backend| backend.session.live_worker(from))
    }
}

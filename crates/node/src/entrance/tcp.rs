//! Visitors that a worker accepts itself, over TCP or a Unix socket.

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use relay::{Handler, Socket};
use tokio::time::Instant;

use super::admit::{Attempts, EnteringVisitor, VisitorOrigin, enter, seat, turn_away};
use super::hold::{MovingVisitor, hand_over};
use super::{Entrance, Unannounced, announced, settings_of};
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

impl Handler for Acceptor {
    fn handle(&self, mut socket: Socket, peer: Option<SocketAddr>) {
        let worker = &self.worker;
        let is_announced = self.entrance.announcers.contain(peer);
        // Behind a balancer the source is the visitor, once its address is known.
        let source = peer.filter(|_| !is_announced);
        let seat = match self.entrance.in_force().gate().holder() {
            Some(holder) => seat(holder, &socket, source).map(Some),
            None => Some(None),
        };
        let entering = |socket| EnteringVisitor {
            socket,
            peer,
            origin: VisitorOrigin::Port(None),
            preferred: None,
            until: Instant::now() + HOLD,
            attempts: Attempts::default(),
        };
        let Some(seat) = seat else {
            tracing::debug!(service = self.entrance.name(), visitor = ?peer, "no descriptor is left for the visitor");
            let settings = settings_of(worker, &self.entrance).unwrap_or_default();
            return turn_away(worker, entering(socket), &settings, Answer::Full);
        };
        seat.into_iter().for_each(|seat| socket.sit(seat));
        let entering = entering(socket);
        if is_announced {
            let (worker, entrance) = (Rc::clone(worker), Arc::clone(&self.entrance));
            tokio::task::spawn_local(async move {
                if let Some(entering) = behind(&worker, &entrance, entering).await {
                    enter(&worker, &entrance, entering);
                }
            });
            return;
        }
        let to = match entering.socket {
            Socket::Tcp(_) => None,
            Socket::Unix(_) => self.next_worker(),
        };
        match to.filter(|to| *to != worker.index).and_then(|to| worker.peers.get(to)) {
            None => enter(worker, &self.entrance, entering),
            Some(handle) => {
                let Some(visitor) = MovingVisitor::new(&self.entrance, entering) else { return };
                let handle = handle.clone();
                tokio::task::spawn_local(hand_over(handle, visitor));
            }
        }
    }

    fn has_room(&self) -> bool {
        self.entrance.in_force().gate().holder().is_none_or(|holder| holder.has_room())
    }
}

/// The visitor behind a load balancer. `None`: the balancer did not announce its address.
async fn behind(
    worker: &Worker,
    entrance: &Entrance,
    mut entering: EnteringVisitor,
) -> Option<EnteringVisitor> {
    let why = match announced(&mut entering.socket, entering.peer).await {
        Ok((header, peer)) => {
            let origin = VisitorOrigin::Port(Some(Box::new(header)));
            return Some(EnteringVisitor {
                peer,
                origin,
                until: Instant::now() + HOLD,
                ..entering
            });
        }
        Err(why) => why,
    };
    let settings = settings_of(worker, entrance).unwrap_or_default();
    let answer = match why {
        Unannounced::Header(error) => {
            error.complain(entering.peer, &entrance.address);
            Answer::Down(error.code())
        }
        Unannounced::Full(visitor) => {
            tracing::debug!(
                service = entrance.name(),
                ?visitor,
                "no descriptor is left for the visitor"
            );
            Answer::Full
        }
    };
    turn_away(worker, entering, &settings, answer);
    None
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

//! Visitors that a worker accepts itself, over TCP or a Unix socket.

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use relay::{Handler, Socket};
use tokio::time::Instant;

use super::admit::{Came, Guest, Past, enter, seat, turn_away};
use super::hold::{Visitor, hand_over};
use super::{Entrance, Unannounced, announced, settings_of};
use crate::answer::Answer;
use crate::session::{HOLD, Worker};

/// The handler of accepted visitors on one worker.
pub(super) struct Door {
    pub(super) worker: Rc<Worker>,
    pub(super) entrance: Arc<Entrance>,
    pub(super) turn: Cell<usize>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Door({})", self.entrance.name())
    }
}

impl Handler for Door {
    fn handle(&self, mut socket: Socket, peer: Option<SocketAddr>) {
        let worker = &self.worker;
        let is_announced = self.entrance.announcers.contain(peer);
        // The visitor behind a balancer is the source, once it is known.
        let source = peer.filter(|_| !is_announced);
        let seat = match self.entrance.backends.first().gate.holder() {
            Some(holder) => seat(holder, &socket, source).map(Some),
            None => Some(None),
        };
        let guest = |socket| Guest {
            socket,
            peer,
            came: Came::Port(None),
            wish: None,
            until: Instant::now() + HOLD,
            past: Past::default(),
        };
        let Some(seat) = seat else {
            tracing::debug!(service = self.entrance.name(), visitor = ?peer, "no descriptor is left for the visitor");
            let settings = settings_of(worker, &self.entrance).unwrap_or_default();
            return turn_away(worker, guest(socket), &settings, Answer::Full);
        };
        seat.into_iter().for_each(|seat| socket.sit(seat));
        let guest = guest(socket);
        if is_announced {
            let (worker, entrance) = (Rc::clone(worker), Arc::clone(&self.entrance));
            tokio::task::spawn_local(async move {
                if let Some(guest) = behind(&worker, &entrance, guest).await {
                    enter(&worker, &entrance, guest);
                }
            });
            return;
        }
        let to = match guest.socket {
            Socket::Tcp(_) => None,
            Socket::Unix(_) => self.next_worker(),
        };
        match to.filter(|to| *to != worker.index).and_then(|to| worker.peers.get(to)) {
            None => enter(worker, &self.entrance, guest),
            Some(handle) => {
                let Some(visitor) = Visitor::new(&self.entrance, guest) else { return };
                let handle = handle.clone();
                tokio::task::spawn_local(hand_over(handle, visitor));
            }
        }
    }

    fn has_room(&self) -> bool {
        self.entrance.backends.first().gate.holder().is_none_or(|holder| holder.has_room())
    }
}

/// The visitor behind a load balancer. `None`: the balancer did not say which one it is.
async fn behind(worker: &Worker, entrance: &Entrance, mut guest: Guest) -> Option<Guest> {
    let why = match announced(&mut guest.socket, guest.peer).await {
        Ok((header, peer)) => {
            let came = Came::Port(Some(Box::new(header)));
            return Some(Guest { peer, came, until: Instant::now() + HOLD, ..guest });
        }
        Err(why) => why,
    };
    let settings = settings_of(worker, entrance).unwrap_or_default();
    let answer = match why {
        Unannounced::Header(error) => {
            error.complain(guest.peer, &entrance.address);
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
    turn_away(worker, guest, &settings, answer);
    None
}

impl Door {
    /// The next worker with a live link, for a visitor of a socket that only this worker accepts
    /// from.
    fn next_worker(&self) -> Option<usize> {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        let from = turn % self.worker.peers.len();
        let all = self.entrance.backends.all();
        all.iter().find_map(|backend| backend.session.live_worker(from))
    }
}

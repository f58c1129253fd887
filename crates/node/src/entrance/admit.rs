//! The way of a visitor into a stream: its address, its seat, a link of this worker, the limit of
//! streams, and the stream. A visitor that may not go on is turned away with the reason.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ::link::Link;
use proto::ResetCode;
use relay::{Announced, Holder, Settings, Socket, open_error_code};
use tokio::time::Instant;

use super::hold::{Visitor, elsewhere};
use super::name::{Answer, NameVisitor};
use super::proxy::proxy_of;
use super::{Entrance, served_by, settings_of};
use crate::aim::Aim;
use crate::backends::{Backend, Pick, Tried};
use crate::descriptors;
use crate::names::{Services, Space};
use crate::session::Worker;
use crate::{limits, proxy};

/// The way on which a visitor came to an entrance.
#[derive(Clone, Debug)]
pub(crate) enum Came {
    /// To a port of the entrance; with the header that a load balancer has put in front.
    Port(Option<Box<Announced>>),
    /// By a name.
    Name(NameVisitor),
    /// As a request of the HTTP proxy that was judged by these rules. A client that takes its names
    /// over with the same rules serves the request.
    Request(Arc<Aim>),
}

/// A visitor on its way into an entrance.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) socket: Socket,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) came: Came,
    /// The session that was picked for it on another worker.
    pub(crate) wish: Option<u64>,
    /// The time until which the visitor may be held. It does not change on the way.
    pub(crate) until: Instant,
}

impl Came {
    /// The visitor, if it speaks HTTP.
    fn http(&self) -> Option<&NameVisitor> {
        match self {
            Self::Name(visitor) if visitor.lead.space == Space::Http => Some(visitor),
            Self::Name(_) | Self::Port(_) | Self::Request(_) => None,
        }
    }

    /// Whether the rules that led the visitor to the entrance are in force.
    pub(super) fn is_current(&self, entrance: &Entrance, peer: Option<SocketAddr>) -> bool {
        match self {
            // A port has one entrance, whose lists are compared when the visitor arrives.
            Self::Port(_) => true,
            Self::Name(NameVisitor { door, lead, .. }) => {
                door.generation() == lead.generation || door.leads(lead, peer)
            }
            Self::Request(aim) => Arc::ptr_eq(aim, &entrance.backends.first().picked.aim),
        }
    }
}

/// Lets a visitor in that a door has led to this entrance.
pub(crate) fn visit(worker: &Rc<Worker>, entrance: &Arc<Entrance>, mut guest: Guest) {
    // Without settings the entrance was closed meanwhile.
    let settings = settings_of(worker, entrance);
    let Some(settings) = settings else {
        return turn_away(worker, guest, &Rc::default(), Answer::Down(ResetCode::Shutdown));
    };
    if !holds(&entrance.backends.first(), &mut guest.socket) {
        tracing::debug!(service = entrance.name(), "the client has its share of the descriptors");
        return turn_away(worker, guest, &settings, Answer::Full);
    }
    enter(worker, entrance, guest);
}

/// Moves the seat of a visitor to the client of these services, for a visitor whose requests go to
/// them. False: the client has its share of the descriptors; the refusal is counted by nobody,
/// because no service of the client was asked.
pub(crate) fn takes(services: &Services, socket: &mut Socket) -> bool {
    let backend = services.first().map(|first| first.entrance.backends.first());
    backend
        .as_ref()
        .and_then(|backend| backend.gate.holder())
        .is_none_or(|holder| socket.move_to(holder))
}

/// Refuses a visitor and counts the refusal.
pub(super) fn turn_away(worker: &Worker, guest: Guest, settings: &Rc<Settings>, answer: Answer) {
    let code = match answer {
        Answer::Forbidden => ResetCode::Denied,
        Answer::Busy | Answer::Full => ResetCode::Limit,
        Answer::Down(code) => code,
    };
    let Guest { socket, came, .. } = guest;
    match came {
        Came::Name(http) if http.lead.space == Space::Http => {
            if answer == Answer::Forbidden {
                settings.stats.count_barred();
            } else {
                settings.stats.count_refused(code);
            }
            http.door.answer(worker, socket, http.asked, answer);
        }
        Came::Name(_) | Came::Port(_) | Came::Request(_) if answer == Answer::Forbidden => {
            relay::bar_socket(socket, settings);
        }
        Came::Name(_) | Came::Port(_) | Came::Request(_) => {
            relay::refuse_socket(socket, settings, code);
        }
    }
}

/// A seat for an accepted visitor, if both the holder and the source of the visitor have room.
pub(crate) fn seat(
    holder: &Arc<Holder>,
    socket: &Socket,
    peer: Option<SocketAddr>,
) -> Option<relay::Seat> {
    let source = descriptors::source(peer);
    holder.bears().then(|| holder.seat(socket, source)).flatten()
}

/// Finds the backend of a visitor, and opens a stream over a link of this worker. The visitor moves
/// to another worker or waits where this one has none. A visitor whose address may not visit is
/// turned away before anything but the listener has spent anything on it.
pub(super) fn enter(worker: &Rc<Worker>, entrance: &Arc<Entrance>, mut guest: Guest) {
    let mut tried = Vec::new();
    loop {
        let mut link = None;
        let pick = entrance.backends.pick(guest.peer, &tried, guest.wish, |session| {
            link = worker.state.visitor_link(worker.index, session);
            link.is_some()
        });
        match (pick, link) {
            (Pick::Here(backend), _) => return here(worker, entrance, &backend, guest),
            (Pick::To(backend), Some(_))
                if entrance.backends.is_shared() && !holds(&backend, &mut guest.socket) =>
            {
                tracing::debug!(
                    service = entrance.name(),
                    "the client has its share of the descriptors"
                );
                let settings = served_by(worker, entrance, &backend.picked).unwrap_or_default();
                return turn_away(worker, guest, &settings, Answer::Full);
            }
            (Pick::To(backend), Some(link)) => {
                match serve(worker, entrance, &backend, &link, guest) {
                    Err(left) => {
                        let failure;
                        (guest, failure) = *left;
                        tried.push(failure);
                    }
                    Ok(()) => return,
                }
            }
            (Pick::Refuse(answer), _) => {
                let (service, visitor) = (entrance.name(), guest.peer);
                tracing::debug!(service, ?visitor, ?answer, "the visitor is turned away");
                let settings = settings_of(worker, entrance).unwrap_or_default();
                return turn_away(worker, guest, &settings, answer);
            }
            (Pick::Elsewhere(session), _) => {
                guest.wish = Some(session.id);
                if let Some(visitor) = Visitor::new(entrance, guest) {
                    tokio::task::spawn_local(elsewhere(Rc::clone(worker), visitor));
                }
                return;
            }
            (Pick::Wait | Pick::To(_), _) => {
                guest.wish = None;
                if let Some(visitor) = Visitor::new(entrance, guest) {
                    tokio::task::spawn_local(elsewhere(Rc::clone(worker), visitor));
                }
                return;
            }
        }
    }
}

/// Moves the seat of a visitor to the client that serves it. False: the client has its share of the
/// descriptors.
fn holds(backend: &Backend, socket: &mut Socket) -> bool {
    backend.gate.holder().is_none_or(|holder| socket.move_to(holder))
}

/// Connects a visitor with a target of this process, or turns the visitor away.
fn here(worker: &Rc<Worker>, entrance: &Arc<Entrance>, backend: &Backend, guest: Guest) {
    let picked = &backend.picked;
    let settings = served_by(worker, entrance, picked).unwrap_or_default();
    let Some(permit) = backend.gate.admit_from(limits::source(guest.peer)) else {
        tracing::debug!(service = picked.aim.name, "limit of connections reached");
        return turn_away(worker, guest, &settings, Answer::Busy);
    };
    let Guest { socket, peer, came, .. } = guest;
    socket.keep_alive(picked.aim.terms.timeouts.keepalive);
    let header = match came {
        Came::Port(header) => header,
        Came::Name(_) | Came::Request(_) => None,
    };
    proxy::serve(worker, &picked.aim.name, (socket, peer, header), &settings, permit);
}

/// Opens a stream of this backend for the visitor, or turns the visitor away. An error gives back a
/// visitor whom another backend may serve.
fn serve(
    worker: &Rc<Worker>,
    entrance: &Arc<Entrance>,
    backend: &Backend,
    link: &Link,
    guest: Guest,
) -> Result<(), Box<(Guest, Tried)>> {
    let picked = &backend.picked;
    let aim = &picked.aim;
    let settings = served_by(worker, entrance, picked).unwrap_or_default();
    let Some(permit) = backend.gate.admit_from(limits::source(guest.peer)) else {
        tracing::debug!(service = aim.name, "limit of streams reached");
        turn_away(worker, guest, &settings, Answer::Busy);
        return Ok(());
    };
    let Guest { socket, peer, came, wish, until } = guest;
    // A connection that comes from another service has the setting of that service.
    let is_onward = came.http().is_some_and(|http| !http.first.is_empty());
    let keepalive = aim.terms.timeouts.keepalive;
    if is_onward || keepalive != net::socket::KEEPALIVE {
        socket.keep_alive(keepalive);
    }
    if let Some(terms) = &aim.proxy {
        // Without an open entrance the forward was closed meanwhile.
        if let Some(proxy) = proxy_of(worker, entrance, terms) {
            let patience = until.saturating_duration_since(Instant::now());
            relay::serve_proxy(socket, peer, &proxy, Some(permit), patience);
        }
        return Ok(());
    }
    let (target, priority) = (aim.opens(), aim.terms.priority);
    let open = proto::Open { target, visitor: peer, priority };
    let came = match came {
        Came::Name(visitor) if visitor.lead.space == Space::Http => {
            visitor.serve(worker, link, open, socket, (&settings, picked), permit);
            return Ok(());
        }
        came @ (Came::Name(_) | Came::Port(_) | Came::Request(_)) => came,
    };
    relay::serve_visitor(socket, link, open, &settings, Some(permit), None).map_err(
        |(socket, error)| {
            tracing::debug!(service = aim.name, %error, "a backend opens no stream");
            let tried = Tried { picked: Arc::clone(picked), why: open_error_code(error) };
            Box::new((Guest { socket, peer, came, wish, until }, tried))
        },
    )
}

//! From a visitor with a known entrance to its stream: the seat of the client, the backend, a link
//! of this worker, and the last stages of [`crate::accept`]. A visitor that fails a check is turned
//! away with the reason.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ::link::Link;
use bytes::BytesMut;
use net::SocketOptions;
use proto::{ResetCode, Target, VisitorFields};
use relay::{Announced, Gate, Retry, Settings, Socket, open_error_code};
use tokio::time::Instant;

use super::again::Failover;
use super::hold::{MovingVisitor, elsewhere};
use super::name::NameVisitor;
use super::proxy::proxy_of;
use super::{Entrance, served_by, settings_of};
use crate::accept::{self, Guest};
use crate::aim::Aim;
use crate::answer::Answer;
use crate::backends::{Backend, Pick, Picked, Tried};
use crate::names::Space;
use crate::session::{Here, Worker};

/// How a visitor arrived at an entrance.
#[derive(Clone, Debug)]
pub enum VisitorOrigin {
    /// At a port of the entrance; with the PROXY header of a load balancer, if any.
    Port(Option<Box<Announced>>),
    /// By a name.
    Name(NameVisitor),
    /// As a request of the HTTP proxy that was admitted under these rules. A client that takes over
    /// the names with the same rules serves the request.
    Request(Arc<Aim>, Option<Arc<Affinity>>),
}

/// The affinity of a request whose visitor stays at its previous target.
#[derive(Debug, Default)]
pub struct Affinity {
    /// The mark of the visitor's previous target; 0: none.
    mark: u64,
    /// The id of the client that has the stream.
    client: AtomicU64,
    /// Whether the first bytes of the stream are the mark of the target.
    is_marked: AtomicBool,
}

impl Affinity {
    pub fn new(mark: u64) -> Arc<Self> {
        Arc::new(Self { mark, ..Self::default() })
    }

    /// Returns the target for a stream of this backend that is about to be opened.
    pub fn opens(&self, entrance: &Entrance, picked: &Picked) -> Target {
        let (target, is_marked) = picked.aim.opens_at(self.mark);
        self.client.store(entrance.backends.number_of(picked.session), Ordering::Relaxed);
        self.is_marked.store(is_marked, Ordering::Release);
        target
    }

    /// Whether the first bytes of the stream are the mark; valid once a byte has arrived.
    pub fn is_marked(&self) -> bool {
        self.is_marked.load(Ordering::Acquire)
    }

    /// The id of the client that has the stream; valid once a byte has arrived.
    pub fn client(&self) -> u64 {
        self.client.load(Ordering::Relaxed)
    }
}

/// A visitor that enters an entrance.
#[derive(Debug)]
pub struct EnteringVisitor {
    pub socket: Socket,
    pub peer: Option<SocketAddr>,
    pub origin: VisitorOrigin,
    /// The session that was picked for it on another worker.
    pub preferred: Option<u64>,
    /// The deadline for holding the visitor. It does not change between workers.
    pub until: Instant,
    /// The previous attempts to serve the visitor.
    pub attempts: Attempts,
}

impl Guest for EnteringVisitor {
    const COUNTED: Option<&'static str> = Some("streams");

    fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    fn obey(&self, options: &SocketOptions) {
        // A connection that moves here from another service has the options of that service.
        let is_onward = self.origin.http().is_some_and(|http| !http.first.is_empty());
        self.socket.obey(options, (!is_onward).then_some(&SocketOptions::DEFAULT));
    }
}

/// The failed attempts to serve a visitor.
#[derive(Debug, Default)]
pub struct Attempts {
    /// The bytes that a refused stream has read from the socket. For a visitor of HTTP, they are in
    /// [`NameVisitor::first`].
    pub first: BytesMut,
    /// The backends that failed to serve it.
    pub tried: Vec<Tried>,
}

impl VisitorOrigin {
    /// The fields that a load balancer announces about the visitor, for the target. Fields that do
    /// not fit are omitted.
    fn fields(&self) -> Option<VisitorFields> {
        match self {
            Self::Port(header) => VisitorFields::new(&header.as_ref()?.fields),
            Self::Name(visitor) => visitor.fields.clone(),
            Self::Request(..) => None,
        }
    }

    /// Returns the visitor if it speaks HTTP.
    fn http(&self) -> Option<&NameVisitor> {
        match self {
            Self::Name(visitor) if visitor.lead.space == Space::Http => Some(visitor),
            Self::Name(_) | Self::Port(_) | Self::Request(..) => None,
        }
    }

    /// Whether the rules that directed the visitor to the entrance are still in force.
    pub(super) fn is_current(&self, entrance: &Entrance, peer: Option<SocketAddr>) -> bool {
        match self {
            // A port has one entrance, whose address lists are checked when the visitor arrives.
            Self::Port(_) => true,
            Self::Name(NameVisitor { door, lead, .. }) => {
                door.generation() == lead.generation || door.leads(lead, peer)
            }
            Self::Request(aim, _) => {
                let in_force = entrance.in_force();
                Arc::ptr_eq(aim, in_force.aim()) || aim.is_as(in_force.aim())
            }
        }
    }
}

/// Admits a visitor that a door has directed to this entrance.
pub fn visit(worker: &Rc<Worker>, entrance: &Arc<Entrance>, mut entering: EnteringVisitor) {
    // No settings: the entrance has been closed meanwhile.
    let settings = settings_of(worker, entrance);
    let Some(settings) = settings else {
        return turn_away(worker, entering, &Rc::default(), Answer::Down(ResetCode::Shutdown));
    };
    if !holds(entrance.in_force().gate(), &mut entering.socket) {
        tracing::debug!(service = entrance.name(), "the client has its share of the descriptors");
        return turn_away(worker, entering, &settings, Answer::Full);
    }
    enter(worker, entrance, entering);
}

/// Refuses a visitor and counts the refusal.
pub(super) fn turn_away(
    worker: &Worker,
    entering: EnteringVisitor,
    settings: &Rc<Settings>,
    answer: Answer,
) {
    let code = match answer {
        Answer::Forbidden => ResetCode::Denied,
        Answer::Busy | Answer::Full => ResetCode::Limit,
        Answer::Down(code) => code,
    };
    let EnteringVisitor { socket, origin, .. } = entering;
    match origin {
        VisitorOrigin::Name(http) if http.lead.space == Space::Http => {
            if answer == Answer::Forbidden {
                settings.stats.count_barred();
            } else {
                settings.stats.count_refused(code);
            }
            http.door.answer(worker, socket, http.asked, answer);
        }
        VisitorOrigin::Name(_) | VisitorOrigin::Port(_) | VisitorOrigin::Request(..)
            if answer == Answer::Forbidden =>
        {
            relay::bar_socket(socket, settings);
        }
        VisitorOrigin::Name(_) | VisitorOrigin::Port(_) | VisitorOrigin::Request(..) => {
            relay::refuse_socket(socket, settings, code);
        }
    }
}

/// Finds the backend of a visitor, and opens a stream over a link of this worker. If this worker
/// has no link, the visitor moves to another worker or waits. A visitor whose address may not visit
/// is turned away before anything beyond the accept is spent on it.
pub(super) fn enter(worker: &Rc<Worker>, entrance: &Arc<Entrance>, mut entering: EnteringVisitor) {
    loop {
        let mut link = None;
        let pick = entrance.backends.pick(
            entering.peer,
            &entering.attempts.tried,
            entering.preferred,
            |session| {
                link = worker.state.visitor_link(worker.index, session);
                link.is_some()
            },
        );
        match (pick, link) {
            (Pick::Here(backend), _) => return here(worker, entrance, &backend, entering),
            (Pick::To(backend), Some(_))
                if entrance.backends.is_shared() && !holds(&backend.gate, &mut entering.socket) =>
            {
                tracing::debug!(
                    service = entrance.name(),
                    "the client has its share of the descriptors"
                );
                let settings = served_by(worker, entrance, &backend.picked).unwrap_or_default();
                return turn_away(worker, entering, &settings, Answer::Full);
            }
            (Pick::To(backend), Some(link)) => {
                let priority = backend.picked.aim.terms.priority;
                let link = worker.state.link_of_class(&backend.session, link, priority);
                match serve(worker, entrance, &backend, &link, entering) {
                    Err(left) => entering = *left,
                    Ok(()) => return,
                }
            }
            (Pick::Refuse(answer), _) => {
                let (service, visitor) = (entrance.name(), entering.peer);
                tracing::debug!(service, ?visitor, ?answer, "the visitor is turned away");
                let is_counted =
                    entering.attempts.tried.last().is_some_and(|tried| tried.is_counted);
                let settings = settings_of(worker, entrance).filter(|_| !is_counted);
                return turn_away(worker, entering, &settings.unwrap_or_default(), answer);
            }
            (Pick::Elsewhere(session), _) => {
                // Later visitors of this worker find a link here.
                session.demand(worker.index);
                entering.preferred = Some(session.id);
                if let Some(visitor) = MovingVisitor::new(entrance, entering) {
                    tokio::task::spawn_local(elsewhere(Rc::clone(worker), visitor));
                }
                return;
            }
            (Pick::Wait | Pick::To(_), _) => {
                entering.preferred = None;
                if let Some(visitor) = MovingVisitor::new(entrance, entering) {
                    tokio::task::spawn_local(elsewhere(Rc::clone(worker), visitor));
                }
                return;
            }
        }
    }
}

/// Moves the seat of a visitor to the client that serves it. False: the client has used up its
/// share of the descriptors.
fn holds(gate: &Gate, socket: &mut Socket) -> bool {
    gate.holder().is_none_or(|holder| socket.move_to(holder))
}

/// Connects a visitor to a target that this process dials, or turns the visitor away.
fn here(
    worker: &Rc<Worker>,
    entrance: &Arc<Entrance>,
    backend: &Backend,
    entering: EnteringVisitor,
) {
    let picked = &backend.picked;
    let settings = served_by(worker, entrance, picked).unwrap_or_default();
    let Some(permit) = accept::admit(backend, &entering) else {
        return turn_away(worker, entering, &settings, Answer::Busy);
    };
    let EnteringVisitor { socket, peer, origin, .. } = entering;
    let header = match origin {
        VisitorOrigin::Port(header) => header,
        VisitorOrigin::Name(_) | VisitorOrigin::Request(..) => None,
    };
    let here = worker.state.of::<Here>();
    here.serve(worker, &picked.aim.name, (socket, peer, header), &settings, permit);
}

/// Opens a stream of this backend for the visitor, or turns the visitor away. An error returns the
/// visitor if another backend may serve it.
fn serve(
    worker: &Rc<Worker>,
    entrance: &Arc<Entrance>,
    backend: &Backend,
    link: &Link,
    entering: EnteringVisitor,
) -> Result<(), Box<EnteringVisitor>> {
    let picked = &backend.picked;
    let aim = &picked.aim;
    let settings = served_by(worker, entrance, picked).unwrap_or_default();
    let Some(permit) = accept::admit(backend, &entering) else {
        turn_away(worker, entering, &settings, Answer::Busy);
        return Ok(());
    };
    let EnteringVisitor { socket, peer, origin, preferred, until, mut attempts } = entering;
    if !attempts.tried.is_empty() {
        settings.stats.count_failover();
    }
    if let Some(terms) = &aim.proxy {
        // No open entrance: the forward has been closed meanwhile.
        if let Some(proxy) = proxy_of(worker, entrance, terms) {
            let patience = until.saturating_duration_since(Instant::now());
            relay::serve_proxy(socket, peer, &proxy, Some(permit), patience);
        }
        return Ok(());
    }
    let target = match &origin {
        VisitorOrigin::Request(_, Some(stays)) => stays.opens(entrance, picked),
        VisitorOrigin::Request(_, None) | VisitorOrigin::Name(_) | VisitorOrigin::Port(_) => {
            aim.opens()
        }
    };
    let priority = aim.terms.priority;
    let fields = origin.fields();
    let open = proto::Open { target, visitor: peer, priority, fields };
    let origin = match origin {
        VisitorOrigin::Name(visitor) if visitor.lead.space == Space::Http => {
            let another = entrance.backends.have_others().then(|| Failover {
                origin: VisitorOrigin::Name(NameVisitor {
                    door: Arc::clone(&visitor.door),
                    lead: visitor.lead.clone(),
                    first: BytesMut::new(),
                    asked: visitor.asked.clone(),
                    fields: None,
                }),
                worker: Rc::clone(worker),
                entrance: Arc::clone(entrance),
                picked: Arc::clone(picked),
                peer,
                tried: attempts.tried,
                carried: None,
            });
            visitor.serve(worker, link, open, socket, (&settings, picked), (permit, another));
            return Ok(());
        }
        origin @ (VisitorOrigin::Name(_) | VisitorOrigin::Port(_) | VisitorOrigin::Request(..)) => {
            origin
        }
    };
    let again = entrance.backends.have_others().then(|| {
        let another = Failover {
            worker: Rc::clone(worker),
            entrance: Arc::clone(entrance),
            picked: Arc::clone(picked),
            peer,
            origin: origin.clone(),
            tried: attempts.tried.clone(),
            carried: None,
        };
        Retry { handler: Box::new(another), first: attempts.first.clone() }
    });
    // The bytes of a request on another worker arrive over a socket pair.
    let is_announced = match &origin {
        VisitorOrigin::Port(header) => header.is_some(),
        VisitorOrigin::Name(_) => socket.is_announced(peer),
        VisitorOrigin::Request(..) => true,
    };
    let visitor = (socket, is_announced);
    relay::serve_visitor(visitor, link, open, &settings, Some(permit), None, again).map_err(
        |(socket, error)| {
            tracing::debug!(service = aim.name, %error, "a backend opens no stream");
            let (picked, why) = (Arc::clone(picked), open_error_code(error));
            attempts.tried.push(Tried { picked, why, is_counted: false });
            Box::new(EnteringVisitor { socket, peer, origin, preferred, until, attempts })
        },
    )
}

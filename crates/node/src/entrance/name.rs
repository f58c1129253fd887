//! Visitors of a name: a door has directed them to an entrance by the host that they named. Their
//! connections may return to the door: with a request for another host, and when the rules have
//! changed.

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ::link::Link;
use bytes::BytesMut;
use h1::Tracker;
use proto::{ResetCode, VisitorFields};
use relay::{Http, Leaving, Onward, Permit, Retry, Settings, Socket, Why, open_error_code};
use tokio::time::Instant;

use super::again::Failover;
use crate::answer::Answer;
use crate::backends::Picked;
use crate::names::Space;
use crate::session::Worker;
use capture::log::{Asked, Carried, Senders};

/// A visitor of a name that is directed to a service.
#[derive(Clone, Debug)]
pub struct NameVisitor {
    /// The door through which it arrived.
    pub door: Arc<dyn NameDoor>,
    /// The rules that directed it to the entrance.
    pub lead: Lead,
    /// The bytes that have been read from the socket.
    pub first: BytesMut,
    /// Its first request, for a response of the door instead of the service.
    pub asked: Asked,
    /// The fields that a load balancer announces about a visitor whose bytes pass through. HTTP
    /// connections carry requests for several services, which do not get the fields.
    pub fields: Option<VisitorFields>,
}

/// The rules by which a door has directed a visitor to an entrance.
#[derive(Clone, Debug)]
pub struct Lead {
    /// Whether the visitor speaks HTTP or TLS.
    pub space: Space,
    /// The host in the form for name lookups.
    pub host: Box<str>,
    /// The generation of the name table before the lookup.
    pub generation: u64,
    /// The edition of the backends.
    pub edition: u64,
    /// Whether HTTP requests and responses are tracked. Otherwise all bytes go to the service of
    /// the first request.
    pub tracked: bool,
    /// The header field that names the host, instead of `Host`.
    pub route_header: Option<Arc<str>>,
}

/// A door for visitors that name a host.
pub trait NameDoor: Senders + fmt::Debug + Send + Sync {
    /// Takes a connection that leaves the stream of its service.
    fn onward(self: Arc<Self>, worker: &Rc<Worker>, leaving: Leaving);

    /// Responds to a visitor instead of a service, and closes its connection.
    fn answer(&self, worker: &Worker, socket: Socket, asked: Asked, answer: Answer);

    /// The generation of the name table.
    fn generation(&self) -> u64;

    /// Whether a new visitor of the same host would be directed to the same entrance.
    fn leads(&self, lead: &Lead, peer: Option<SocketAddr>) -> bool;

    /// Admits a visitor again. `sent` are its bytes that have been read and the fields that a load
    /// balancer announced. The visitor may be held until `until`.
    fn again(
        self: Arc<Self>,
        worker: &Rc<Worker>,
        connection: (Socket, Option<SocketAddr>),
        space: Space,
        sent: (BytesMut, Option<VisitorFields>),
        until: Instant,
    );
}

impl NameVisitor {
    /// Opens the stream of a visitor that speaks HTTP. If the stream does not open, the door
    /// responds, because the first bytes of the visitor are lost with the stream.
    pub(super) fn serve(
        self,
        worker: &Rc<Worker>,
        link: &Link,
        open: proto::Open,
        socket: Socket,
        (settings, picked): (&Rc<Settings>, &Arc<Picked>),
        (permit, mut another): (Permit, Option<Failover>),
    ) {
        let Self { door, lead, first, asked, fields: _ } = self;
        let carried = Carried::new(
            &settings.stats,
            Arc::<Picked>::clone(picked),
            Arc::<dyn NameDoor>::clone(&door),
            open.visitor,
        );
        if let Some(another) = &mut another {
            another.carried = Some(Rc::clone(&carried));
        }
        let again =
            another.map(|another| Retry { handler: Box::new(another), first: BytesMut::new() });
        let tracker = lead.tracked.then(|| {
            let mut tracker = Tracker::new(lead.route_header.as_deref().map(Rc::from));
            tracker.observe(Rc::clone(&carried) as Rc<dyn h1::Observer>);
            tracker
        });
        let onward = Rc::new(Back {
            worker: Rc::clone(worker),
            door: Arc::clone(&door),
            generation: Cell::new(lead.generation),
            lead,
            peer: open.visitor,
            carried,
        });
        let http = Http { tracker, first, onward };
        let (permit, http) = (Some(permit), Some(http));
        let opened =
            relay::serve_visitor((socket, false), link, open, settings, permit, http, again);
        if let Err((socket, error)) = opened {
            tracing::debug!(%error, "visitor refused");
            settings.stats.count_refused(open_error_code(error));
            door.answer(worker, socket, asked, Answer::Down(ResetCode::Shutdown));
        }
    }
}

/// Returns the connections of one stream to their door.
#[derive(Debug)]
struct Back {
    worker: Rc<Worker>,
    door: Arc<dyn NameDoor>,
    lead: Lead,
    peer: Option<SocketAddr>,
    /// The last generation for which the lead was found unchanged.
    generation: Cell<u64>,
    /// The requests of the visitor.
    carried: Rc<Carried>,
}

impl Onward for Back {
    fn onward(&self, leaving: Leaving) {
        match &leaving.why {
            Why::Down(code) => self.carried.replaced(Answer::Down(*code).status().0),
            Why::Doubt(_) => self.carried.replaced(502),
            Why::Other(_) | Why::Changed | Why::Bad(_) => {}
        }
        Arc::clone(&self.door).onward(&self.worker, leaving);
    }

    fn is_current(&self) -> bool {
        let generation = self.door.generation();
        if generation == self.generation.get() {
            return true;
        }
        let is_same = self.door.leads(&self.lead, self.peer);
        if is_same {
            self.generation.set(generation);
        }
        is_same
    }
}

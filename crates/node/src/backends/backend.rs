//! A backend of an entrance, the part of it that a stream keeps, and the answer to a visitor.

use std::fmt;
use std::sync::Arc;

use arc_swap::Guard;
use proto::{Hop, ResetCode, Target};
use relay::Gate;

use crate::aim::Aim;
use crate::answer::Answer;
use crate::health::Health;
use crate::session::Session;

/// A session that serves visitors. It is immutable: a change replaces it.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The session whose links carry the streams. A new process of the client replaces the session
    /// with its own.
    pub session: Arc<Session>,
    /// The limit of streams.
    pub gate: Arc<Gate>,
    /// The part that a stream keeps.
    pub picked: Arc<Picked>,
    /// Finds the client again. `None`: the links of the client, if it has any, are at this node.
    pub(super) locator: Option<Arc<dyn Locator>>,
}

/// Finds a client whose links are at other nodes of the cluster. The session of its backend is that
/// of the links to such a node, or a session without links while the client is not found.
pub trait Locator: fmt::Debug + Send + Sync {
    /// The node to which this hop led does not serve the client, or serves it under another claim.
    /// `session` is the number of the session of the links to that node. The backend has to change
    /// before the call returns, so that the visitor does not go there again. The call must not
    /// block.
    fn moved(&self, hop: &Hop, session: u64);

    /// A visitor waits for a live link of the backend. Called repeatedly; must not block.
    fn awaited(&self);

    /// Whether the client was looked for in vain for so long that visitors wait no longer. A call
    /// makes the locator look for the client again; must not block.
    fn is_away(&self) -> bool;
}

/// The terms and the gate of an entrance at this moment.
#[derive(Debug)]
pub struct InForce(pub(super) Guard<Arc<Backend>>);

impl InForce {
    /// The terms, with the name in logs and status.
    pub fn aim(&self) -> &Arc<Aim> {
        &self.0.picked.aim
    }

    /// The backend for which a visitor is counted and logged that no backend has served.
    pub(crate) fn accountable(&self) -> &Arc<Picked> {
        &self.0.picked
    }

    /// Whether this process dials the targets itself.
    pub(crate) fn is_here(&self) -> bool {
        self.0.session.is_here()
    }

    /// The gate, whose holder has the sockets of visitors until a backend is picked.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.0.gate
    }
}

/// The part of a backend that a stream keeps until its end: log, status and limits of a stream name
/// it even if other backends serve the entrance by then. It does not hold the session, whose totals
/// are final when its last link has ended.
#[derive(Clone, Debug)]
pub struct Picked {
    /// The id of the session.
    pub session: u64,
    /// The client's name; on a client the name of the server.
    pub client: String,
    /// The service or the target, and the terms.
    pub aim: Arc<Aim>,
    /// Whether the target serves, as reported by the streams.
    pub health: Arc<Health>,
}

/// A backend that failed to serve a visitor: it opened no stream, or its stream was refused.
#[derive(Clone, Debug)]
pub struct Tried {
    pub picked: Arc<Picked>,
    pub why: ResetCode,
    /// Whether the refusal has been counted.
    pub is_counted: bool,
}

/// The backend for a visitor.
#[derive(Debug)]
pub enum Pick {
    /// This backend serves the visitor.
    To(Guard<Arc<Backend>>),
    /// A target that this process dials itself, as a proxy does, serves the visitor.
    Here(Guard<Arc<Backend>>),
    /// The session of the backend has no live link on this worker, but one on another worker.
    Elsewhere(Arc<Session>),
    /// There is a backend, but this worker has no live link to it.
    Wait,
    /// There is no backend.
    Refuse(Answer),
}

impl capture::log::Serving for Picked {
    fn names(&self) -> (&str, &str) {
        (&self.aim.name, &self.client)
    }
}

impl Picked {
    pub(super) fn new(session: &Session, aim: &Arc<Aim>) -> Self {
        let (client, aim) = (client_of(session, aim), Arc::clone(aim));
        Self { session: session.id, client, aim, health: Arc::default() }
    }

    /// The same part of the same service, behind another session.
    pub(super) fn behind(&self, session: &Session, aim: &Arc<Aim>) -> Self {
        Self { health: Arc::clone(&self.health), ..Self::new(session, aim) }
    }
}

/// The name of the client whose service the session serves. The session of a hop is that of the
/// links to another node.
fn client_of(session: &Session, aim: &Aim) -> String {
    match &aim.target {
        Target::Hop(hop) => hop.client.as_str().to_owned(),
        Target::Service(_)
        | Target::Marked { .. }
        | Target::Forward(_)
        | Target::Reported(_)
        | Target::Detour(_)
        | Target::Private { .. }
        | Target::Ask(_)
        | Target::Measure(_) => session.name.clone(),
    }
}

impl Backend {
    pub(super) fn new(aim: Aim, session: &Arc<Session>, gate: Arc<Gate>) -> Self {
        let picked = Arc::new(Picked::new(session, &Arc::new(aim)));
        Self { session: Arc::clone(session), gate, picked, locator: None }
    }

    /// The same backend behind another session, with health of its own.
    pub(super) fn of_session(&self, session: &Arc<Session>) -> Self {
        let picked = Arc::new(Picked::new(session, &self.picked.aim));
        Self { session: Arc::clone(session), picked, ..self.clone() }
    }

    /// Whether the client is at another node, or is looked for at other nodes.
    pub(crate) const fn is_elsewhere(&self) -> bool {
        self.locator.is_some()
    }

    /// Whether a link can take a visitor now. The client of a silent node is looked for at other
    /// nodes. A client of this node whose links are silent takes visitors: it has no other place.
    pub(crate) fn takes_visitors(&self) -> bool {
        if self.is_elsewhere() { self.session.answers() } else { self.session.live() > 0 }
    }

    /// Whether the client counts as disconnected ([`Session::is_away`]), at all nodes.
    pub fn is_away(&self) -> bool {
        self.session.is_away() && self.locator.as_ref().is_none_or(|locator| locator.is_away())
    }
}

impl Tried {
    pub(super) fn is(&self, backend: &Backend) -> bool {
        Arc::ptr_eq(&self.picked, &backend.picked)
    }
}

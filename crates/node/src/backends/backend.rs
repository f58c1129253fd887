//! A backend of an entrance, the part of it that a stream keeps, and the answer to a visitor.

use std::sync::Arc;

use arc_swap::Guard;
use proto::ResetCode;
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
    pub(super) fn new(session: &Session, aim: Aim) -> Arc<Self> {
        let (client, aim) = (session.name.clone(), Arc::new(aim));
        Arc::new(Self { session: session.id, client, aim, health: Arc::default() })
    }
}

impl Backend {
    pub(super) fn new(aim: Aim, session: &Arc<Session>, gate: Arc<Gate>) -> Self {
        Self { session: Arc::clone(session), gate, picked: Picked::new(session, aim) }
    }

    /// The same backend behind another session, with health of its own.
    pub(super) fn of_session(&self, session: &Arc<Session>) -> Self {
        let (client, aim) = (session.name.clone(), Arc::clone(&self.picked.aim));
        let picked = Picked { session: session.id, client, aim, health: Arc::default() };
        Self { session: Arc::clone(session), gate: Arc::clone(&self.gate), picked: picked.into() }
    }
}

impl Tried {
    pub(super) fn is(&self, backend: &Backend) -> bool {
        Arc::ptr_eq(&self.picked, &backend.picked)
    }
}

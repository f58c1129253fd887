//! A route: which client, which service, and how many visitors are admitted. An entrance binds the
//! address; its route may change while it listens.

use std::sync::Arc;

use arc_swap::ArcSwap;
use proto::{Priority, Target};
use relay::Gate;

use crate::session::Session;

/// Where the visitors of an entrance go.
#[derive(Debug)]
pub(crate) struct Route {
    /// The service or the target. Another one after a reload.
    pub(crate) aim: ArcSwap<Aim>,
    /// The session whose links carry the streams. Another one when a new process of the client
    /// takes over.
    pub(crate) session: ArcSwap<Session>,
    /// How many streams there may be.
    pub(crate) gate: ArcSwap<Gate>,
}

impl Route {
    pub(crate) fn new(aim: Aim, session: &Arc<Session>, gate: Arc<Gate>) -> Arc<Self> {
        let (aim, session) = (ArcSwap::from_pointee(aim), ArcSwap::new(Arc::clone(session)));
        Arc::new(Self { aim, session, gate: ArcSwap::new(gate) })
    }

    /// The name of the service or forward in logs and status.
    pub(crate) fn name(&self) -> String {
        self.aim.load().name.clone()
    }
}

/// What the far side of a stream is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Aim {
    /// In logs and status.
    pub(crate) name: String,
    /// What the far side dials.
    pub(crate) target: Target,
    /// Class of the streams.
    pub(crate) priority: Priority,
}

//! Another node, as the links to it and the visitors that need them know it.

use std::fmt;
use std::sync::{Arc, Mutex};

use cluster::names::NodeId;
use node::session::Session;

use super::news::News;
use crate::lock::lock;
use crate::mail::Mailbox;

/// Another node.
pub(crate) struct Remote {
    pub(crate) node: NodeId,
    /// The session of all links to it.
    pub(crate) session: Arc<Session>,
    /// The messages that wait for it.
    pub(super) mailbox: Arc<Mailbox>,
    /// The links that carry its messages.
    pub(super) news: News,
    /// Why there is no link.
    trouble: Mutex<Option<String>>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.node)
    }
}

impl Remote {
    pub(super) fn new(node: &NodeId, session: Arc<Session>, mailbox: Arc<Mailbox>) -> Arc<Self> {
        let (news, trouble) = Default::default();
        Arc::new(Self { node: node.clone(), session, mailbox, news, trouble })
    }

    /// Why there is no link.
    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }

    /// Records why there is no link. `lasts`: the visitors that wait for one are refused.
    pub(super) fn fail(&self, why: String, lasts: bool) {
        let former = lock(&self.trouble).replace(why.clone());
        let node = &self.node;
        if former.as_ref() == Some(&why) {
            tracing::debug!(%node, "no link to node {node}: {why}; trying again");
        } else {
            tracing::warn!(%node, "no link to node {node}: {why}; trying again");
        }
        if lasts {
            self.session.refuse_waiting();
        }
    }

    /// Records that there is a link, or that there may be one soon.
    pub(super) fn succeed(&self) {
        *lock(&self.trouble) = None;
    }
}

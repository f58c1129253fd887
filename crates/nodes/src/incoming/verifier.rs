//! Who may log in at the listeners for nodes: whoever has a certificate of a node, but this node.

use std::cell::Cell;
use std::sync::Arc;

use ::link::server::{Verifier, VerifierFuture};
use proto::greeting::{Features, Grant, LinkSecret, Name, Refusal, StoredCredential, Terms};
use proto::{InstanceId, LinkId};
use transport::Peer;

use crate::shared::NodeShared;

/// The verifier of one greeting.
pub(super) struct NodeVerifier<'a> {
    shared: &'a Arc<NodeShared>,
    /// Whoever has connected has the name of this node.
    is_own: Cell<bool>,
}

impl<'a> NodeVerifier<'a> {
    pub(super) const fn new(shared: &'a Arc<NodeShared>) -> Self {
        Self { shared, is_own: Cell::new(false) }
    }

    /// Whether the log-in was refused because of the name of this node.
    pub(super) const fn is_own(&self) -> bool {
        self.is_own.get()
    }

    fn terms(&self, grant: &Grant) -> Result<Terms, Refusal> {
        if grant.name == self.shared.name {
            self.is_own.set(true);
            return Err(Refusal::Denied);
        }
        if !grant.certificate {
            return Err(Refusal::BadCredential);
        }
        if self.shared.is_leaving() {
            return Err(Refusal::Unavailable);
        }
        let incomings = &self.shared.incomings;
        if grant.attach.is_none() && !incomings.have_room(&grant.name) {
            return Err(Refusal::Limit);
        }
        let link = self.shared.link_config();
        Ok(Terms {
            new_link: LinkId::compose(incomings.generation(), ::link::random()),
            resume_timeout: link.resume_timeout,
            keepalive: link.keepalive,
        })
    }
}

impl Verifier for NodeVerifier<'_> {
    /// No node has a token.
    fn credentials<'b>(&'b self, _: &'b Name) -> VerifierFuture<'b, Vec<StoredCredential>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn features(&self) -> Features {
        Features::OF_NODE
    }

    /// The greeting has compared the name with that of the certificate.
    fn certificate_suffices(&self, _: &Name) -> bool {
        true
    }

    fn link_secret(&self, name: &Name, instance: InstanceId, link: LinkId) -> Option<LinkSecret> {
        self.shared.incomings.secret(name, instance, link)
    }

    fn decide<'b>(&'b self, grant: &'b Grant, _: &'b Peer) -> VerifierFuture<'b, Terms> {
        Box::pin(std::future::ready(self.terms(grant)))
    }
}

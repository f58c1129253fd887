//! Who may log in at the listeners for nodes: whoever has a certificate of a node, and over
//! `tcp://` whoever proves a name by the secret of the cluster, but not this node.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::link::server::{Verifier, VerifierFuture};
use proto::greeting::{Features, Grant, LinkSecret, Name, Refusal, StoredCredential, Terms};
use proto::{InstanceId, LinkId};
use transport::Peer;

use crate::shared::NodeShared;

/// The verifier of one greeting.
pub(super) struct NodeVerifier<'a> {
    shared: &'a Arc<NodeShared>,
    /// The transport has no certificates.
    is_plain: bool,
    /// The proof by the secret of the cluster was right.
    is_proved: Cell<bool>,
    /// Whoever has connected has the name of this node.
    is_own: Cell<bool>,
}

impl<'a> NodeVerifier<'a> {
    pub(super) const fn new(shared: &'a Arc<NodeShared>, is_plain: bool) -> Self {
        Self { shared, is_plain, is_proved: Cell::new(false), is_own: Cell::new(false) }
    }

    /// Whether the transport has no certificates.
    pub(super) const fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Whether the log-in was refused because of the name of this node.
    pub(super) const fn is_own(&self) -> bool {
        self.is_own.get()
    }

    fn terms(&self, grant: &Grant) -> Result<Terms, Refusal> {
        self.is_proved.set(true);
        if grant.name == self.shared.name {
            self.is_own.set(true);
            return Err(Refusal::Denied);
        }
        // Over TLS no token counts, and without TLS there is no certificate.
        if grant.certificate == self.is_plain {
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
    /// Over TLS no node has a token.
    fn credentials<'b>(&'b self, name: &'b Name) -> VerifierFuture<'b, Vec<StoredCredential>> {
        let all = if self.is_plain {
            self.shared.keys.credentials(name, &self.shared.name)
        } else {
            Vec::new()
        };
        Box::pin(std::future::ready(Ok(all)))
    }

    fn features(&self) -> Features {
        Features::OF_NODE
    }

    /// The greeting has compared the name with that of the certificate.
    fn certificate_suffices(&self, _: &Name) -> bool {
        !self.is_plain
    }

    fn link_secret(&self, name: &Name, instance: InstanceId, link: LinkId) -> Option<LinkSecret> {
        self.is_proved.set(true);
        self.shared.incomings.secret(name, instance, link)
    }

    /// Guessing the secret is slowed down. A node that has proved its name and is refused for
    /// another reason, such as a link that has ended with its process, does not wait.
    fn penalty(&self, name: &Name, peer: &Peer) -> Duration {
        if !self.is_plain || self.is_proved.get() {
            return Duration::ZERO;
        }
        self.shared.incomings.brake(name, peer.address.ip(), Instant::now())
    }

    fn decide<'b>(&'b self, grant: &'b Grant, _: &'b Peer) -> VerifierFuture<'b, Terms> {
        Box::pin(std::future::ready(self.terms(grant)))
    }
}

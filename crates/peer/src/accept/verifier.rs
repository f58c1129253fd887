//! Who may log in on a stream: the visitor that the server has named, with the token that the
//! service has for it, or with a certificate of the authority that the service trusts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::link::server::{Verifier, VerifierFuture};
use proto::greeting::{Grant, LinkSecret, Name, Refusal, StoredCredential, Terms};
use proto::{InstanceId, LinkId};
use transport::Peer;

use super::lock::lock;
use super::proof::{credentials, is_valid, material, takes_browsers};
use crate::home::Home;
use crate::visit::VisitKey;
use node::memory;

/// The verifier of one greeting.
pub(super) struct PeerVerifier<'a> {
    shared: &'a Arc<dyn Home>,
    whose: &'a VisitKey,
}

impl<'a> PeerVerifier<'a> {
    pub(super) const fn new(shared: &'a Arc<dyn Home>, whose: &'a VisitKey) -> Self {
        Self { shared, whose }
    }

    fn terms(&self, grant: &Grant, peer: &Peer) -> Result<Terms, Refusal> {
        let config = self.shared.config().load();
        if peer.exporter.is_none() && !takes_browsers(&config, &self.whose.service) {
            return Err(Refusal::Denied);
        }
        if self.shared.is_leaving() {
            return Err(Refusal::Unavailable);
        }
        let places = &self.shared.host().places;
        if grant.attach.is_none() && !places.have_room(self.whose) {
            return Err(Refusal::Limit);
        }
        let link = memory::link_config(&config.common);
        Ok(Terms {
            new_link: LinkId::compose(places.generation(), ::link::random()),
            resume_timeout: link.resume_timeout,
            keepalive: link.keepalive,
        })
    }
}

impl Verifier for PeerVerifier<'_> {
    fn credentials<'b>(&'b self, name: &'b Name) -> VerifierFuture<'b, Vec<StoredCredential>> {
        let is_named = *name == self.whose.visitor;
        let known = is_named.then(|| credentials(&self.shared.config().load(), self.whose));
        Box::pin(async { Ok(known.unwrap_or_default()) })
    }

    /// The first carrier of a link shows the certificate, inside the stream through the server. A
    /// direct path belongs to a link that has begun in this way.
    fn links_suffice(&self) -> bool {
        material(self.shared, &self.shared.config().load(), self.whose).is_some()
    }

    fn certificate_suffices(&self, name: &Name) -> bool {
        let is_named = *name == self.whose.visitor;
        is_named && material(self.shared, &self.shared.config().load(), self.whose).is_some()
    }

    /// The certificate that a link began with may have expired since.
    fn link_secret(&self, name: &Name, instance: InstanceId, link: LinkId) -> Option<LinkSecret> {
        let (shared, whose) = (self.shared, self.whose);
        if *name != whose.visitor {
            return None;
        }
        let (secret, proved) = shared.host().places.secret(whose, instance, link)?;
        is_valid(shared, &shared.config().load(), whose, &proved).then_some(secret)
    }

    fn decide<'b>(&'b self, grant: &'b Grant, peer: &'b Peer) -> VerifierFuture<'b, Terms> {
        Box::pin(std::future::ready(self.terms(grant, peer)))
    }

    fn penalty(&self, _: &Name, _: &Peer) -> Duration {
        lock(&self.shared.host().brake).count(self.whose.clone(), Instant::now())
    }
}

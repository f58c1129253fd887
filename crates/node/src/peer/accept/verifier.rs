//! Who may log in on a stream: the visitor that the server has named, with the token that the service
//! has for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::link::server::{Verifier, VerifierFuture};
use proto::greeting::{Grant, LinkSecret, Name, Refusal, StoredCredential, Terms};
use proto::{InstanceId, LinkId};
use transport::Peer;

use super::{Whose, credentials, lock};
use crate::client::ClientShared;
use crate::memory;

/// The verifier of one greeting.
pub(super) struct PeerVerifier<'a> {
    shared: &'a Arc<ClientShared>,
    whose: &'a Whose,
}

impl<'a> PeerVerifier<'a> {
    pub(super) const fn new(shared: &'a Arc<ClientShared>, whose: &'a Whose) -> Self {
        Self { shared, whose }
    }

    fn terms(&self, grant: &Grant) -> Result<Terms, Refusal> {
        if self.shared.is_leaving() {
            return Err(Refusal::Unavailable);
        }
        let places = &self.shared.host.places;
        if grant.attach.is_none() && !places.have_room(self.whose) {
            return Err(Refusal::Limit);
        }
        let link = memory::link_config(&self.shared.config.load().common);
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
        let known = is_named.then(|| credentials(&self.shared.config.load(), self.whose));
        Box::pin(async { Ok(known.unwrap_or_default()) })
    }

    fn certificate_suffices(&self, _: &Name) -> bool {
        false
    }

    fn link_secret(&self, name: &Name, instance: InstanceId, link: LinkId) -> Option<LinkSecret> {
        let is_named = *name == self.whose.visitor;
        is_named.then(|| self.shared.host.places.secret(self.whose, instance, link))?
    }

    fn decide<'b>(&'b self, grant: &'b Grant, _: &'b Peer) -> VerifierFuture<'b, Terms> {
        Box::pin(std::future::ready(self.terms(grant)))
    }

    fn penalty(&self, _: &Name, _: &Peer) -> Duration {
        lock(&self.shared.host.brake).count(self.whose.clone(), Instant::now())
    }
}

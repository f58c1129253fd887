//! Who may log in, with which rights, and who takes over from whom.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use link::server::{PreviewFuture, Verifier, VerifierFuture};
use proto::greeting::{Attach, Grant, LinkSecret, Name, Refusal, StoredCredential, Terms};
use proto::{InstanceId, LinkId};
use transport::Peer;

use super::clients::Client;
use super::registry::Registry;

/// Answers the questions of one greeting.
pub(super) struct Auth<'a> {
    registry: &'a Arc<Registry>,
    claimed: RefCell<Option<String>>,
    certificate: RefCell<Option<String>>,
    address: Cell<Option<SocketAddr>>,
    /// Of the entry that it was compared with.
    epoch: Cell<Option<u64>>,
    /// The code that it was compared with.
    code: RefCell<Option<StoredCredential>>,
    by_code: Cell<bool>,
    by_certificate: Cell<bool>,
}

impl<'a> Auth<'a> {
    pub(super) fn new(registry: &'a Arc<Registry>) -> Self {
        let (claimed, certificate, code) = Default::default();
        let (address, epoch) = (Cell::new(None), Cell::new(None));
        let (by_code, by_certificate) = Default::default();
        Self { registry, claimed, certificate, address, epoch, code, by_code, by_certificate }
    }

    /// Who is at the far end, now that the handshake is done.
    pub(super) fn note_peer(&self, peer: &Peer) {
        self.certificate.borrow_mut().clone_from(&peer.certificate_name);
        self.address.set(Some(peer.address));
    }

    /// The client's address, which a reverse proxy may have told.
    pub(super) const fn address(&self) -> Option<SocketAddr> {
        self.address.get()
    }

    /// The name in the certificate that the client showed.
    pub(super) fn certificate(&self) -> Option<String> {
        self.certificate.borrow().clone()
    }

    /// The name that the client gave, proved or not; it has the form of one.
    pub(super) fn claimed(&self) -> Option<String> {
        self.claimed.borrow().clone()
    }

    /// Of the entry under `clients` that the log-in was checked by: a reload meanwhile makes it
    /// void.
    pub(super) const fn epoch(&self) -> Option<u64> {
        self.epoch.get()
    }

    /// Whether it has no token, but the certificate.
    pub(super) fn came_by_certificate(&self) -> bool {
        self.by_certificate.get()
    }

    /// Whether it brought a code, good or not.
    pub(super) fn brought_a_code(&self) -> bool {
        self.by_code.get()
    }

    fn terms(&self, grant: &Grant) -> Result<Terms, Refusal> {
        if grant.attach.is_none() && grant.enrolled.is_none() {
            self.registry.admit(grant)?;
        }
        Ok(self.kept_terms())
    }

    fn kept_terms(&self) -> Terms {
        let config = self.registry.shared().link.get();
        Terms {
            new_link: self.registry.new_link_id(),
            resume_timeout: config.resume_timeout,
            keepalive: config.keepalive,
        }
    }

    /// The code was right, so its client is one of ours from now on.
    async fn enroll(&self, name: &Name, enrolled: StoredCredential) -> Result<(), Refusal> {
        let Some(code) = self.code.take() else { return Err(Refusal::BadCredential) };
        let (registry, own) = (Arc::clone(self.registry), name.clone());
        // In a task of its own: a greeting may be cut off at any moment, and this not.
        let work = async move { registry.enroll(&own, &code, enrolled).await };
        let outcome = tokio::task::spawn_local(work).await;
        match outcome.unwrap_or_else(|defect| Err(defect.into())) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refusal::BadCredential),
            Err(why) => {
                tracing::error!("client `{name}` could not be enrolled: {why:#}");
                Err(Refusal::Unavailable)
            }
        }
    }

    fn client(&self, name: &Name) -> Option<Arc<Client>> {
        let client = self.registry.shared().clients.find(name.as_str());
        // The first answer counts: what is asked later may be of another entry.
        if self.epoch.get().is_none() {
            self.epoch.set(client.as_ref().map(|client| client.epoch));
        }
        client
    }
}

impl Verifier for Auth<'_> {
    fn credentials<'b>(&'b self, name: &'b Name) -> VerifierFuture<'b, Vec<StoredCredential>> {
        *self.claimed.borrow_mut() = Some(name.as_str().to_owned());
        Box::pin(async {
            let source = self.address.get().map(|address| address.ip());
            self.registry.ask_about(name.as_str(), source).await?;
            Ok(self.client(name).map(|client| client.credentials.clone()).unwrap_or_default())
        })
    }

    fn code(&self, name: &Name) -> Option<StoredCredential> {
        *self.claimed.borrow_mut() = Some(name.as_str().to_owned());
        self.by_code.set(true);
        let code = self.registry.shared().enrolments.code(name);
        self.code.borrow_mut().clone_from(&code);
        code
    }

    fn introductions(&self) -> bool {
        self.registry.shared().clients.may_be_any()
    }

    fn certificate_suffices(&self, name: &Name) -> bool {
        *self.claimed.borrow_mut() = Some(name.as_str().to_owned());
        self.by_certificate.set(true);
        self.client(name).is_some_and(|client| client.by_certificate)
    }

    fn link_secret(&self, name: &Name, instance: InstanceId, link: LinkId) -> Option<LinkSecret> {
        self.registry.link_secret(name.as_str(), instance, link)
    }

    fn preview<'b>(
        &'b self,
        name: &'b Name,
        instance: InstanceId,
        claim: Attach,
    ) -> PreviewFuture<'b> {
        Box::pin(async move {
            let preview = self.registry.preview(name.as_str(), instance, claim).await?;
            Some((self.kept_terms(), preview))
        })
    }

    fn decide<'b>(&'b self, grant: &'b Grant, _peer: &'b Peer) -> VerifierFuture<'b, Terms> {
        Box::pin(async {
            if let Some(credential) = &grant.introduced {
                self.registry.introduce(&grant.name, credential.clone())?;
                // Of what there is of it now, not of whom it took the name from.
                self.epoch.set(None);
                self.client(&grant.name);
            }
            if let Some(enrolled) = &grant.enrolled {
                self.enroll(&grant.name, enrolled.clone()).await?;
            }
            self.terms(grant)
        })
    }

    fn penalty(&self, name: &Name, peer: &Peer) -> Duration {
        self.registry.brake().penalty(name.as_str(), peer.address.ip(), Instant::now())
    }
}

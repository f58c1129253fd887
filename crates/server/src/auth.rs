//! The checks of a log-in: the credential, the rights, and whether a client process may take over
//! from another.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use link::server::{OtherEnd, PreviewFuture, Stray, Verifier, VerifierFuture};
use proto::greeting::{
    Attach, Features, Grant, LinkSecret, Name, Refusal, StoredCredential, Terms,
};
use proto::{InstanceId, LinkId};
use transport::Peer;

use super::clients::{Client, Denied};
use super::registry::Registry;

/// The verifier of one greeting.
pub(super) struct Auth<'a> {
    registry: &'a Arc<Registry>,
    /// The worker of the connection.
    worker: usize,
    claimed: RefCell<Option<String>>,
    certificate: RefCell<Option<String>>,
    address: Cell<Option<SocketAddr>>,
    /// The epoch of the `clients` entry that the credential was compared with.
    epoch: Cell<Option<u64>>,
    /// The code that the credential was compared with.
    code: RefCell<Option<StoredCredential>>,
    by_code: Cell<bool>,
    /// Why the client could not introduce itself.
    denied: Cell<Option<Denied>>,
    by_certificate: Cell<bool>,
}

impl<'a> Auth<'a> {
    pub(super) fn new(registry: &'a Arc<Registry>, worker: usize) -> Self {
        let (claimed, certificate, code) = Default::default();
        let (address, epoch) = (Cell::new(None), Cell::new(None));
        let (by_code, denied, by_certificate) = Default::default();
        Self {
            registry,
            worker,
            claimed,
            certificate,
            address,
            epoch,
            code,
            by_code,
            denied,
            by_certificate,
        }
    }

    /// Records the peer after the handshake.
    pub(super) fn note_peer(&self, peer: &Peer) {
        self.certificate.borrow_mut().clone_from(&peer.certificate_name);
        self.address.set(Some(peer.address));
    }

    /// The client's address. A reverse proxy may have reported it.
    pub(super) const fn address(&self) -> Option<SocketAddr> {
        self.address.get()
    }

    /// The name in the client's certificate.
    pub(super) fn certificate(&self) -> Option<String> {
        self.certificate.borrow().clone()
    }

    /// The name that the client claims, proved or not. It is a valid name.
    pub(super) fn claimed(&self) -> Option<String> {
        self.claimed.borrow().clone()
    }

    /// The epoch of the `clients` entry against which the log-in was checked. A reload that changes
    /// the entry meanwhile makes the log-in void.
    pub(super) const fn epoch(&self) -> Option<u64> {
        self.epoch.get()
    }

    /// Whether the client uses its certificate instead of a token.
    pub(super) fn came_by_certificate(&self) -> bool {
        self.by_certificate.get()
    }

    /// Whether the client uses a code, valid or not.
    pub(super) fn brought_a_code(&self) -> bool {
        self.by_code.get()
    }

    /// Why the client could not introduce itself, if it tried.
    pub(super) const fn denied(&self) -> Option<Denied> {
        self.denied.get()
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

    /// Enrols a client whose code was valid.
    async fn enroll(&self, name: &Name, enrolled: StoredCredential) -> Result<(), Refusal> {
        let Some(code) = self.code.take() else { return Err(Refusal::BadCredential) };
        let (registry, own) = (Arc::clone(self.registry), name.clone());
        // In a separate task, because a greeting may be cancelled at any moment, and an enrolment
        // must not be.
        let work = async move { registry.enroll(&own, &code, enrolled).await };
        let outcome = tokio::task::spawn_local(work).await;
        match outcome.unwrap_or_else(|defect| Err(defect.into())) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refusal::BadCredential),
            Err(why) => {
                let client = name.as_str();
                tracing::error!(client, "client `{name}` could not be enrolled: {why:#}");
                Err(Refusal::Unavailable)
            }
        }
    }

    /// Makes the old token of a client void if this is the first log-in with the token of a
    /// renewal.
    async fn settle(&self, grant: &Grant) {
        let find = || self.registry.shared().clients.find(grant.name.as_str());
        let Some(client) = find().filter(|client| client.enrolled) else { return };
        if client.renewal.as_ref() == Some(&grant.credential) {
            let (registry, own) = (Arc::clone(self.registry), grant.name.clone());
            let (credential, instance) = (grant.credential.clone(), grant.instance);
            // In a separate task, as an enrolment.
            let work = async move { registry.settle(&own, &credential, instance).await };
            let outcome = tokio::task::spawn_local(work).await;
            if let Err(why) = outcome.unwrap_or_else(|defect| Err(defect.into())) {
                // Both tokens stay valid, and the next log-in tries again.
                let client = grant.name.as_str();
                tracing::error!(
                    client,
                    "the old token of client `{client}` could not be removed: {why:#}"
                );
            }
        }
        // The credential is proved, so the client may log in while its entry contains it. Another
        // link of the process may have made the old token void since the entry was read.
        if let Some(client) = find().filter(|now| now.credentials.contains(&grant.credential)) {
            self.epoch.set(Some(client.epoch));
        }
    }

    fn client(&self, name: &Name) -> Option<Arc<Client>> {
        let client = self.registry.shared().clients.find(name.as_str());
        // The first answer counts, because a later answer may come from another entry.
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
            self.registry.learn_at_log_in(name).await;
            let source = self.address.get().map(|address| address.ip());
            self.registry.ask_about(name.as_str(), source).await?;
            Ok(self.client(name).map(|client| client.credentials.clone()).unwrap_or_default())
        })
    }

    fn code<'b>(&'b self, name: &'b Name) -> VerifierFuture<'b, Option<StoredCredential>> {
        *self.claimed.borrow_mut() = Some(name.as_str().to_owned());
        self.by_code.set(true);
        Box::pin(async {
            let code = self.registry.code_at_log_in(name).await?;
            self.code.borrow_mut().clone_from(&code);
            Ok(code)
        })
    }

    fn features(&self) -> Features {
        self.registry.shared().features
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

    fn pass_on<'b>(&'b self, stray: Stray<'b>) -> VerifierFuture<'b, Option<OtherEnd>> {
        Box::pin(self.registry.shared().strays.pass_on(stray, self.worker))
    }

    fn decide<'b>(&'b self, grant: &'b Grant, peer: &'b Peer) -> VerifierFuture<'b, Terms> {
        Box::pin(async {
            if let Some(credential) = &grant.introduced {
                let source = peer.address.ip();
                let introduced = self.registry.introduce(&grant.name, credential.clone(), source);
                introduced.map_err(|denied| {
                    self.denied.set(Some(denied));
                    denied.refusal()
                })?;
                // The epoch must be that of the new entry, and not that of a client that had the
                // name before.
                self.epoch.set(None);
                self.client(&grant.name);
            }
            if let Some(enrolled) = &grant.enrolled {
                self.enroll(&grant.name, enrolled.clone()).await?;
            }
            let is_link = grant.attach.is_none() && grant.enrolled.is_none();
            if is_link && self.registry.was_replaced(grant).await {
                return Err(Refusal::Superseded);
            }
            let terms = self.terms(grant)?;
            if is_link {
                self.settle(grant).await;
            }
            Ok(terms)
        })
    }

    fn penalty(&self, name: &Name, peer: &Peer) -> Duration {
        self.registry.brake().penalty(name.as_str(), peer.address.ip(), Instant::now())
    }
}

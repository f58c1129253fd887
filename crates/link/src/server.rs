//! The server's half of a greeting. Who may log in is decided by a [`Verifier`]; which worker gets
//! the link, by the caller: a [`Greeted`] can be sent to it.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::BytesMut;
use proto::greeting::{
    Attach as Claim, AttachMode, Features, Grant, LinkSecret, NONCE_LENGTH, Name, Refusal,
    ServerAccepted, ServerSetup, StoredCredential, Terms, Versions,
};
use proto::{Attach, InstanceId, LinkId, Preview};
use transport::{Carrier, Early, Peer};

use crate::{GreetError, Link, greet};

/// What a verifier says, or why it says nothing.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + 'a>>;

/// What a link is shown as before its client is known, with the terms it is told.
pub type Shown<'a> = Pin<Box<dyn Future<Output = Option<(Terms, Preview)>> + 'a>>;

/// Decides who may log in. Called on any worker.
pub trait Verifier {
    /// The credentials of a name, at most two; none for an unknown one.
    fn credentials<'a>(&'a self, name: &'a Name) -> Answer<'a, Vec<StoredCredential>>;
    /// The credential of the one-time code that a name may have.
    fn code(&self, _name: &Name) -> Option<StoredCredential> {
        None
    }
    /// Whether somebody may come in whose name is unknown, and introduce himself.
    fn introductions(&self) -> bool {
        false
    }
    /// Whether a client of this name is believed by its verified certificate alone.
    fn certificate_suffices(&self, name: &Name) -> bool;
    /// The secret of a live link of this process of this client.
    fn link_secret(&self, name: &Name, instance: InstanceId, link: LinkId) -> Option<LinkSecret>;
    /// Somebody has shown the secret of this link before the handshake is done, maybe not for the
    /// first time: what he may see, [`Link::preview`]. Nothing may change by it.
    fn preview<'a>(&'a self, _name: &'a Name, _instance: InstanceId, _claim: Claim) -> Shown<'a> {
        Box::pin(async { None })
    }
    /// All is proved: may it come in? The terms carry a fresh link id.
    fn decide<'a>(&'a self, grant: &'a Grant, peer: &'a Peer) -> Answer<'a, Terms>;
    /// A log-in under this name failed: how long its refusal is to wait, a few seconds at most.
    fn penalty(&self, _name: &Name, _peer: &Peer) -> Duration {
        Duration::ZERO
    }
}

/// A carrier whose greeting is done; on its way to the worker of its link.
#[derive(Debug)]
pub struct Greeted {
    /// Who it is, and what it wants.
    pub grant: Grant,
    /// What it got.
    pub accepted: ServerAccepted,
    /// The connection.
    pub carrier: Carrier,
    leftover: BytesMut,
    /// What was shown of the link on this very carrier.
    preview: Option<Preview>,
}

/// Greets a client over a fresh carrier, within ten seconds and 4 KiB.
///
/// # Errors
/// What the greeting failed by. A refusal was sent to the client.
pub async fn greet(carrier: Carrier, verifier: &dyn Verifier) -> Result<Greeted, GreetError> {
    greet_early(carrier, None, verifier).await
}

/// The same over a carrier whose handshake may not be done.
///
/// # Errors
/// As for [`greet()`].
pub async fn greet_early(
    mut carrier: Carrier,
    early: Option<Early>,
    verifier: &dyn Verifier,
) -> Result<Greeted, GreetError> {
    let setup = ServerSetup {
        binding: greet::binding(&carrier.peer),
        certificate_name: carrier.peer.certificate_name.clone(),
        versions: Versions::OURS,
        features: Features(0),
        introductions: verifier.introductions(),
        nonce: crate::random::<NONCE_LENGTH>(),
    };
    let done = greet::greet_client(&mut carrier, early, verifier, setup).await?;
    let greet::Done { grant, accepted, leftover, preview } = done;
    Ok(Greeted { grant, accepted, carrier, leftover, preview })
}

impl Greeted {
    /// Leaves this worker's runtime; see [`transport::Lane::detach`].
    ///
    /// # Errors
    /// The connection is lost.
    pub fn detach(&mut self) -> io::Result<()> {
        self.carrier.lane.detach()
    }

    /// Joins the runtime of the link's worker.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn join(&mut self) -> io::Result<()> {
        self.carrier.lane.attach()
    }

    /// Becomes a carrier of its link. False: an older number than one the link has seen, or what was
    /// shown of the link is void.
    #[must_use]
    pub fn attach_to(self, link: &Link) -> bool {
        if let Some(preview) = &self.preview {
            let number = self.accepted.carrier;
            return link.attach_previewed(number, preview, self.carrier, self.leftover);
        }
        let how = match self.grant.attach.map(|attach| attach.mode) {
            None => Attach::New,
            Some(AttachMode::Adds) => Attach::Adds,
            Some(AttachMode::Replaces(number)) => Attach::Replaces(number),
        };
        link.attach(self.accepted.carrier, how, self.carrier, self.leftover)
    }
}

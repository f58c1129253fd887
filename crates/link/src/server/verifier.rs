//! Who decides what a server answers to a greeting.

use std::pin::Pin;
use std::time::Duration;

use proto::greeting::{Attach as Claim, Grant, LinkSecret, Name, Refusal, StoredCredential, Terms};
use proto::{InstanceId, LinkId, Preview};
use transport::Peer;

/// What a verifier says, or why it says nothing.
pub type VerifierFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + 'a>>;

/// What a link is shown as before its client is known, with the terms it is told.
pub type PreviewFuture<'a> = Pin<Box<dyn Future<Output = Option<(Terms, Preview)>> + 'a>>;

/// Decides who may log in. Called on any worker.
pub trait Verifier {
    /// The credentials of a name, at most two; none for an unknown one.
    fn credentials<'a>(&'a self, name: &'a Name) -> VerifierFuture<'a, Vec<StoredCredential>>;
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
    /// first time: what he may see, [`crate::Link::preview`]. Nothing may change by it.
    fn preview<'a>(
        &'a self,
        _name: &'a Name,
        _instance: InstanceId,
        _claim: Claim,
    ) -> PreviewFuture<'a> {
        Box::pin(async { None })
    }
    /// All is proved: may it come in? The terms carry a fresh link id.
    fn decide<'a>(&'a self, grant: &'a Grant, peer: &'a Peer) -> VerifierFuture<'a, Terms>;
    /// A log-in under this name failed: how long its refusal is to wait, a few seconds at most.
    fn penalty(&self, _name: &Name, _peer: &Peer) -> Duration {
        Duration::ZERO
    }
}

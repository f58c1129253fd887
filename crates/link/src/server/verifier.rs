//! The interface by which a server decides on log-ins.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proto::greeting::{
    Attach as Claim, Features, Grant, LinkSecret, Name, Refusal, StoredCredential, Terms,
};
use proto::{InstanceId, LinkId, Preview};
use transport::{Lane, Peer};

/// The reply of a verifier, or its refusal.
pub type VerifierFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + 'a>>;

/// The preview of a link for a client that is not authenticated yet, with the terms of the link.
pub type PreviewFuture<'a> = Pin<Box<dyn Future<Output = Option<(Terms, Preview)>> + 'a>>;

/// A carrier whose link this process does not have. Its client is authenticated; whether the client
/// has the secret of the link is for the process with the link to check.
pub struct Stray<'a> {
    /// The name of the client.
    pub name: &'a Name,
    /// The link to which the carrier attaches.
    pub link: LinkId,
    /// The far end of the carrier.
    pub peer: &'a Peer,
    /// The greeting as [`log_in_passed`](super::log_in_passed) continues it: a
    /// [`PassedGreeting`](proto::greeting::PassedGreeting), and all bytes of the client.
    pub said: Bytes,
}

/// Omits the bytes, which bind the carrier to its connection.
impl fmt::Debug for Stray<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stray").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The connection to the process that has the link of a carrier.
#[derive(Debug)]
pub struct OtherEnd {
    /// The connection, which has taken what the client said.
    pub lane: Box<dyn Lane>,
    /// The first bytes of the answer.
    pub answer: BytesMut,
}

/// Decides which clients may log in. Called on any worker.
pub trait Verifier {
    /// The credentials of a name, at most two. An unknown name has none.
    fn credentials<'a>(&'a self, name: &'a Name) -> VerifierFuture<'a, Vec<StoredCredential>>;
    /// The credential of the one-time code that a name may have.
    fn code<'a>(&'a self, _name: &'a Name) -> VerifierFuture<'a, Option<StoredCredential>> {
        Box::pin(async { Ok(None) })
    }
    /// The features that this server announces.
    fn features(&self) -> Features {
        Features::OURS
    }
    /// Whether a client with an unknown name may log in and thereby register its credential.
    fn introductions(&self) -> bool {
        false
    }
    /// Whether the secret of a link suffices for its additional carriers, if only the certificate
    /// authenticated the first.
    fn links_suffice(&self) -> bool {
        false
    }
    /// Whether the verified certificate of a client suffices as authentication, without a token.
    fn certificate_suffices(&self, name: &Name) -> bool;
    /// The secret of a live link of this client process (`instance`).
    fn link_secret(&self, name: &Name, instance: InstanceId, link: LinkId) -> Option<LinkSecret>;
    /// The preview of a link ([`crate::Link::preview`]) for a client that proved the secret of the
    /// link in early data. The early data may be a replay, so the call must change nothing.
    fn preview<'a>(
        &'a self,
        _name: &'a Name,
        _instance: InstanceId,
        _claim: Claim,
    ) -> PreviewFuture<'a> {
        Box::pin(async { None })
    }
    /// Passes a carrier with a single lane on to the process that has its link. `None`: no other
    /// process has the link.
    fn pass_on<'a>(&'a self, _stray: Stray<'a>) -> VerifierFuture<'a, Option<OtherEnd>> {
        Box::pin(async { Ok(None) })
    }
    /// Decides whether an authenticated client may log in. The terms contain a new link id.
    fn decide<'a>(&'a self, grant: &'a Grant, peer: &'a Peer) -> VerifierFuture<'a, Terms>;
    /// The delay of a refusal after a failed log-in under this name, at most a few seconds.
    fn penalty(&self, _name: &Name, _peer: &Peer) -> Duration {
        Duration::ZERO
    }
}

//! A carrier that has completed its greeting and is not attached to its link yet.

use std::io;

use bytes::BytesMut;
use proto::greeting::{
    AttachMode, Grant, GreetingError, NONCE_LENGTH, Refusal, ServerAccepted, ServerSetup, Versions,
};
use proto::{Attach, Preview};
use transport::{Carrier, Early};

use super::exchange::{self, Begin, Done, GreetingEnd};
use super::verifier::{OtherEnd, Verifier};
use crate::greet::{GreetError, binding};
use crate::inner::Link;

/// A carrier whose greeting is complete. It can be moved to the worker of its link.
#[derive(Debug)]
pub struct Greeted {
    /// The authenticated client and its request.
    pub grant: Grant,
    /// The terms that the server granted.
    pub accepted: ServerAccepted,
    /// The connection.
    pub carrier: Carrier,
    leftover: BytesMut,
    /// The preview of the link that was sent on this carrier.
    preview: Option<Preview>,
}

/// Greets a client over a new carrier, within 10 seconds and 4 KiB.
///
/// # Errors
/// Why the greeting failed. A refusal was sent to the client.
pub async fn greet(carrier: Carrier, verifier: &dyn Verifier) -> Result<Greeted, GreetError> {
    greet_early(carrier, None, verifier).await
}

/// As [`greet()`], over a carrier whose handshake may be incomplete. A carrier of another process
/// is closed.
///
/// # Errors
/// As for [`greet()`].
pub async fn greet_early(
    carrier: Carrier,
    early: Option<Early>,
    verifier: &dyn Verifier,
) -> Result<Greeted, GreetError> {
    match welcome(carrier, early, verifier).await? {
        Welcome::Greeted(greeted) => Ok(*greeted),
        Welcome::Passed(..) => Err(GreetingError::Refused(Refusal::UnknownLink).into()),
    }
}

/// What has become of a carrier.
pub(super) enum Welcome {
    Greeted(Box<Greeted>),
    /// Another process continues the greeting over this carrier.
    Passed(Box<Carrier>, OtherEnd),
}

/// Greets a client over a new carrier, or lets another process do so.
pub(super) async fn welcome(
    carrier: Carrier,
    early: Option<Early>,
    verifier: &dyn Verifier,
) -> Result<Welcome, GreetError> {
    let begin = early.map_or(Begin::Anew, Begin::Early);
    run(carrier, begin, verifier, crate::random::<NONCE_LENGTH>()).await
}

/// Continues the greeting of a process that has sent this nonce.
pub(super) async fn continue_greeting(
    carrier: Carrier,
    nonce: [u8; NONCE_LENGTH],
    verifier: &dyn Verifier,
) -> Result<Welcome, GreetError> {
    run(carrier, Begin::Continued, verifier, nonce).await
}

async fn run(
    mut carrier: Carrier,
    begin: Begin,
    verifier: &dyn Verifier,
    nonce: [u8; NONCE_LENGTH],
) -> Result<Welcome, GreetError> {
    let setup = ServerSetup {
        binding: binding(&carrier.peer),
        certificate_name: carrier.peer.certificate_name.clone(),
        versions: Versions::OURS,
        features: verifier.features(),
        introductions: verifier.introductions(),
        links_suffice: verifier.links_suffice(),
        nonce,
    };
    let done = match exchange::greet_client(&mut carrier, begin, verifier, setup).await? {
        GreetingEnd::Done(done) => *done,
        GreetingEnd::Passed(other) => return Ok(Welcome::Passed(Box::new(carrier), other)),
    };
    let Done { grant, accepted, leftover, preview } = done;
    Ok(Welcome::Greeted(Box::new(Greeted { grant, accepted, carrier, leftover, preview })))
}

impl Greeted {
    /// Detaches the carrier from the runtime of this worker; see [`transport::Lane::detach`].
    ///
    /// # Errors
    /// The connection is lost.
    pub fn detach(&mut self) -> io::Result<()> {
        self.carrier.lane.detach()
    }

    /// Attaches the carrier to the runtime of the current worker.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn join(&mut self) -> io::Result<()> {
        self.carrier.lane.attach()
    }

    /// Attaches the carrier to its link. Returns false if the link has had a higher carrier number,
    /// or the preview is invalid.
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

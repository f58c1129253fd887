//! A carrier that has completed its greeting and is not attached to its link yet.

use std::io;

use bytes::BytesMut;
use proto::greeting::{AttachMode, Grant, NONCE_LENGTH, ServerAccepted, ServerSetup, Versions};
use proto::{Attach, Preview};
use transport::{Carrier, Early};

use super::exchange::{self, Done};
use super::verifier::Verifier;
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

/// As [`greet()`], over a carrier whose handshake may be incomplete.
///
/// # Errors
/// As for [`greet()`].
pub async fn greet_early(
    mut carrier: Carrier,
    early: Option<Early>,
    verifier: &dyn Verifier,
) -> Result<Greeted, GreetError> {
    let setup = ServerSetup {
        binding: binding(&carrier.peer),
        certificate_name: carrier.peer.certificate_name.clone(),
        versions: Versions::OURS,
        features: verifier.features(),
        introductions: verifier.introductions(),
        links_suffice: verifier.links_suffice(),
        nonce: crate::random::<NONCE_LENGTH>(),
    };
    let done = exchange::greet_client(&mut carrier, early, verifier, setup).await?;
    let Done { grant, accepted, leftover, preview } = done;
    Ok(Greeted { grant, accepted, carrier, leftover, preview })
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

//! A carrier whose greeting is done, until it belongs to its link.

use std::io;

use bytes::BytesMut;
use proto::greeting::{
    AttachMode, Features, Grant, NONCE_LENGTH, ServerAccepted, ServerSetup, Versions,
};
use proto::{Attach, Preview};
use transport::{Carrier, Early};

use super::exchange::{self, Done};
use super::verifier::Verifier;
use crate::greet::{GreetError, binding};
use crate::inner::Link;

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
        binding: binding(&carrier.peer),
        certificate_name: carrier.peer.certificate_name.clone(),
        versions: Versions::OURS,
        features: Features(0),
        introductions: verifier.introductions(),
        nonce: crate::random::<NONCE_LENGTH>(),
    };
    let done = exchange::greet_client(&mut carrier, early, verifier, setup).await?;
    let Done { grant, accepted, leftover, preview } = done;
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

//! What a greeting and its driver say to each other.

use std::time::Duration;

use super::super::keys::{LinkSecret, StoredCredential};
use super::super::{Attach, Binding, Features, GreetingError, NONCE_LENGTH, Name, Versions};
use crate::{CarrierNumber, InstanceId, LinkId};

/// What a server's driver knows before the client speaks.
#[derive(Clone, Debug)]
pub struct ServerSetup {
    /// The TLS session of the connection, if there is one end to end.
    pub binding: Binding,
    /// The name in the client's verified certificate. A client with one may use no other name; an
    /// empty one, of a certificate without a name, fits nobody.
    pub certificate_name: Option<String>,
    /// What it talks; [`Versions::OURS`].
    pub versions: Versions,
    /// What it can.
    pub features: Features,
    /// Whether a client whom it does not know may come in: it is asked for what verifies its token.
    /// Has no effect without [`Binding::Exporter`], where somebody in the middle could answer.
    pub introductions: bool,
    /// Fresh random bytes for this greeting.
    pub nonce: [u8; NONCE_LENGTH],
}

/// What the driver is asked or told.
#[derive(Debug)]
pub enum ServerEvent {
    /// Which credentials does this name have? Answer with
    /// [`credentials`](super::ServerGreeting::credentials), or with
    /// [`certificate_suffices`](super::ServerGreeting::certificate_suffices) if `certificate`. An
    /// unknown name has none, and takes the driver as long to say so.
    Credentials {
        /// The name that the client gave; nothing is proved yet.
        name: Name,
        /// The client sends no token and shows a verified certificate with this name.
        certificate: bool,
        /// The client wants a token in exchange for a code: no credential but that of the code may
        /// be the answer.
        enrolls: bool,
    },
    /// What is the secret of this link of this client? Answer with
    /// [`link_secret`](super::ServerGreeting::link_secret); a link of another name or instance is
    /// as good as none.
    LinkSecret {
        /// The client, authenticated; not so before the handshake is done.
        name: Name,
        /// Its process.
        instance: InstanceId,
        /// The link it wants to attach to.
        link: LinkId,
    },
    /// The client has lost its carrier, has shown the link's secret before the handshake is done,
    /// and asks for the link's RESUME. Answer with [`preview`](super::ServerGreeting::preview).
    /// Anybody may have sent again what it said: nothing may change by it.
    Preview {
        /// The client.
        name: Name,
        /// Its process.
        instance: InstanceId,
        /// What it will ask for once the handshake is done.
        attach: Attach,
    },
    /// All is proved. Answer with [`accept`](super::ServerGreeting::accept) or
    /// [`refuse`](super::ServerGreeting::refuse).
    Decide(Grant),
    /// It is over: send what is in [`poll_output`](super::ServerGreeting::poll_output) and close.
    Failed(GreetingError),
}

/// An authenticated wish. Only a greeting makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// Who.
    pub name: Name,
    /// Which process.
    pub instance: InstanceId,
    /// It is the process's first log-in and takes the place of an older process.
    pub takeover: bool,
    /// It showed a certificate and no token.
    pub certificate: bool,
    /// The live link it attaches to, its secret proved; `None` for a new one. Whether the carrier
    /// numbers make sense is the link's to judge.
    pub attach: Option<Attach>,
    /// What is to be kept of the client's token from now on; instead of a link.
    pub enrolled: Option<StoredCredential>,
    /// No credential of its name was right, and it has introduced itself with this one: it is as
    /// old as this greeting. Whether the name is free is the driver's to judge.
    pub introduced: Option<StoredCredential>,
}

/// What the driver grants.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The id of a link that starts now: see [`LinkId::compose`]. An attach keeps its own.
    pub new_link: LinkId,
    /// How long a link without a carrier is kept, in whole seconds up to a day.
    pub resume_timeout: Duration,
    /// How long either side may be silent before it is pinged, in whole seconds, 1 up to a day.
    pub keepalive: Duration,
}

impl LinkId {
    /// An id from the generation of the server process and fresh random bytes.
    #[must_use]
    pub fn compose(generation: [u8; 4], random: [u8; 12]) -> Self {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&generation);
        id[4..].copy_from_slice(&random);
        Self(id)
    }

    /// The generation of the server process that started the link.
    #[must_use]
    pub const fn generation(self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.0;
        [a, b, c, d]
    }
}

/// What a server has once it accepted. Frames may follow its last output at once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerAccepted {
    /// The version to talk.
    pub version: u16,
    /// The features in use.
    pub features: Features,
    /// The link.
    pub link: LinkId,
    /// The number of this carrier: 1 on a new link.
    pub carrier: CarrierNumber,
    /// The secret of a new link; `None` after an attach, whose link keeps its own.
    pub secret: Option<LinkSecret>,
    /// The answer was given early, with a preview of the link: that was this side's RESUME.
    pub early: bool,
}

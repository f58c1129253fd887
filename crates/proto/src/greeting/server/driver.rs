//! The interface between a server's greeting and its driver.

use std::time::Duration;

use super::super::keys::{LinkSecret, StoredCredential};
use super::super::{Attach, Binding, Features, GreetingError, NONCE_LENGTH, Name, Versions};
use crate::{CarrierNumber, InstanceId, LinkId};

/// The parameters of a server's greeting.
#[derive(Clone, Debug)]
pub struct ServerSetup {
    /// The TLS session of the connection, if there is one end to end.
    pub binding: Binding,
    /// The name in the client's verified certificate. A client with a certificate may use no other
    /// name. An empty name, of a certificate without a name, fits no client.
    pub certificate_name: Option<String>,
    /// The supported versions: [`Versions::OURS`].
    pub versions: Versions,
    /// The supported features.
    pub features: Features,
    /// Whether an unknown client may log in. The server asks it for the credential that verifies
    /// its token. Has no effect without [`Binding::Exporter`], because a man in the middle could
    /// answer.
    pub introductions: bool,
    /// Whether a client that has only a certificate may attach a carrier without showing it: the
    /// secret of the link proves both ends, and only the carrier that began the link had to show
    /// it.
    pub links_suffice: bool,
    /// Fresh random bytes for this greeting.
    pub nonce: [u8; NONCE_LENGTH],
}

/// A question to the driver, or the outcome.
#[derive(Debug)]
pub enum ServerEvent {
    /// Which credentials does this name have? Answer with
    /// [`credentials`](super::ServerGreeting::credentials), or with
    /// [`certificate_suffices`](super::ServerGreeting::certificate_suffices) if `certificate`. An
    /// unknown name has none, and the answer must take the same time.
    Credentials {
        /// The name that the client gave; nothing is proved yet.
        name: Name,
        /// The client sends no token and shows a verified certificate with this name.
        certificate: bool,
        /// The client wants a token in exchange for a code: no credential but that of the code may
        /// be the answer.
        enrolls: bool,
    },
    /// What is the secret of this link? Answer with
    /// [`link_secret`](super::ServerGreeting::link_secret). A link of another name or instance
    /// counts as unknown.
    LinkSecret {
        /// The client. It is authenticated, except before the handshake is complete.
        name: Name,
        /// Its process.
        instance: InstanceId,
        /// The link it wants to attach to.
        link: LinkId,
    },
    /// The client has proved the link's secret in early data and asks for the link's RESUME. Answer
    /// with [`preview`](super::ServerGreeting::preview). The early data may be a replay, so the
    /// answer must change nothing.
    Preview {
        /// The client.
        name: Name,
        /// Its process.
        instance: InstanceId,
        /// The request that follows after the handshake.
        attach: Attach,
    },
    /// The client is authenticated. Answer with [`accept`](super::ServerGreeting::accept) or
    /// [`refuse`](super::ServerGreeting::refuse).
    Decide(Box<Grant>),
    /// The greeting failed: send [`poll_output`](super::ServerGreeting::poll_output) and close.
    Failed(GreetingError),
}

/// An authenticated request. Only a greeting can make a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The authenticated name.
    pub name: Name,
    /// The process of the client.
    pub instance: InstanceId,
    /// This is the first log-in of the process, which takes over from an older process.
    pub takeover: bool,
    /// The process stands beside others of its name ([`Features::BESIDE`]).
    pub beside: bool,
    /// The client proved its name by a certificate, without a token.
    pub certificate: bool,
    /// The credential that the proof matches. Where a client has two, the driver learns which of
    /// them is in use.
    pub credential: StoredCredential,
    /// The live link to which the client attaches; it has proved the secret of the link. `None` for
    /// a new link. The link itself checks the carrier numbers.
    pub attach: Option<Attach>,
    /// The credential of the client's new token, to be stored. The client gets no link.
    pub enrolled: Option<StoredCredential>,
    /// The credential with which an unknown client has introduced itself in this greeting. The
    /// driver checks that the name is free.
    pub introduced: Option<StoredCredential>,
}

/// The terms that the driver grants.
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

/// The result of a server's greeting. Frames may follow its last output at once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerAccepted {
    /// The version in use.
    pub version: u16,
    /// The features in use.
    pub features: Features,
    /// The link.
    pub link: LinkId,
    /// The number of this carrier: 1 on a new link.
    pub carrier: CarrierNumber,
    /// The secret of a new link; `None` after an attach, whose link keeps its own.
    pub secret: Option<LinkSecret>,
    /// The server answered the early data with a preview of the link, which was its RESUME.
    pub early: bool,
}

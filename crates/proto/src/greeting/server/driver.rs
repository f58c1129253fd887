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
    /// The name in the client's verified certificate. A client with a certificate must use this
    /// name. An empty name, of a certificate without a name, matches no client.
    pub certificate_name: Option<String>,
    /// The supported versions: [`Versions::OURS`].
    pub versions: Versions,
    /// The supported features.
    pub features: Features,
    /// Whether an unknown client may log in. The server requests the credential that verifies its
    /// token. Has no effect without [`Binding::Exporter`], because a man in the middle could
    /// answer.
    pub introductions: bool,
    /// Whether a client that has only a certificate may attach a carrier without presenting it: the
    /// secret of the link authenticates both ends, and only the first carrier of the link had to
    /// present the certificate.
    pub links_suffice: bool,
    /// Fresh random bytes for this greeting.
    pub nonce: [u8; NONCE_LENGTH],
}

/// A query to the driver, or the outcome.
#[derive(Debug)]
pub enum ServerEvent {
    /// Which credentials does this name have? Answer with
    /// [`credentials`](super::ServerGreeting::credentials), or with
    /// [`certificate_suffices`](super::ServerGreeting::certificate_suffices) if `certificate`. An
    /// unknown name has none, and the reply must take the same time.
    Credentials {
        /// The name in the client's Hello; it is not authenticated yet.
        name: Name,
        /// Whether the client authenticates without a token, by a verified certificate with this
        /// name.
        certificate: bool,
        /// Whether the client requests a token in exchange for a code: the reply must contain only
        /// the credential of the code.
        enrolls: bool,
    },
    /// What is the secret of this link? Answer with
    /// [`link_secret`](super::ServerGreeting::link_secret). A link of another name or instance
    /// counts as unknown.
    LinkSecret {
        /// The name of the client, authenticated except before the handshake is complete.
        name: Name,
        /// The process of the client.
        instance: InstanceId,
        /// The link to attach to.
        link: LinkId,
    },
    /// The client has proved the link's secret in early data and requests the link's RESUME. Answer
    /// with [`preview`](super::ServerGreeting::preview). The early data may be a replay, so the
    /// reply must not change any state.
    Preview {
        /// The name of the client.
        name: Name,
        /// The process of the client.
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
    /// Whether this is the first log-in of the process, which takes over from an older process.
    pub takeover: bool,
    /// Whether the process runs beside others of its name ([`Features::BESIDE`]).
    pub beside: bool,
    /// Whether the client authenticated by a certificate, without a token.
    pub certificate: bool,
    /// The credential that the proof matches. If a client has two, it shows the driver which one is
    /// in use.
    pub credential: StoredCredential,
    /// The existing link to which the client attaches; the client has proved its secret. `None` for
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
    /// The id of a new link: see [`LinkId::compose`]. An attach ignores it.
    pub new_link: LinkId,
    /// The time for which a link without a carrier is kept, in whole seconds up to a day.
    pub resume_timeout: Duration,
    /// The silence after which either side sends a PING, in whole seconds, from 1 up to a day.
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
    /// The secret of a new link; `None` after an attach, because the link keeps its secret.
    pub secret: Option<LinkSecret>,
    /// Whether the server answered the early data with a preview of the link, which was its RESUME.
    pub early: bool,
}

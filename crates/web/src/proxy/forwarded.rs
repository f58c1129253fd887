//! What a request leaves behind once it is with its target, and its answer needs.

use std::rc::Rc;

use hyper::header::HeaderValue;
use tokio::sync::oneshot;

use crate::{Place, Service, compress::Wish, http2, multiplex::Lease, upstream::Upstream};

/// What is left of a request once its answer begins.
pub(super) struct Forwarded {
    pub(super) service: Rc<dyn Service>,
    pub(super) upstream: TargetConnection,
    pub(super) tunnel: Option<Tunnel>,
    pub(super) hsts: Option<HeaderValue>,
    pub(super) compress: Option<Wish>,
    pub(super) affinity: Affinity,
    /// The host as the visitor wrote it.
    pub(super) field: HeaderValue,
}

/// What the cookie of a visitor says.
#[derive(Clone, Copy)]
pub(super) struct Affinity {
    /// Where the visitor was before.
    pub(super) place: Option<Place>,
    /// The visitor came over TLS.
    pub(super) is_secure: bool,
}

/// The connection to the target on which a request is answered.
pub(super) enum TargetConnection {
    Own(Upstream),
    Shared(Lease),
}

impl TargetConnection {
    /// Where the connection leads, once the target has answered.
    pub(super) fn leads_to(&self) -> Option<Place> {
        match self {
            Self::Own(upstream) => upstream.wire.place.get(),
            Self::Shared(lease) => lease.leads_to(),
        }
    }
}

/// The switch to another protocol.
pub(super) struct Tunnel {
    pub(super) protocol: HeaderValue,
    /// The stream of a visitor of HTTP/2. A visitor of HTTP/1.1 gives its whole connection.
    pub(super) visitor: Option<oneshot::Receiver<http2::Tunnel>>,
}

impl Tunnel {
    pub(super) fn asks_for(&self, protocol: &HeaderValue) -> bool {
        let mut asked = self.protocol.as_bytes().split(|&byte| byte == b',');
        asked.any(|asked| asked.trim_ascii().eq_ignore_ascii_case(protocol.as_bytes()))
    }
}

//! The state of a forwarded request that its response needs.

use std::rc::Rc;

use hyper::header::HeaderValue;
use tokio::sync::oneshot;

use crate::{Place, Service, compress::Wish, http2, multiplex::Lease, upstream::Upstream};

/// The state of a request once its response begins.
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

/// The affinity that the cookie of a visitor states.
#[derive(Clone, Copy)]
pub(super) struct Affinity {
    /// The previous place of the visitor.
    pub(super) place: Option<Place>,
    /// Whether the visitor uses TLS.
    pub(super) is_secure: bool,
}

/// The connection to the target that carries the response.
pub(super) enum TargetConnection {
    Own(Upstream),
    Shared(Lease),
}

impl TargetConnection {
    /// The place to which the connection leads, once the target has responded.
    pub(super) fn leads_to(&self) -> Option<Place> {
        match self {
            Self::Own(upstream) => upstream.wire.place.get(),
            Self::Shared(lease) => lease.leads_to(),
        }
    }
}

/// A requested switch to another protocol.
pub(super) struct Tunnel {
    pub(super) protocol: HeaderValue,
    /// The stream of an HTTP/2 visitor. For an HTTP/1.1 visitor, the whole connection is switched.
    pub(super) visitor: Option<oneshot::Receiver<http2::Tunnel>>,
}

impl Tunnel {
    pub(super) fn asks_for(&self, protocol: &HeaderValue) -> bool {
        let mut asked = self.protocol.as_bytes().split(|&byte| byte == b',');
        asked.any(|asked| asked.trim_ascii().eq_ignore_ascii_case(protocol.as_bytes()))
    }
}

//! The proof of another node: its certificate, which the handshake has verified. The greeting gets
//! the name of the node that the certificate proves, so a greeting of another node, or of a client
//! with a certificate of the same authority, fails. Over `tcp://` there is no certificate, and the
//! greeting proves the name.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use transport::{Carrier, CarrierError, Incoming, LocalFuture};

use crate::names::proved;

/// The name in the certificate of whoever connects, once it is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct ShownName(Rc<RefCell<Option<String>>>);

impl ShownName {
    /// The name in the certificate.
    pub(super) fn get(&self) -> Option<String> {
        self.0.borrow().clone()
    }
}

/// A connection whose certificate is read as that of a node.
#[derive(Debug)]
pub(super) struct OfNode {
    pub(super) incoming: Box<dyn Incoming>,
    pub(super) shown: ShownName,
    /// The transport has no certificates.
    pub(super) is_plain: bool,
}

impl Incoming for OfNode {
    fn remote(&self) -> SocketAddr {
        self.incoming.remote()
    }

    fn source(&self) -> Option<IpAddr> {
        self.incoming.source()
    }

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let Self { incoming, shown, is_plain } = *self;
        Box::pin(async move {
            let mut carrier = incoming.handshake().await?;
            if is_plain {
                return Ok(carrier);
            }
            let named = carrier.peer.certificate_name.take();
            // An empty name is the name of nobody, and no name would be no certificate.
            let node = named.as_deref().and_then(proved);
            carrier.peer.certificate_name =
                Some(node.map_or_else(String::new, |node| node.as_str().to_owned()));
            shown.0.replace(Some(named.unwrap_or_default()));
            Ok(carrier)
        })
    }
}

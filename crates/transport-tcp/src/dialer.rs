//! The dialer of `tcp://` and `tls://` carriers.

use std::net::SocketAddr;
use std::sync::Arc;

use net::socket::{connect, dialling};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use transport::{Carrier, CarrierError, Dialer, LocalFuture, Transport};

use crate::listener::bare;
use crate::proxy::Via;
use crate::socket::Socket;
use crate::tls::{self, Speech};

/// The TLS settings of a dialer, with the name of the server.
#[derive(Clone, Debug)]
pub struct TlsClient {
    /// The configuration, from [`::tls::client_config`], with the ALPN of the protocol inside TLS.
    pub config: Arc<ClientConfig>,
    /// The name that the certificate must have, which is also the SNI. [`::tls::server_name`] makes
    /// it from the host of the URL or from `tls.sni`.
    pub name: ServerName<'static>,
}

/// A dialer of `tls://` with a [`TlsClient`], and of `tcp://` without.
#[derive(Clone, Debug)]
pub struct TcpDialer {
    tls: Option<TlsClient>,
    speech: Speech,
    via: Option<Via>,
    /// The code point of the packets.
    dscp: u8,
}

impl TcpDialer {
    /// Makes a dialer of `tls://` for `Some`, and of `tcp://` for `None`.
    #[must_use]
    pub const fn new(tls: Option<TlsClient>) -> Self {
        Self { tls, speech: Speech::Tunnel, via: None, dscp: 0 }
    }

    /// Sets the protocol that the server must speak inside TLS. The default is [`Speech::Tunnel`].
    #[must_use]
    pub fn speaking(self, speech: Speech) -> Self {
        Self { speech, ..self }
    }

    /// Sets the proxy at the dialled address. The dialer asks the proxy for a connection to the
    /// server.
    #[must_use]
    pub fn through(self, via: Option<Via>) -> Self {
        Self { via, ..self }
    }

    /// Marks the packets of the connections with a code point ([`net::dscp`]).
    #[must_use]
    pub fn marked(self, dscp: u8) -> Self {
        Self { dscp, ..self }
    }
}

impl Dialer for TcpDialer {
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let Self { tls, speech, via, dscp } = self.clone();
        Box::pin(async move {
            let reach = async || {
                let socket = dialling(address)?;
                net::dscp::mark_new(&socket, dscp)?;
                Ok(connect(socket, address).await?)
            };
            let stream = match &via {
                Some(via) => via.reach(reach).await?,
                None => reach().await?,
            };
            let socket = Socket::new(stream)?;
            match tls {
                Some(tls) => tls::connect(socket, address, tls, speech).await,
                None => Ok(bare(socket, address)),
            }
        })
    }

    fn transport(&self) -> Transport {
        if self.tls.is_some() { crate::TLS } else { crate::TCP }
    }
}

//! Dials carriers.

use std::net::SocketAddr;
use std::sync::Arc;

use net::socket::dialling;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use transport::{Carrier, CarrierError, Dialer, LocalFuture, Transport};

use crate::listener::bare;
use crate::proxy::Via;
use crate::socket::Socket;
use crate::tls::{self, Speech};

/// How a dialer of `tls://` knows the server.
#[derive(Clone, Debug)]
pub struct TlsClient {
    /// From [`::tls::client_config`], with the ALPN of what is spoken inside.
    pub config: Arc<ClientConfig>,
    /// The name the certificate must be for and the SNI to send, from
    /// [`::tls::server_name`]: the host of the URL, or `tls.sni`.
    pub name: ServerName<'static>,
}

/// A dialer of `tcp://`, or of `tls://` when it knows the server.
#[derive(Clone, Debug)]
pub struct TcpDialer {
    tls: Option<TlsClient>,
    speech: Speech,
    via: Option<Via>,
}

impl TcpDialer {
    /// A dialer of `tls://` with `Some`, of `tcp://` with `None`.
    #[must_use]
    pub const fn new(tls: Option<TlsClient>) -> Self {
        Self { tls, speech: Speech::Tunnel, via: None }
    }

    /// With TLS, the server has to speak this inside; [`Speech::Tunnel`] where nothing is said.
    #[must_use]
    pub fn speaking(self, speech: Speech) -> Self {
        Self { speech, ..self }
    }

    /// What is dialled is a proxy, which is asked for the server.
    #[must_use]
    pub fn through(self, via: Option<Via>) -> Self {
        Self { via, ..self }
    }
}

impl Dialer for TcpDialer {
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let Self { tls, speech, via } = self.clone();
        Box::pin(async move {
            let mut stream = dialling(address)?.connect(address).await?;
            if let Some(via) = &via {
                via.open(&mut stream).await?;
            }
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

//! Dials carriers.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use transport::socket::dialling;
use transport::{Carrier, CarrierError, Dialer, LocalFuture, Transport};

use crate::listener::bare;
use crate::socket::Socket;
use crate::tls;

/// How a dialer of `tls://` knows the server.
#[derive(Clone, Debug)]
pub struct TlsClient {
    /// From [`transport::tls::client_config`], with ALPN [`transport::ALPN`].
    pub config: Arc<ClientConfig>,
    /// The name the certificate must be for and the SNI to send, from
    /// [`transport::tls::server_name`]: the host of the URL, or `tls.sni`.
    pub name: ServerName<'static>,
}

/// A dialer of `tcp://`, or of `tls://` when it knows the server.
#[derive(Clone, Debug)]
pub struct TcpDialer {
    tls: Option<TlsClient>,
}

impl TcpDialer {
    /// A dialer of `tls://` with `Some`, of `tcp://` with `None`.
    #[must_use]
    pub const fn new(tls: Option<TlsClient>) -> Self {
        Self { tls }
    }
}

impl Dialer for TcpDialer {
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let tls = self.tls.clone();
        Box::pin(async move {
            let socket = Socket::new(dialling(address)?.connect(address).await?)?;
            match tls {
                Some(tls) => tls::connect(socket, address, &tls.config, tls.name).await,
                None => Ok(bare(socket, address)),
            }
        })
    }

    fn transport(&self) -> Transport {
        if self.tls.is_some() { Transport::Tls } else { Transport::Tcp }
    }
}

//! The dialer of `tcp://` and `tls://` carriers.

use std::net::SocketAddr;

use net::SocketOptions;
use net::socket::{connect, dialling};
use transport::{Carrier, CarrierError, Dialer, Lane, LocalFuture, Transport};

use crate::lane::{bare, bare_inside};
use crate::proxy::Via;
use crate::socket::Socket;
use crate::tls::{self, Speech, TlsClient};

/// A dialer of `tls://` with a [`TlsClient`], and of `tcp://` without.
#[derive(Clone, Debug)]
pub struct TcpDialer {
    tls: Option<TlsClient>,
    speech: Speech,
    via: Option<Via>,
    options: SocketOptions,
}

impl TcpDialer {
    /// Makes a dialer of `tls://` for `Some`, and of `tcp://` for `None`.
    #[must_use]
    pub const fn new(tls: Option<TlsClient>) -> Self {
        Self { tls, speech: Speech::Tunnel, via: None, options: SocketOptions::CARRIER }
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

    /// Sets the options of the connections. The default is [`SocketOptions::CARRIER`].
    #[must_use]
    pub fn obeying(self, options: SocketOptions) -> Self {
        Self { options, ..self }
    }
}

impl Dialer for TcpDialer {
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let Self { tls, speech, via, options } = self.clone();
        Box::pin(async move {
            let reach =
                async || Ok(connect(dialling(address, &options)?, address, &options).await?);
            let stream = match &via {
                Some(via) => via.reach(reach).await?,
                None => reach().await?,
            };
            let socket = Socket::dialled(stream, &options)?;
            match tls {
                Some(tls) => tls::connect(socket, address, tls, speech).await,
                None => Ok(bare(socket, address)),
            }
        })
    }

    fn dial_inside(
        &self,
        lane: Box<dyn Lane>,
    ) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let (transport, tls, speech) = (self.transport(), self.tls.clone(), self.speech);
        Box::pin(async move {
            match tls {
                Some(tls) => tls::connect_speaking(lane, transport, tls, speech).await,
                None => Ok(bare_inside(lane)),
            }
        })
    }

    fn transport(&self) -> Transport {
        if self.tls.is_some() { crate::TLS } else { crate::TCP }
    }
}

//! Dials carriers.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::{ClientConfig, ConnectError};
use rustls::pki_types::ServerName;
use transport::tls::Side;
use transport::udp::{Buffers, raise};
use transport::{Carrier, CarrierError, Dialer, LocalFuture, Transport};

use crate::ids::first_id_to;
use crate::refused::refused;
use crate::session::Clients;
use crate::settings::QuicSettings;
use crate::{carrier, endpoint, error};

/// How a dialer knows the server.
#[derive(Clone, Debug)]
pub struct TlsClient {
    /// From [`transport::tls::client_config`], with the ALPN of carriers.
    pub config: Arc<rustls::ClientConfig>,
    /// The name the certificate must be for and the SNI to send, from
    /// [`transport::tls::server_name`]: the host of the URL, or `sni`.
    pub name: ServerName<'static>,
}

/// A dialer of `quic://`. Its clones share the tickets of their sessions.
#[derive(Clone, Debug)]
pub struct QuicDialer {
    clients: Clients,
    name: ServerName<'static>,
    settings: QuicSettings,
    buffers: Buffers,
    /// See [`first_id_to`].
    steer: Option<u8>,
}

impl QuicDialer {
    /// Each connection has a socket of its own, with these buffers as far as they are granted, which
    /// is not bound to an address: when the route changes its packets leave from another one and the
    /// connection goes on.
    ///
    /// # Errors
    /// `tls` lacks the suite that QUIC begins with.
    pub fn new(
        tls: &TlsClient,
        settings: QuicSettings,
        buffers: Buffers,
    ) -> Result<Self, rustls::Error> {
        let (clients, name) = (Clients::new(&tls.config)?, tls.name.clone());
        Ok(Self { clients, name, settings, buffers, steer: None })
    }

    /// For the connections of one link; see [`first_id_to`].
    #[must_use]
    pub fn steered(self, byte: u8) -> Self {
        Self { steer: Some(byte), ..self }
    }
}

impl Dialer for QuicDialer {
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        Box::pin(dial(self.clone(), address))
    }

    fn transport(&self) -> Transport {
        Transport::Quic
    }
}

async fn dial(dialer: QuicDialer, address: SocketAddr) -> Result<Carrier, CarrierError> {
    let QuicDialer { clients, name, settings, buffers, steer } = dialer;
    let crypto = clients.one(name.clone());
    let (fault, asked) = (crypto.fault(), clients.asked());
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(settings.transport(Side::Client, address));
    if let Some(byte) = steer {
        config.initial_dst_cid_provider(Arc::new(move || first_id_to(byte)));
    }

    // The endpoint goes on without this handle for as long as it has a connection.
    let socket = UdpSocket::bind(unspecified(address))?;
    raise(&socket, buffers)?;
    let endpoint = endpoint::client(socket, &settings)?;
    let connecting = endpoint
        .connect_with(config, address, &name.to_str())
        .map_err(|error: ConnectError| CarrierError::Config(error.to_string()))?;
    let connection = tokio::select! {
        done = connecting => {
            done.map_err(|error| error::handshake(&error, Side::Client, fault.take().as_ref()))?
        }
        error = refused(address) => return Err(error.into()),
    };
    // Another dial of the same moment may have been asked instead, which costs this one a wait.
    carrier::dialled(connection, clients.asked() > asked).await
}

/// Any address of the same family, any port.
pub(crate) fn unspecified(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

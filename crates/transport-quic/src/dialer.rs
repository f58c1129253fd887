//! The dialer of `quic://` carriers.

use std::net::SocketAddr;
use std::sync::Arc;

use net::SocketOptions;
use net::udp::{self, Buffers, WANTED, refused};
use proto::greeting::EarlyBinding;
use quinn::{ClientConfig, ConnectError, Connecting, ConnectionError, RecvStream, SendStream};
use rustls::pki_types::ServerName;
use transport::{
    Carrier, CarrierError, Dialer, Dialled, EarlyDataFn, LocalFuture, Side, Transport,
};

use crate::early::EarlySecrets;
use crate::ids::first_id_to;
use crate::lane::Hold;
use crate::past::PastPaths;
use crate::session::Clients;
use crate::settings::QuicSettings;
use crate::socket::Receiving;
use crate::{carrier, endpoint, error};

/// The TLS settings of a dialer, with the name of the server.
#[derive(Clone, Debug)]
pub struct TlsClient {
    /// The configuration, from [`tls::client_config`], with the ALPN of carriers.
    pub config: Arc<rustls::ClientConfig>,
    /// The name that the certificate must have, which is also the SNI. [`tls::server_name`] makes
    /// it from the host of the URL or from `sni`.
    pub name: ServerName<'static>,
}

/// A dialer of `quic://`. The clones of a dialer share the session tickets, and what connections
/// have measured of their paths.
#[derive(Clone, Debug)]
pub struct QuicDialer {
    clients: Clients,
    name: ServerName<'static>,
    settings: QuicSettings,
    /// The options of the sockets, with their buffers.
    options: SocketOptions,
    /// The first byte of the first connection id; see [`first_id_to`].
    steer: Option<u8>,
    past: PastPaths,
}

impl QuicDialer {
    /// Makes a dialer. Each connection has a socket of its own with buffers of the given size, as
    /// far as the kernel grants it. The socket is not bound to an address: when the route changes,
    /// packets leave from another address and the connection goes on.
    ///
    /// # Errors
    /// `tls` lacks the cipher suite of QUIC's Initial packets.
    pub fn new(
        tls: &TlsClient,
        settings: QuicSettings,
        buffers: Buffers,
    ) -> Result<Self, rustls::Error> {
        let (clients, name) = (Clients::new(&tls.config)?, tls.name.clone());
        let past = PastPaths::default();
        let options = SocketOptions::with_buffers(buffers);
        Ok(Self { clients, name, settings, options, steer: None, past })
    }

    /// Sets the byte that steers the connections of one link to one worker; see [`first_id_to`].
    #[must_use]
    pub fn steered(self, byte: u8) -> Self {
        Self { steer: Some(byte), ..self }
    }

    /// Sets the options of the sockets, but for their buffers.
    #[must_use]
    pub fn obeying(self, options: SocketOptions) -> Self {
        let buffers = self.options.buffers;
        Self { options: SocketOptions { buffers, ..options }, ..self }
    }
}

impl Dialer for QuicDialer {
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let dialled = dial(self.clone(), address, None);
        Box::pin(async { dialled.await.map(|(carrier, _)| carrier) })
    }

    fn dial_early(&self, address: SocketAddr, say: EarlyDataFn) -> LocalFuture<'static, Dialled> {
        Box::pin(dial(self.clone(), address, Some(say)))
    }

    fn transport(&self) -> Transport {
        crate::QUIC
    }
}

async fn dial(dialer: QuicDialer, address: SocketAddr, say: Option<EarlyDataFn>) -> Dialled {
    let QuicDialer { clients, name, settings, options, steer, past } = dialer;
    let receiving = Receiving::within(options.buffers.unwrap_or(WANTED));
    let mut settings = settings.on_route_to(address);
    settings.mtu = settings.mtu.min(receiving.largest());
    let (crypto, early) = match say {
        Some(say) => {
            let (crypto, secrets) = clients.early(name.clone());
            (crypto, Some((secrets, say)))
        }
        None => (clients.one(name.clone()), None),
    };
    let (fault, asked) = (crypto.fault(), clients.asked());
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(settings.transport(Side::Client, address, &past));
    if let Some(byte) = steer {
        config.initial_dst_cid_provider(Arc::new(move || first_id_to(byte)));
    }

    // The endpoint lives without this handle as long as it has a connection.
    let socket = udp::dialled(address, &options)?;
    let endpoint = endpoint::client(socket, &settings, receiving)?;
    let buffers = receiving.buffers(settings.mtu());
    let connecting = endpoint
        .connect_with(config, address, &name.to_str())
        .map_err(|error: ConnectError| CarrierError::Config(error.to_string()))?;
    let failed = |error| error::handshake(&error, Side::Client, fault.take().as_ref());
    let shaken = async {
        match early {
            Some((secrets, say)) => shake_early(connecting, buffers, &secrets, &say).await,
            None => Ok((Hold::alone(connecting.await?, buffers), None)),
        }
    };
    let (hold, lane) = tokio::select! {
        done = shaken => done.map_err(failed)?,
        error = refused(address, &options) => return Err(error.into()),
    };
    if let Some((lane, binding)) = lane {
        return Ok((carrier::taken(hold, lane)?, Some(binding)));
    }
    // The server may have issued the request for another simultaneous dial. This dial then waits
    // once unnecessarily.
    Ok((carrier::dialled(hold, clients.asked() > asked).await?, None))
}

/// The first lane, if the server accepted the early data on it.
type Taken = Option<((SendStream, RecvStream), EarlyBinding)>;

/// Runs the handshake, and sends early data when a ticket allows it.
async fn shake_early(
    connecting: Connecting,
    buffers: usize,
    secrets: &EarlySecrets,
    say: &EarlyDataFn,
) -> Result<(Hold, Taken), ConnectionError> {
    let (connection, done) = match connecting.into_0rtt() {
        Ok(early) => early,
        Err(connecting) => return Ok((Hold::alone(connecting.await?, buffers), None)),
    };
    let hold = Hold::alone(connection, buffers);
    let said = secrets.client().and_then(|client| say(&client));
    let lane = match said {
        // A failure here is a failure of the connection, which is reported below.
        Some(said) => carrier::say(&hold, said).await.ok(),
        None => None,
    };
    let is_taken = done.await;
    if let Some(error) = hold.connection.close_reason() {
        return Err(error);
    }
    tracing::debug!(is_taken, "early data");
    Ok((hold, lane.filter(|_| is_taken).zip(secrets.binding())))
}

//! Makes a quinn endpoint over one socket, with the settings that belong to the socket and not to a
//! connection.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use net::Current;
use net::source::Proxies;
use quinn::{Endpoint, EndpointConfig, ServerConfig};
use quinn_proto::RandomConnectionIdGenerator;

use crate::ids::{self, SteeringIds};
use crate::keys::Keys;
use crate::settings::QuicSettings;
use crate::socket::{Beside, Receiving, Socket};
use crate::timer::EarlyRuntime;

/// QUIC version 1 (RFC 9000), the only supported version.
pub(crate) const VERSION: u32 = 1;

/// The minimum interval of stateless resets. With quinn's 20 ms only fifty clients per second would
/// learn of a restart. A reset costs less than the packet that caused it.
const RESETS: Duration = Duration::from_micros(100);

/// Makes a client's endpoint in the runtime of this thread.
pub(crate) fn client(
    socket: UdpSocket,
    settings: &QuicSettings,
    receiving: Receiving,
) -> io::Result<Endpoint> {
    let socket = take(socket, settings, receiving, None, None)?;
    let mut config = EndpointConfig::default();
    // The socket has one connection, so the connection needs no id (RFC 9000 section 5.1). Every
    // incoming packet has room for eight more bytes of payload.
    config.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(0)));
    open(config, socket, None, settings)
}

/// Makes the endpoint of a server's worker in the runtime of this thread.
pub(crate) fn server(
    socket: UdpSocket,
    server: ServerConfig,
    settings: &QuicSettings,
    keys: &Keys,
    ids: &SteeringIds,
    (beside, proxies): (Option<Arc<dyn Beside>>, &Current<Proxies>),
) -> io::Result<Endpoint> {
    let mut config = EndpointConfig::new(keys.reset_key());
    let ids = ids.clone();
    config.cid_generator(move || Box::new(ids.clone())).min_reset_interval(RESETS);
    let socket = take(socket, settings, Receiving::Joined, beside, Some(proxies))?;
    open(config, socket, Some(server), settings)
}

/// Makes the endpoint of one end of a direct path over a socket that it shares with STUN. Both ends
/// can start a connection: `server` decides which of them does.
pub(crate) fn punched(
    socket: UdpSocket,
    server: Option<ServerConfig>,
    settings: &QuicSettings,
    receiving: Receiving,
    beside: Arc<dyn Beside>,
) -> io::Result<(Endpoint, Arc<Socket>)> {
    let socket = take(socket, settings, receiving, Some(beside), None)?;
    let mut config = EndpointConfig::default();
    // Ids find the connection of a client whose address has changed; a client's own connection
    // needs none, as in [`client`].
    let length = if server.is_some() { ids::LENGTH } else { 0 };
    config.cid_generator(move || Box::new(RandomConnectionIdGenerator::new(length)));
    let endpoint = open(config, Arc::clone(&socket), server, settings)?;
    Ok((endpoint, socket))
}

fn take(
    socket: UdpSocket,
    settings: &QuicSettings,
    receiving: Receiving,
    beside: Option<Arc<dyn Beside>>,
    proxies: Option<&Current<Proxies>>,
) -> io::Result<Arc<Socket>> {
    socket.set_nonblocking(true)?;
    Socket::new(socket, settings.mtu(), receiving, beside, proxies)
}

fn open(
    mut config: EndpointConfig,
    socket: Arc<Socket>,
    server: Option<ServerConfig>,
    settings: &QuicSettings,
) -> io::Result<Endpoint> {
    config.supported_versions(vec![VERSION]);
    // The first byte distinguishes QUIC from STUN on the same port (RFC 9443).
    config.grease_quic_bit(false);
    config.max_udp_payload_size(settings.mtu()).map_err(io::Error::other)?;
    Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(EarlyRuntime))
}

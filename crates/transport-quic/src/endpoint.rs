//! Makes a quinn endpoint over one socket, with the settings that belong to the socket and not to a
//! connection.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Endpoint, EndpointConfig, ServerConfig};
use quinn_proto::RandomConnectionIdGenerator;

use crate::ids::SteeringIds;
use crate::keys::Keys;
use crate::settings::QuicSettings;
use crate::socket::{Receiving, Socket};
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
    let socket = take(socket, settings, receiving)?;
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
) -> io::Result<Endpoint> {
    let mut config = EndpointConfig::new(keys.reset_key());
    let ids = ids.clone();
    config.cid_generator(move || Box::new(ids.clone())).min_reset_interval(RESETS);
    open(config, take(socket, settings, Receiving::Joined)?, Some(server), settings)
}

fn take(
    socket: UdpSocket,
    settings: &QuicSettings,
    receiving: Receiving,
) -> io::Result<Arc<Socket>> {
    socket.set_nonblocking(true)?;
    Socket::new(socket, settings.mtu(), receiving)
}

fn open(
    mut config: EndpointConfig,
    socket: Arc<Socket>,
    server: Option<ServerConfig>,
    settings: &QuicSettings,
) -> io::Result<Endpoint> {
    config.supported_versions(vec![VERSION]);
    config.max_udp_payload_size(settings.mtu()).map_err(io::Error::other)?;
    Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(EarlyRuntime))
}

//! The TLS of quinn's two sides with resumption and 0-RTT, of what `transport::tls` sets up.

use std::any::Any;
use std::sync::Arc;

use quinn::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use quinn::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session,
    UnsupportedVersion,
};
use quinn::{ConnectionId, Side};
use quinn_proto::TransportError;
use quinn_proto::transport_parameters::TransportParameters;
use rustls::client::Resumption;

use super::Tickets;
use super::exchange::Passing;

/// How many servers' tickets a client keeps; rustls keeps the last 8 of each. A path has one name.
const SERVERS: usize = 4;
const TICKETS_OF_A_SERVER: usize = 8;

/// A client's TLS that resumes and sends 0-RTT, for as long as this value and its clones live. rustls
/// resumes only with the very verifier and the very resolver of client certificates (by their `Arc`)
/// that a ticket came with: they must stay the same from one connection to the next.
#[must_use]
pub fn resuming(tls: &rustls::ClientConfig) -> Arc<rustls::ClientConfig> {
    let mut tls = tls.clone();
    tls.resumption = Resumption::in_memory_sessions(SERVERS * TICKETS_OF_A_SERVER);
    tls.enable_early_data = true;
    Arc::new(tls)
}

/// The same, for `quinn::ClientConfig::new`.
pub fn client_crypto(
    tls: &rustls::ClientConfig,
) -> Result<Arc<QuicClientConfig>, NoInitialCipherSuite> {
    Ok(Arc::new(QuicClientConfig::try_from(resuming(tls))?))
}

/// The server's side, for `quinn::ServerConfig::new`. Fails if `tls` lacks AES-128-GCM, which the first
/// packets are sealed with.
pub fn server_crypto(
    tls: &Arc<rustls::ServerConfig>,
    tickets: &Arc<Tickets>,
) -> Result<Arc<dyn ServerConfig>, NoInitialCipherSuite> {
    let plain = Arc::new(QuicServerConfig::try_from(Arc::clone(tls))?);
    Ok(Arc::new(Resuming { tls: Arc::clone(tls), plain, tickets: Arc::clone(tickets) }))
}

/// A server whose sessions are resumed.
struct Resuming {
    tls: Arc<rustls::ServerConfig>,
    /// The same without.
    plain: Arc<QuicServerConfig>,
    tickets: Arc<Tickets>,
}

impl ServerConfig for Resuming {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.plain.initial_keys(version, id)
    }

    fn retry_tag(&self, version: u32, first_id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.plain.retry_tag(version, first_id, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        parameters: &TransportParameters,
    ) -> Box<dyn Session> {
        let passing = Passing::begin(&self.tickets, parameters);
        let tls = passing.configured(&self.tls);
        match QuicServerConfig::try_from(tls) {
            Ok(config) => {
                let inner = Arc::new(config).start_session(version, parameters);
                Box::new(Exchanging { inner, passing })
            }
            // It was possible for `plain`, which has the same suites.
            Err(_) => Arc::clone(&self.plain).start_session(version, parameters),
        }
    }
}

/// A TLS session whose tickets are exchanged on their way out.
struct Exchanging {
    inner: Box<dyn Session>,
    passing: Arc<Passing>,
}

impl Session for Exchanging {
    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let before = buf.len();
        let keys = self.inner.write_handshake(buf);
        self.passing.exchange(buf, before);
        keys
    }

    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(id, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.inner.next_1rtt_keys()
    }

    fn is_valid_retry(&self, first_id: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(first_id, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

#[cfg(test)]
mod tests {
    use quinn::crypto::ClientConfig as _;
    use rustls::time_provider::DefaultTimeProvider;
    use transport::tls::{self, Trust};

    use super::super::ROTATION;
    use super::*;

    /// QUIC version 1.
    const VERSION: u32 = 1;

    /// One message or more of `from` to `to`; whether there were any.
    fn tell(from: &mut dyn Session, to: &mut dyn Session) -> bool {
        let mut said = Vec::new();
        from.write_handshake(&mut said);
        said.is_empty() || to.read_handshake(&said).is_ok()
    }

    #[test]
    fn the_same_hello_is_resumed_once() {
        let folder = tempfile::tempdir().unwrap();
        let identity = tls::self_signed(folder.path(), &[]).unwrap();
        let config = tls::server_config(&identity, None, &[b"a"]).unwrap();
        let keys = crate::Keys::fleeting().unwrap();
        let time = Arc::new(DefaultTimeProvider);
        let tickets = Arc::new(Tickets::new(&keys, &[], ROTATION, time));
        let server = server_crypto(&config, &tickets).unwrap();
        let trust = Trust::Pins(vec![identity.pin()]);
        let client = client_crypto(&tls::client_config(&trust, None, &[b"a"]).unwrap()).unwrap();
        let parameters = TransportParameters::read(Side::Server, &mut &[][..]).unwrap();
        let to_server = || Arc::clone(&server).start_session(VERSION, &parameters);
        let from_client =
            || Arc::clone(&client).start_session(VERSION, "localhost", &parameters).unwrap();

        let (mut here, mut there) = (from_client(), to_server());
        // More than TLS 1.3 has flights, with the tickets behind them.
        for _ in 0..8 {
            assert!(tell(&mut *here, &mut *there) && tell(&mut *there, &mut *here));
        }
        assert!(!here.is_handshaking() && !there.is_handshaking());

        let mut again = from_client();
        let mut hello = Vec::new();
        again.write_handshake(&mut hello);
        let taken = |hello: &[u8]| {
            let mut session = to_server();
            session.read_handshake(hello).unwrap();
            session.early_crypto().is_some()
        };
        assert!(again.early_crypto().is_some(), "the client has a ticket");
        assert_eq!([taken(&hello), taken(&hello), taken(&hello)], [true, false, false]);
    }
}

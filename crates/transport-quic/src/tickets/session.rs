//! Makes the configurations of quinn that resume and take 0-RTT, of both sides.

use std::sync::Arc;

use quinn::crypto::ServerConfig;
use quinn::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig};

use super::{Tickets, resuming};
use crate::session::Server;

/// The client's side with resumption, for `quinn::ClientConfig::new`.
pub fn client_crypto(
    tls: &rustls::ClientConfig,
) -> Result<Arc<QuicClientConfig>, NoInitialCipherSuite> {
    Ok(Arc::new(QuicClientConfig::try_from(resuming(tls))?))
}

/// The server's side with resumption, for `quinn::ServerConfig::new`. Fails if `tls` lacks
/// AES-128-GCM, which seals the first packets.
pub fn server_crypto(
    tls: &Arc<rustls::ServerConfig>,
    tickets: &Arc<Tickets>,
) -> Result<Arc<dyn ServerConfig>, rustls::Error> {
    Ok(Arc::new(Server::new(Arc::clone(tls), Arc::clone(tickets))?))
}

#[cfg(test)]
mod tests {
    use quinn::Side;
    use quinn::crypto::{ClientConfig as _, Session};
    use quinn_proto::transport_parameters::TransportParameters;
    use rustls::time_provider::DefaultTimeProvider;
    use tls::{self, Trust};

    use super::super::ROTATION;
    use super::*;

    /// QUIC version 1.
    const VERSION: u32 = 1;

    /// Carries the pending messages of `from` to `to`; returns whether there were any.
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
        // The limit is above the number of flights of TLS 1.3, tickets included.
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

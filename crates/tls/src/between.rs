//! TLS between two clients that prove their identity by the log-in.
//!
//! Both ends know a secret. The greeting proves the secret and binds the proof to the TLS session
//! by keying material of that session (RFC 9266 describes such a binding). A machine between the
//! ends has two sessions with different keying material, so its proofs fail, whichever certificate
//! it presents. The certificate is therefore not verified, and each process generates its own.

use std::sync::{Arc, OnceLock};

use rustls::client::Resumption;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};

use crate::verify::KeyVerifier;
use crate::{Identity, MaterialError, fleeting, provider, server_config};

/// The server name that a client sends; it is not verified.
pub const PEER_NAME: &str = "peer.invalid";

/// The configuration of the visitor's end. Any certificate of the other end is accepted: the caller
/// must demand a greeting with a proof that is bound to the session.
pub fn peer_client_config(alpn: &[&[u8]]) -> Result<Arc<ClientConfig>, MaterialError> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| MaterialError::Setting(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(KeyVerifier::of_any()))
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    config.resumption = Resumption::disabled();
    // The tunnel's server can read the ClientHello of an inner session.
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// The configuration of the publisher's end, with a key of this process.
pub fn peer_server_config(alpn: &[&[u8]]) -> Result<Arc<ServerConfig>, MaterialError> {
    server_config(process_identity()?, None, alpn)
}

fn process_identity() -> Result<&'static Identity, MaterialError> {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    if let Some(known) = IDENTITY.get() {
        return Ok(known);
    }
    let made = fleeting(&[PEER_NAME.to_owned()])?;
    Ok(IDENTITY.get_or_init(|| made))
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;
    use rustls::{ClientConnection, ServerConnection};

    use super::*;

    const ALPN: &[&[u8]] = &[b"tunnel/1"];

    fn visitor() -> ClientConnection {
        let name = ServerName::try_from(PEER_NAME).unwrap();
        ClientConnection::new(peer_client_config(ALPN).unwrap(), name).unwrap()
    }

    fn publisher() -> ServerConnection {
        ServerConnection::new(peer_server_config(ALPN).unwrap()).unwrap()
    }

    /// Hands over everything that either end has to say, until both are silent.
    fn shake(visitor: &mut ClientConnection, publisher: &mut ServerConnection) {
        while visitor.wants_write() || publisher.wants_write() {
            let mut said = Vec::new();
            visitor.write_tls(&mut said).unwrap();
            publisher.read_tls(&mut said.as_slice()).unwrap();
            publisher.process_new_packets().unwrap();
            let mut said = Vec::new();
            publisher.write_tls(&mut said).unwrap();
            visitor.read_tls(&mut said.as_slice()).unwrap();
            visitor.process_new_packets().unwrap();
        }
    }

    fn material(end: &rustls::ConnectionCommon<impl rustls::SideData>) -> [u8; 32] {
        end.export_keying_material([0; 32], b"EXPORTER-test", None).unwrap()
    }

    #[test]
    fn both_ends_of_one_session_have_the_same_keying_material_and_two_sessions_have_not() {
        let (mut visitor_end, mut publisher_end) = (visitor(), publisher());
        shake(&mut visitor_end, &mut publisher_end);
        assert!(!visitor_end.is_handshaking() && !publisher_end.is_handshaking());
        assert_eq!(material(&visitor_end), material(&publisher_end));
        // A machine in the middle has a session with each end.
        let (mut middle, mut far) = (visitor(), publisher());
        shake(&mut middle, &mut far);
        assert_ne!(material(&visitor_end), material(&far));
    }

    #[test]
    fn the_first_message_names_nobody() {
        let mut said = Vec::new();
        visitor().write_tls(&mut said).unwrap();
        assert!(!said.windows(4).any(|part| part == b"peer"));
    }
}

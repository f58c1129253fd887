//! TLS inside QUIC (RFC 9001): rustls' QUIC sessions behind the traits of quinn.
//!
//! quinn has such an adapter, but it keeps only the text of an error and the number of an alert.
//! This adapter keeps the error itself, so that a wrong certificate gives the same message as over
//! TCP. It also tells a client whether the server requested a certificate.

use std::any::Any;
use std::fmt;
use std::io::Cursor;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use quinn::crypto::{
    self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, UnsupportedVersion,
};
use quinn::{ConnectError, ConnectionId, Side, TransportErrorCode};
use quinn_proto::TransportError;
use quinn_proto::transport_parameters::TransportParameters;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::quic::{ClientConnection, Connection, KeyChange, Secrets, ServerConnection, Suite};
use rustls::{AlertDescription, CipherSuite, ClientConfig, Error, ServerConfig};
use tls::Asked;
use transport::Cipher;

use crate::early::EarlySecrets;
use crate::endpoint::VERSION;
use crate::tickets::exchange::Passing;
use crate::tickets::{Tickets, resuming};

/// The error of TLS on this side in a handshake.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fault(Arc<Mutex<Option<Error>>>);

impl Fault {
    pub(crate) fn take(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn keep(&self, error: &Error) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
    }
}

/// The suite that protects Initial packets (RFC 9001 section 5.2).
fn initial_suite(provider: &CryptoProvider) -> Option<Suite> {
    let wanted = CipherSuite::TLS13_AES_128_GCM_SHA256;
    let suite = provider.cipher_suites.iter().find(|suite| suite.suite() == wanted)?;
    suite.tls13()?.quic_suite()
}

fn no_suite() -> Error {
    Error::General("TLS_AES_128_GCM_SHA256, which QUIC begins with, is not there".into())
}

/// The TLS of a client for all its sessions, which share their tickets.
#[derive(Clone)]
pub(crate) struct Clients {
    config: Arc<ClientConfig>,
    suite: Suite,
    asked: Arc<Asked>,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Clients {
    pub(crate) fn new(config: &ClientConfig) -> Result<Self, Error> {
        let suite = initial_suite(config.crypto_provider()).ok_or_else(no_suite)?;
        let mut config = config.clone();
        let asked = Asked::watch(&mut config);
        Ok(Self { config: resuming(&config), suite, asked })
    }

    /// Makes the configuration of one session.
    pub(crate) fn one(&self, name: ServerName<'static>) -> Client {
        let (config, fault) = (Arc::clone(&self.config), Fault::default());
        Client { config, name, suite: self.suite, fault }
    }

    /// Makes the configuration of one session that may send early data, and the secrets that tie
    /// the early data to it.
    pub(crate) fn early(&self, name: ServerName<'static>) -> (Client, Arc<EarlySecrets>) {
        let secrets = EarlySecrets::new(&self.config.key_log);
        let mut config = ClientConfig::clone(&self.config);
        config.key_log = Arc::clone(&secrets) as _;
        (Client { config: Arc::new(config), ..self.one(name) }, secrets)
    }

    /// The number of times that servers requested our certificate.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.times()
    }
}

/// Makes one session of a client.
pub(crate) struct Client {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    suite: Suite,
    fault: Fault,
}

impl Client {
    pub(crate) fn fault(&self) -> Fault {
        self.fault.clone()
    }
}

impl crypto::ClientConfig for Client {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        _server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn crypto::Session>, ConnectError> {
        if version != VERSION {
            return Err(ConnectError::UnsupportedVersion);
        }
        let (config, name) = (Arc::clone(&self.config), self.name.clone());
        let made = ClientConnection::new(config, rustls::quic::Version::V1, name, bytes_of(params));
        Ok(Session::start(made.map(Connection::Client), self.suite, self.fault.clone(), None))
    }
}

/// Makes the sessions of a server.
pub(crate) struct Server {
    config: Arc<ServerConfig>,
    tickets: Arc<Tickets>,
    suite: Suite,
    fault: Fault,
    secrets: Arc<EarlySecrets>,
}

impl Server {
    pub(crate) fn new(config: Arc<ServerConfig>, tickets: Arc<Tickets>) -> Result<Self, Error> {
        let suite = initial_suite(config.crypto_provider()).ok_or_else(no_suite)?;
        let (fault, secrets) = (Fault::default(), EarlySecrets::new(&config.key_log));
        Ok(Self { config, tickets, suite, fault, secrets })
    }

    pub(crate) fn secrets(&self) -> Arc<EarlySecrets> {
        Arc::clone(&self.secrets)
    }

    pub(crate) fn fault(&self) -> Fault {
        self.fault.clone()
    }
}

impl crypto::ServerConfig for Server {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        if version != VERSION {
            return Err(UnsupportedVersion);
        }
        Ok(initial_keys(&self.suite, id, Side::Server))
    }

    fn retry_tag(&self, _version: u32, id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        // The client ignores a Retry packet with a wrong tag.
        retry_tag(id, packet).unwrap_or_default()
    }

    fn start_session(
        self: Arc<Self>,
        _version: u32,
        params: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let passing = Passing::begin(&self.tickets, params);
        let mut config = passing.configured(&self.config);
        config.key_log = Arc::clone(&self.secrets) as _;
        let made =
            ServerConnection::new(Arc::new(config), rustls::quic::Version::V1, bytes_of(params));
        let made = made.map(Connection::Server);
        let ours = Some((passing, Arc::clone(&self.secrets)));
        Session::start(made, self.suite, self.fault.clone(), ours)
    }
}

fn bytes_of(params: &TransportParameters) -> Vec<u8> {
    let mut bytes = Vec::new();
    params.write(&mut bytes);
    bytes
}

/// The negotiated parameters: the handshake data of these sessions, for
/// `Connection::handshake_data`.
pub(crate) struct Agreed {
    /// The protocol (ALPN).
    pub(crate) protocol: Option<Vec<u8>>,
    pub(crate) cipher: Option<Cipher>,
}

struct Session {
    /// `None` when rustls refused the configuration; then the peer's first message ends the
    /// session.
    inner: Option<Connection>,
    suite: Suite,
    fault: Fault,
    /// On a server: its tickets, and the secrets that tie early data to the session.
    ours: Option<(Arc<Passing>, Arc<EarlySecrets>)>,
    is_reported: bool,
    next: Option<Secrets>,
}

impl Session {
    fn start(
        made: Result<Connection, Error>,
        suite: Suite,
        fault: Fault,
        ours: Option<(Arc<Passing>, Arc<EarlySecrets>)>,
    ) -> Box<dyn crypto::Session> {
        let inner = made.inspect_err(|error| fault.keep(error)).ok();
        Box::new(Self { inner, suite, fault, ours, is_reported: false, next: None })
    }

    /// Whether the results of the handshake are known: on a server after the ClientHello, on a
    /// client after the ALPN of the answer.
    fn knows(&self) -> bool {
        let Some(inner) = &self.inner else { return false };
        let named = match inner {
            Connection::Client(_) => false,
            Connection::Server(server) => server.server_name().is_some(),
        };
        inner.alpn_protocol().is_some() || named || !inner.is_handshaking()
    }
}

impl crypto::Session for Session {
    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        initial_keys(&self.suite, id, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let inner = self.inner.as_ref().filter(|_| self.is_reported)?;
        Some(Box::new(Agreed {
            protocol: inner.alpn_protocol().map(Into::into),
            cipher: inner.negotiated_cipher_suite().map(tls::cipher),
        }))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        let shown = self.inner.as_ref()?.peer_certificates()?;
        let owned: Vec<CertificateDer<'static>> =
            shown.iter().map(|one| one.clone().into_owned()).collect();
        Some(Box::new(owned))
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.inner.as_ref()?.zero_rtt_keys()?;
        Some((Box::new(keys.header), Box::new(keys.packet)))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        match self.inner.as_ref()? {
            Connection::Client(client) => Some(client.is_early_data_accepted()),
            Connection::Server(_) => None,
        }
    }

    fn is_handshaking(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.is_handshaking())
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        let refused = |alert: AlertDescription, reason| TransportError {
            code: TransportErrorCode::crypto(alert.into()),
            frame: None,
            reason,
        };
        let Some(inner) = &mut self.inner else {
            return Err(refused(AlertDescription::InternalError, String::new()));
        };
        if let Err(error) = inner.read_hs(buf) {
            self.fault.keep(&error);
            let alert = inner.alert().unwrap_or(AlertDescription::DecodeError);
            return Err(refused(alert, error.to_string()));
        }
        if let Some((_, secrets)) = &self.ours {
            secrets.read(inner.zero_rtt_keys().is_some());
        }
        let first = !self.is_reported && self.knows();
        self.is_reported |= first;
        Ok(first)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(inner) = &self.inner else { return Ok(None) };
        let side = match inner {
            Connection::Client(_) => Side::Client,
            Connection::Server(_) => Side::Server,
        };
        let Some(bytes) = inner.quic_transport_parameters() else { return Ok(None) };
        Ok(Some(TransportParameters::read(side, &mut Cursor::new(bytes))?))
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let before = buf.len();
        let change = self.inner.as_mut()?.write_hs(buf);
        if let Some((passing, _)) = &self.ours {
            passing.exchange(buf, before);
        }
        match change? {
            KeyChange::Handshake { keys } => Some(packed(keys)),
            KeyChange::OneRtt { keys, next } => {
                self.next = Some(next);
                Some(packed(keys))
            }
        }
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next.as_mut()?.next_packet_keys();
        Some(KeyPair { local: Box::new(keys.local), remote: Box::new(keys.remote) })
    }

    fn is_valid_retry(&self, id: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let Some((body, tag)) = payload.split_last_chunk::<16>() else { return false };
        // A plain comparison suffices: the key is public, so every observer can compute the tag.
        retry_tag(id, &[header, body].concat()).as_ref() == Some(tag)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let inner = self.inner.as_ref().ok_or(ExportKeyingMaterialError)?;
        let done = inner.export_keying_material(output, label, Some(context));
        done.map(drop).map_err(|_| ExportKeyingMaterialError)
    }
}

fn initial_keys(suite: &Suite, id: &ConnectionId, side: Side) -> Keys {
    let side = match side {
        Side::Client => rustls::Side::Client,
        Side::Server => rustls::Side::Server,
    };
    packed(suite.keys(id, side, rustls::quic::Version::V1))
}

fn packed(keys: rustls::quic::Keys) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(keys.local.header),
            remote: Box::new(keys.remote.header),
        },
        packet: KeyPair {
            local: Box::new(keys.local.packet),
            remote: Box::new(keys.remote.packet),
        },
    }
}

/// The integrity tag of a Retry packet (RFC 9001 section 5.8). It ties the packet to the Initial
/// packet that it answers, under a public key of the RFC. `packet` is passed without the tag.
fn retry_tag(original: &ConnectionId, packet: &[u8]) -> Option<[u8; 16]> {
    const KEY: [u8; 16] = [
        0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8,
        0x4e,
    ];
    const NONCE: [u8; 12] =
        [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];
    let length = [u8::try_from(original.len()).ok()?];
    let pseudo = [&length, &original[..], packet].concat();
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &KEY).ok()?);
    let nonce = Nonce::assume_unique_for_key(NONCE);
    let tag = key.seal_in_place_separate_tag(nonce, Aad::from(pseudo), &mut []).ok()?;
    tag.as_ref().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9001 appendix A.4.
    #[test]
    fn the_tag_of_a_retry_is_the_one_of_the_rfc() {
        let original = ConnectionId::new(&[0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08]);
        let packet = [
            0xff, 0, 0, 0, 1, 0, 8, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62, 0xb5, 0x74, 0x6f,
            0x6b, 0x65, 0x6e,
        ];
        let tag = [
            0x04, 0xa2, 0x65, 0xba, 0x2e, 0xff, 0x4d, 0x82, 0x90, 0x58, 0xfb, 0x3f, 0x0f, 0x24,
            0x96, 0xba,
        ];
        assert_eq!(retry_tag(&original, &packet), Some(tag));
    }
}

//! The keys of packets.
//!
//! Bootstrap packets are sealed with keys that are derived from the connection ids (as QUIC's
//! Initial packets are, RFC 9001 section 5.2): they only exclude attackers who do not see the
//! packets, and corrupted bytes. TLS inside authenticates the peer. The keys of sealed packets are
//! exported from TLS (RFC 8446 section 7.5).

use aws_lc_rs::hkdf;
use kcp::own::Keys;
use kcp::own::wire::ConnectionId;
use kcp_crypto::{Algorithm, RollingKeys, UPDATE_AFTER};
use rustls::CipherSuite;
use transport::Side;

/// The label of the exported secrets: 32 bytes for each direction, the client's first.
const LABEL: &[u8] = b"EXPORTER-tunnel-kcp-packets";

/// The salt of the bootstrap keys. It changes with the version of the handshake.
const SALT: &[u8] = b"tunnel kcp bootstrap 1";

/// Both directions: the client's sealing secret, and the server's.
struct Secrets {
    client: [u8; 32],
    server: [u8; 32],
}

impl Secrets {
    fn keys(&self, side: Side, algorithm: Algorithm) -> Option<Box<dyn Keys>> {
        let (seal, open) = match side {
            Side::Client => (&self.client, &self.server),
            Side::Server => (&self.server, &self.client),
        };
        let keys = RollingKeys::new(algorithm, seal, open, UPDATE_AFTER).ok()?;
        Some(Box::new(keys))
    }
}

/// The keys of bootstrap packets. `None`: the library refuses them, which does not happen.
pub(crate) fn bootstrap(
    side: Side,
    server: ConnectionId,
    client: ConnectionId,
) -> Option<Box<dyn Keys>> {
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT);
    let mut ids = [0; 16];
    ids.iter_mut().zip(server.0.into_iter().chain(client.0)).for_each(|(to, from)| *to = from);
    let secret = salt.extract(&ids);
    let expand = |info: &[u8]| {
        let mut out = [0; 32];
        let info = [info];
        secret.expand(&info, hkdf::HKDF_SHA256).ok()?.fill(&mut out).ok()?;
        Some(out)
    };
    let secrets = Secrets { client: expand(b"client")?, server: expand(b"server")? };
    secrets.keys(side, Algorithm::Aes128Gcm)
}

/// The algorithm of sealed packets, by the suite that TLS has chosen. `None`: a suite that TLS 1.3
/// does not have, or that this project does not offer.
fn algorithm(suite: CipherSuite) -> Option<Algorithm> {
    let known = [
        (CipherSuite::TLS13_AES_128_GCM_SHA256, Algorithm::Aes128Gcm),
        (CipherSuite::TLS13_AES_256_GCM_SHA384, Algorithm::Aes256Gcm),
        (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, Algorithm::ChaCha20Poly1305),
    ];
    known.into_iter().find(|(known, _)| *known == suite).map(|(_, algorithm)| algorithm)
}

/// The keys of sealed packets, from a TLS session after its handshake. `export` fills a buffer with
/// keying material of a label.
pub(crate) fn sealed(
    side: Side,
    suite: CipherSuite,
    export: impl FnOnce(&mut [u8; 64], &[u8]) -> bool,
) -> Option<Box<dyn Keys>> {
    let mut material = [0; 64];
    if !export(&mut material, LABEL) {
        return None;
    }
    let (client, server) = material.split_first_chunk::<32>()?;
    let secrets = Secrets { client: *client, server: *server.first_chunk()? };
    secrets.keys(side, algorithm(suite)?)
}

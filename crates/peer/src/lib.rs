//! Links between two clients, by which private services are visited. The visitor is the client of
//! such a link, and the client that has the service its server.
//!
//! ```text
//!   program ──> forward ──> peer link ─┐                      ┌─ peer link ──> target
//!                                      │  TLS 1.3 in a stream │
//!   visitor ══════ link ════> server ══╪══════ bridge ════════╪══ link ══> client of the service
//!                                      └──────────────────────┘
//! ```
//!
//! A peer link is an ordinary link: it resumes, it carries streams and flows, and each of its
//! carriers runs the greeting. The greeting proves the token that only the two clients have, bound
//! to the TLS session; or both ends show certificates of one authority. The server joins the
//! streams that carry the link, and can neither read nor change what they carry.
//!
//! | module | content |
//! |---|---|
//! | [`accept`] | the side that has the service: who may log in, where the links are, what they reach |
//! | [`links`] | the side that visits: a link for each service, made on demand |
//! | [`direct`] | both sides: carriers that do not pass through the server |
//! | [`material`] | both sides: the certificates in force |
//! | [`home`] | both sides: the interface of the client process around them |
//! | [`visit`] | which visitor visits which service |
//! | `turns` | limits on concurrent work for visitors |
//! | [`wire`] | the messages of the server and the client of a service about a WebRTC offer |

pub mod accept;
pub mod direct;
pub mod home;
pub mod links;
pub mod material;
mod turns;
pub mod visit;
#[cfg_attr(
    not(feature = "webrtc"),
    allow(dead_code, reason = "without WebRTC every offer is refused")
)]
pub mod wire;

use std::sync::{Arc, OnceLock};

use config::{PeerTls, PrivateService};
use tls::{ClientConfig, PEER_NAME, ServerConfig, peer_client_config, peer_server_config};
use transport::{ALPN, CarrierError, Transport};
use transport_tcp::TlsClient;

use crate::home::Home;

/// The transport of a carrier over a stream that the server joins.
const RELAY: Transport = Transport::new("relay");

/// The TLS of a visitor that has a token.
fn client_tls() -> Result<TlsClient, CarrierError> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let bad = |why: String| CarrierError::Config(why);
    let config = match CONFIG.get() {
        Some(config) => Arc::clone(config),
        None => {
            let made = peer_client_config(&[ALPN]).map_err(|why| bad(why.to_string()))?;
            Arc::clone(CONFIG.get_or_init(|| made))
        }
    };
    let name = tls::server_name(PEER_NAME).map_err(|why| bad(why.to_string()))?;
    Ok(TlsClient { config, name })
}

/// The TLS of a visitor that has a certificate, and trusts only the certificate of the other
/// client.
fn certified_tls(
    shared: &Arc<dyn Home>,
    tls: &PeerTls,
    service: &PrivateService,
) -> Result<TlsClient, CarrierError> {
    let own = shared.materials().of(tls);
    let own =
        own.ok_or_else(|| CarrierError::Config("the certificates were not read".to_owned()))?;
    let config = own.client_config(service.client.as_str(), &[ALPN])?;
    Ok(TlsClient { config, name: tls::server_name(PEER_NAME)? })
}

/// The TLS of the side that has the service, towards visitors that have a token.
fn server_tls() -> Result<Arc<ServerConfig>, CarrierError> {
    static CONFIG: OnceLock<Arc<ServerConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(Arc::clone(config));
    }
    let made = peer_server_config(&[ALPN]);
    let made = made.map_err(|why| CarrierError::Config(why.to_string()))?;
    Ok(Arc::clone(CONFIG.get_or_init(|| made)))
}

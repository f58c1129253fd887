//! What a client needs for the handshake.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

/// The TLS settings of a dialer, with the name of the server.
#[derive(Clone, Debug)]
pub struct TlsClient {
    /// The configuration, from [`::tls::client_config`], with the ALPN of the protocol inside TLS.
    pub config: Arc<ClientConfig>,
    /// The name that the certificate must have, which is also the SNI. [`::tls::server_name`] makes
    /// it from the host of the URL or from `tls.sni`.
    pub name: ServerName<'static>,
}

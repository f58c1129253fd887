//! TLS for every transport that uses it: the one place for the crypto provider, certificates,
//! pins and verifiers.
//!
//! rustls with aws-lc-rs, passed explicitly (a process default would be a hidden global, and two
//! providers in one tree make rustls panic), hybrid post-quantum key exchange first, TLS 1.3 only.
//! Sessions are not resumed and 0-RTT is off; over QUIC `transport-quic` turns both on.

mod authority;
mod config;
mod error;
mod explain;
mod host;
mod identity;
mod name;
mod own;
mod pin;
mod verify;

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};

pub use authority::{Authority, Issued};
pub use config::{Trust, client_config, server_config};
pub use error::MaterialError;
pub use explain::{explain, io_error};
pub use host::{HostName, HostNameError};
pub use identity::{Identity, load_certificates};
pub use name::{certificate_name, server_name};
pub use own::self_signed;
pub use pin::{Pin, PinError};
/// The two sides, as [`client_config`] and [`server_config`] make them; only transports look inside.
pub use rustls::{ClientConfig, ServerConfig};

/// The crypto provider of everything here.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

//! TLS for all transports that use it: crypto provider, certificates, pins and verifiers.
//!
//! The configurations use rustls with aws-lc and, for AES-GCM on some CPUs, ring. They speak TLS
//! 1.3 and prefer hybrid post-quantum key exchange. TLS 1.2 is for other programs: a proxy in front
//! of the server where the client's file permits it, or a certificate authority. The provider is
//! passed explicitly, because a process default is a hidden global, and rustls, which is built with
//! two libraries, panics where it must guess. Resumption and 0-RTT are off; `transport-quic` turns
//! both on.

mod asked;
mod authority;
mod between;
mod certified;
mod config;
mod error;
mod explain;
mod host;
mod identity;
mod key_log;
mod name;
mod own;
mod pin;
mod signatures;
mod suites;
mod target;
mod verify;
mod visitors;
mod words;

pub use asked::Asked;
pub use authority::{Authority, Issued};
pub use between::{PEER_NAME, peer_client_config, peer_server_config};
pub use certified::{PeerFault, PeerMaterial, Shown};
pub use config::{Oldest, Trust, client_config, client_config_from, server_config};
pub use error::MaterialError;
pub use explain::{explain, io_error, of_authority, of_visitor};
pub use host::{HostName, HostNameError};
pub use identity::{Identity, day_of, load_certificates};
pub use key_log::{client_with_key_log, server_with_key_log};
pub use name::{certificate_name, issuer_and_serial, server_name};
pub use own::{OWN_CERTIFICATE, OWN_KEY, fleeting, self_signed, self_signed_texts};
pub use pin::{Pin, PinError};
/// Configurations that [`client_config`] and [`server_config`] make. Only transports read them.
pub use rustls::{ClientConfig, ServerConfig};
pub use suites::{Backend, Cpu, Suites, cipher, order_suites, provider};
pub use target::{TargetError, TargetStream, TargetTls};
pub use visitors::{VisitorStream, VisitorTls};

//! A path to the server, and how its certificate is verified.

use std::path::PathBuf;

use proto::Dscp;

use super::credentials::{Field, KeyPair};
use super::doors::TlsVersion;
use crate::{Endpoint, Proxy};

/// One path to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The server's address.
    pub endpoint: Endpoint,
    /// How the client verifies the server's certificate.
    pub trust: Trust,
    /// The client's certificate for this path.
    pub identity: Option<KeyPair>,
    /// The oldest version of TLS that the path accepts. [`TlsVersion::V12`] is possible only for a
    /// WebSocket scheme, whose TLS may end at a proxy.
    pub min_version: TlsVersion,
    /// Server name in the TLS handshake (SNI) instead of the host. If the host is an address, this
    /// name is also the host of the HTTP request.
    pub sni: Option<String>,
    /// Additional header fields of the HTTP request (`wss://`, `ws://`). Each name is unique.
    pub headers: Vec<Field>,
    /// Outgoing proxy; `None`: the client connects directly.
    pub proxy: Option<Proxy>,
    /// The code point of the packets to the server, or to the proxy.
    pub dscp: Dscp,
}

/// How a server's certificate is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// By the authorities that the system trusts.
    System,
    /// By its public key, which must match a pin: `sha256:` and 44 characters of Base64.
    Pins(Vec<String>),
    /// By the authorities in a PEM file.
    Ca(PathBuf),
}

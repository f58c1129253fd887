//! A path to the server, and how its certificate is verified.

use std::path::PathBuf;

use crate::key_table::KeyTable;
use crate::model::credentials::{self, Field, KeyPair};
use crate::model::dial_options::DialOptions;
use crate::model::doors::TlsVersion;
use crate::section::Section;
use crate::words::words;
use crate::{BadValue, Endpoint, Proxy, values};

words! {
    /// How the links of a client are distributed over its paths.
    pub enum PathSpread: "spread" {
        /// Each link uses the first path that answers, and dials the next path after a loss.
        #[default]
        Off = "none",
        /// The links take turns over the paths, each with a standby over its next path.
        ByStream = "by_stream",
        /// Each link uses the first path that answers, with a standby over the next path.
        Backup = "backup",
    }
}

words! {
    /// How the path of the links to a server is chosen.
    pub enum Choose: "way to choose a path" {
        /// The first path of the list that works.
        #[default]
        Listed = "listed",
        /// The path with the best figures on the present network.
        Measured = "measured",
    }
}

/// One path to the server.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows)]
#[row(tls: map, keys = PathTls, of = "of this path", absent = "`tls` of the top",
    text = "The TLS settings of the client on this path.")]
pub struct Path {
    /// The transport and address of the server on this path.
    #[key("URL", name = "url", required, holds = Url)]
    pub endpoint: Endpoint,
    /// How the client verifies the server's certificate.
    pub trust: Trust,
    /// The client's certificate for this path.
    pub identity: Option<KeyPair>,
    /// The oldest version of TLS that the path accepts. [`TlsVersion::V12`] is possible only for a
    /// WebSocket scheme, whose TLS may end at a proxy.
    pub min_version: TlsVersion,
    /// The server name in the TLS handshake of this path.
    ///
    /// If the host is an address, this name is also the host of the HTTP request.
    #[key("name", absent = "the host")]
    pub sni: Option<String>,
    /// Additional HTTP headers of WebSocket requests on this path.
    ///
    /// Each name is unique.
    #[key("map of names to values", absent = "`headers` of the top", holds = Fields)]
    pub headers: Vec<Field>,
    /// The outgoing proxy of this path.
    ///
    /// `None`: the client connects directly.
    #[key("`http://`, `socks4://`, `socks4a://`, `socks5://` or `socks5h://` URL, `none`",
        absent = "`proxy` of the top", holds = Url)]
    pub proxy: Option<Proxy>,
    /// The other server of the client through which this path leads to the server.
    ///
    /// The other server dials the server by TCP and needs no part of the configuration of the path
    /// but its host and port.
    #[key("name of another entry of `servers`", none = "the client dials")]
    pub via: Option<String>,
    /// What the packets to the server, or to the proxy, are like.
    #[key(flat, at = Path)]
    pub dial: DialOptions,
}

/// A decoded value of `proxy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// No proxy, even if the environment names a proxy.
    None,
    Of(Proxy),
}

/// A section `tls` of a client: how the other side is verified, and what this side shows.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(first = verification)]
#[row(pin: "`sha256:…`, one or list", none,
    text = "The accepted public keys {of}, instead of any other verification.")]
#[row(ca: "path", none, holds = KeyFile,
    text = "The file of the authorities that verify the certificate {of}.")]
#[row(cert: "path", none, holds = KeyFile,
    text = "The file of the certificate that this side presents on connections {of}.")]
#[row(key: "path", none, holds = KeyFile,
    text = "The file of the private key of the certificate on connections {of}.")]
pub(crate) struct PathTls {
    /// How the certificate is verified.
    #[key(from = trust)]
    pub(crate) trust: Trust,
    /// The certificate of this side.
    #[key(from = identity)]
    pub(crate) identity: Option<KeyPair>,
    /// The lowest TLS version of connections {of}.
    #[key("`1.2`, `1.3`", default = "1.3", with = oldest)]
    pub(crate) min_version: TlsVersion,
}

impl Default for PathTls {
    fn default() -> Self {
        Self { trust: Trust::System, identity: None, min_version: TlsVersion::V13 }
    }
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

/// Decodes `min_version` of a client's TLS, with a warning where it is below the default.
pub(crate) fn oldest(s: &Section<'_>, key: &str) -> Option<TlsVersion> {
    let oldest = s.parse(key).unwrap_or(TlsVersion::V13);
    if let Some(item) = s.key(key).filter(|_| oldest == TlsVersion::V12) {
        let bad = BadValue::new("TLS 1.2 is accepted, which shows certificates to whoever listens");
        let hint = "remove the key as soon as the proxy in front of the server offers TLS 1.3";
        s.cx.warn(item.at(), &item.path, bad.hint(hint));
    }
    Some(oldest)
}

/// What [`PathTls`] takes from several keys.
pub(crate) struct Verified {
    pub(crate) trust: Trust,
    pub(crate) identity: Option<KeyPair>,
}

pub(crate) fn verification(s: &Section<'_>) -> Option<Verified> {
    Some(Verified { trust: trust(s), identity: credentials::key_pair(s) })
}

/// Decodes `pin` and `ca`.
pub(crate) fn trust(s: &Section<'_>) -> Trust {
    let pins = s.one_or_list("pin");
    let pins: Vec<String> = pins.iter().filter_map(|item| s.cx.value(item, pin)).collect();
    let ca = values::path(s, "ca");
    if s.has("pin") && ca.is_some() {
        s.bad(
            "ca",
            BadValue::new("pin and ca together").hint("a pin needs no authority: keep one of them"),
        );
    }
    match ca {
        _ if !pins.is_empty() => Trust::Pins(pins),
        Some(ca) => Trust::Ca(ca),
        None => Trust::System,
    }
}

/// Parses a pin: `sha256:` and the Base64 of 32 bytes.
fn pin(text: &str) -> Result<String, BadValue> {
    let body = text.strip_prefix("sha256:").and_then(|t| t.strip_suffix('='));
    let base64 = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    match body {
        Some(body) if body.len() == 43 && body.bytes().all(base64) => Ok(text.to_owned()),
        _ => Err(BadValue::new("a pin is `sha256:` and 44 characters of Base64")
            .hint("copy it from what the server prints at start")),
    }
}

//! The admin API.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use super::credentials::Token;
use crate::endpoint::{port as port_of, split};
use crate::{BadValue, Host, Target};

/// Settings of the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// The address of the listener.
    pub listen: SocketAddr,
    /// The token, or its hash. The token permits every request.
    pub token: Token,
    /// The read-only token, or its hash. It differs from `token`.
    pub read_token: Option<Token>,
    /// Host names that requests may use, besides addresses and `localhost`.
    pub hosts: Vec<Host>,
    /// The origin of the web console behind a reverse proxy.
    pub origin: Option<WebOrigin>,
}

impl Admin {
    /// Whether a program that dials `target` on this machine reaches the API. A name other than the
    /// loopback names is not looked up.
    #[must_use]
    pub fn is_at(&self, target: &Target) -> bool {
        let Some((host, port)) = target.port() else { return false };
        // The API speaks TCP.
        if matches!(target, Target::Udp { .. }) || port != self.listen.port() {
            return false;
        }
        let own = self.listen.ip().to_canonical();
        match host {
            Host::Name(_) => {
                host.leads_to_loopback() && (own.is_loopback() || own.is_unspecified())
            }
            // The API does not listen on addresses of an interface.
            Host::Scoped(_) => own.is_unspecified(),
            Host::Ip(ip) => {
                let ip = ip.to_canonical();
                // An unspecified address leads to loopback.
                ip == own
                    || own.is_unspecified() && ip.is_loopback()
                    || ip.is_unspecified() && (own.is_loopback() || own.is_unspecified())
            }
        }
    }
}

/// The origin of a web page (RFC 6454): `https://console.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebOrigin {
    /// `https`, else `http`.
    pub tls: bool,
    /// The host.
    pub host: Host,
    /// The port; the default port of the scheme if the text has none.
    pub port: u16,
}

impl FromStr for WebOrigin {
    type Err = BadValue;

    /// The message does not repeat the text, which may contain a password.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        let read = || {
            let (tls, rest) = match text.split_once("://")? {
                ("https", rest) => (true, rest),
                ("http", rest) => (false, rest),
                _ => return None,
            };
            let (host, port) = split(rest).ok()?;
            let default = if tls { 443 } else { 80 };
            let port = port.map_or(Ok(default), port_of).ok()?;
            Some(Self { tls, host: host.parse().ok()?, port })
        };
        read().ok_or_else(|| {
            BadValue::new("not the origin of a page: a scheme, a host and perhaps a port")
                .hint("like https://console.example.com, without a path")
        })
    }
}

impl fmt::Display for WebOrigin {
    /// The origin as browsers send it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, default) = if self.tls { ("https", 443) } else { ("http", 80) };
        write!(f, "{scheme}://{}", self.host)?;
        if self.port == default { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

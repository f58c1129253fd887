//! The admin API.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use proto::greeting::StoredCredential;

use crate::endpoint::{port as port_of, split};
use crate::key_table::KeyTable;
use crate::model::credentials::{Kept, MAKE_TOKEN, TOKEN_WANTED, Token, tokens, tokens_of};
use crate::section::Section;
use crate::{BadValue, Host, Target};

/// Settings of the admin API.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(check = admin)]
#[row(token_file: "path", absent = "instead of `token`", holds = TokenFile,
    text = "The file with the token of the admin API or its hash.")]
#[row(read_token_file: "path", absent = "instead of `read_token`", holds = TokenFile,
    text = "The file with the read-only token of the admin API or its hash.")]
pub struct Admin {
    /// The address at which the admin API and the web console listen.
    #[key("address:port", default = "127.0.0.1:7070", holds = Url, read = address)]
    pub listen: SocketAddr,
    /// The token of the admin API or its hash, which permits every request.
    #[key("token or its hash", required, holds = Token, with = token)]
    pub token: Token,
    /// The read-only token of the admin API or its hash.
    ///
    /// It differs from `token`.
    #[key("token or its hash", none, holds = Token, with = read_token)]
    pub read_token: Option<Token>,
    /// Additional host names under which requests may reach the admin API.
    ///
    /// Addresses and `localhost` are always possible.
    #[key("list of host names", none = "addresses and `localhost`", each)]
    pub hosts: Vec<Host>,
    /// The additional web origin that may send requests, for a console behind a proxy.
    #[key("`https://host` or `http://host`, with a port", none, holds = Url)]
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

/// The keys of the read-only token.
const READ_KEYS: [&str; 2] = ["read_token", "read_token_file"];

/// Parses the address of the admin API.
pub(crate) fn address(text: &str) -> Result<SocketAddr, BadValue> {
    let bad = |_| BadValue::new(format!("`{text}` is not an address with a port"));
    text.parse().map_err(|why| bad(why).hint("like 127.0.0.1:7070"))
}

/// Decodes the token of the admin API.
pub(crate) fn token(s: &Section<'_>, _: &str) -> Option<Token> {
    tokens(s, 1, Kept::OrHashed, Some(TOKEN_WANTED)).pop()
}

/// Decodes the read-only token of the admin API.
pub(crate) fn read_token(s: &Section<'_>, _: &str) -> Option<Token> {
    tokens_of(s, READ_KEYS, 1, Kept::OrHashed, None).pop()
}

/// Checks the tokens together, and warns of an address without TLS.
pub(crate) fn admin(s: &Section<'_>, admin: Admin) -> Option<Admin> {
    if s.has("listen") && !admin.listen.ip().is_loopback() {
        let bad = BadValue::new("no TLS on an address others can reach");
        s.warn("listen", bad.hint("bind 127.0.0.1, or put a proxy with TLS in front"));
    }
    if admin.read_token.as_ref().is_some_and(|read| is_same(&admin.token, read)) {
        let [inline, file] = READ_KEYS;
        let key = if s.has(inline) { inline } else { file };
        let bad = BadValue::new("the same token as `admin.token`, which permits everything");
        s.bad(key, bad.hint(MAKE_TOKEN));
    }
    Some(admin)
}

/// Whether two tokens are equal; each may be written as its hash.
fn is_same(one: &Token, other: &Token) -> bool {
    let stored = |token: &Token| StoredCredential::of(token.secret.reveal()).ok();
    // Both were checked, so both are present.
    stored(one).is_some_and(|one| stored(other).as_ref() == Some(&one))
}

//! Servers that a client finds: by an API that it asks over HTTPS, or by SRV records of DNS.

use std::fmt;
use std::str::FromStr;

use crate::key_table::KeyTable;
use crate::model::credentials::{Field, Token};
use crate::model::path::{Path, PathTls, Wish};
use crate::secrets::url;
use crate::{BadValue, Endpoint, Over, Secret, Span};

/// The API that tells a client its servers.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows)]
#[row(url: "URL", required, holds = Url,
    text = "The URL at which the client asks for its servers.")]
#[row(tls: map, keys = PathTls, of = "of the API", absent = "authorities of the system",
    text = "Certificates and TLS version of connections to the API.")]
#[row(headers: "map of names to values", none, holds = Fields,
    text = "Additional header fields of each request to the API.")]
#[row(proxy: "`http://`, `socks4://`, `socks4a://`, `socks5://` or `socks5h://` URL, `none`",
    absent = "`proxy` of the top", holds = Url,
    text = "The outgoing proxy through which the client asks the API.")]
#[row(token_file: "path", absent = "instead of `token`", holds = TokenFile,
    text = "The file with the token that the client sends to the API.")]
pub struct ServersFrom {
    /// The path to the API. Its scheme is `wss` for `https`, and `ws` for `http`.
    pub path: Path,
    /// The token that the client sends to the API as `Authorization: Bearer`.
    ///
    /// The path of the token file is irrelevant in a comparison; only the token counts.
    #[key("text", none, holds = Token)]
    pub token: Option<Token>,
    /// The time after which the client asks the API again.
    ///
    /// The client also asks when no link is live. An answer of the API may name another time.
    #[key("duration, 10s to 1d", default = "5m")]
    pub every: Span,
}

impl ServersFrom {
    /// The URL for people, without secret values of its query.
    #[must_use]
    pub fn url(&self) -> String {
        let Endpoint { scheme, host, port, path } = &self.path.endpoint;
        let scheme = if scheme.tls { "https" } else { "http" };
        let path = url::without_query_secrets(path.as_deref().unwrap_or("/"));
        format!("{scheme}://{host}:{port}{path}")
    }
}

/// The name of a service in DNS: `_tunnel._tcp.example.com` (RFC 2782).
#[derive(Clone, PartialEq, Eq)]
pub struct SrvName {
    name: String,
    over: Over,
}

impl SrvName {
    /// The name, in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The protocol below the transport of the servers: `tls://` is over TCP, `quic://` over UDP.
    #[must_use]
    pub const fn over(&self) -> Over {
        self.over
    }
}

impl FromStr for SrvName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let hint = "for example _tunnel._tcp.example.com (tls://), or _tunnel._udp.example.com \
                    (quic://)";
        let bad = |why: &str| Err(BadValue::new(format!("`{text}` {why}")).hint(hint));
        if text.contains("://") {
            return bad("is a URL, not the name of a service in DNS");
        }
        let name = text.to_ascii_lowercase();
        let plain = name.strip_suffix('.').unwrap_or(&name);
        let labels: Vec<&str> = plain.split('.').collect();
        let is_label = |label: &&str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        if plain.len() > 253 || !labels.iter().all(is_label) {
            return bad("is not a name of DNS");
        }
        let over = match labels[..] {
            [service, "_tcp", _, ..] if service.starts_with('_') => Over::Tcp,
            [service, "_udp", _, ..] if service.starts_with('_') => Over::Udp,
            _ => return bad("does not begin with a service and a protocol"),
        };
        Ok(Self { name, over })
    }
}

impl fmt::Display for SrvName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for SrvName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SrvName({})", self.name)
    }
}

/// The settings at the top of the file that apply to each path without its own settings, and to the
/// paths of servers that are found while the client runs.
///
/// The default has no settings, and the client has a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathDefaults {
    pub(crate) tls: PathTls,
    pub(crate) headers: Vec<Field>,
    pub(crate) proxy: Option<Wish>,
    /// The variables of the environment that name proxies, as at the load of the file.
    pub(crate) environment: Vec<(&'static str, Secret)>,
    /// Whether the client has no token, so that a certificate on each path has to log in.
    pub(crate) by_certificate: bool,
}

/// A server that an API or DNS names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundServer {
    /// The name, which is unique among the found servers.
    pub name: String,
    /// The paths to the server, in order of preference. At least one.
    pub paths: Vec<Path>,
}

/// The answer of an API or of DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundServers {
    /// The servers in order of preference. At least one.
    pub servers: Vec<FoundServer>,
    /// The time after which the API wants to be asked again.
    pub every: Option<Span>,
}

/// The keys of the answer of the API.
#[derive(KeyTable)]
#[keys(rows)]
#[row(servers: "list of URLs and maps", list, keys = FoundEntry, required,
    text = "The servers of the client, in order of preference.")]
#[row(every: "duration, 10s to 1d", absent = "`every` of `servers_from`",
    text = "The time after which the client asks the API again.")]
pub(crate) struct FoundDocument;

/// The keys of a server in the answer of the API.
#[derive(KeyTable)]
#[keys(rows)]
#[row(name: "name", required, text = "The name of the server, which is unique in the answer.")]
#[row(paths: "URL or map, one or list", list, keys = Path, required, holds = Url,
    text = "The paths to the server, in order of preference.")]
pub(crate) struct FoundEntry;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_service_says_over_which_protocol_its_servers_are() {
        let name = |text: &str| text.parse::<SrvName>();
        let tcp = name("_Tunnel._TCP.Example.com").unwrap();
        assert_eq!((tcp.as_str(), tcp.over()), ("_tunnel._tcp.example.com", Over::Tcp));
        assert_eq!(name("_t._udp.a.").unwrap().over(), Over::Udp);
        for wrong in [
            "",
            ".",
            "example.com",
            "_tunnel._tcp",
            "_tunnel._tcp.",
            "tunnel._tcp.example.com",
            "_tunnel._sctp.example.com",
            "_tunnel.tcp.example.com",
            "_tunnel._tcp..com",
            "https://example.com",
            "_tunnel._tcp.a b",
            "_tunnel._tcp.example.com:53",
        ] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
        let long = format!("_tunnel._tcp.{}", vec!["a".repeat(60); 5].join("."));
        assert!(name(&long).is_err());
    }
}

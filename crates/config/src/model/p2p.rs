//! How a client finds direct paths to other clients.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::endpoint::split;
use crate::key_table::KeyTable;
use crate::model::limits::number;
use crate::section::Section;
use crate::{BadValue, Host, Span};

/// The STUN port that IANA assigned (RFC 8489).
pub const STUN_PORT: u16 = 3478;

/// `p2p` of a client.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(first = candidates)]
#[row(candidates: "list of `host`, `mapped`, `reflexive`", absent = "all",
    text = "The kinds of addresses of the client that peers learn for direct paths.")]
pub struct P2p {
    /// The STUN servers that the client queries besides the tunnel server.
    #[key("list of `HOST[:PORT]`, at most 6", none, with = stun)]
    pub stun: Vec<StunAddress>,
    /// The local UDP ports of sockets for direct paths.
    ///
    /// The first and the last port; `None`: any port.
    #[key("port or range", absent = "any", read = ports)]
    pub ports: Option<(u16, u16)>,
    /// Whether peers learn the addresses of this machine's interfaces, and private addresses of
    /// peers are tried.
    #[key(from = host)]
    pub host: bool,
    /// Whether the client requests a port mapping from the router if no path is found without one.
    #[key(from = mapped)]
    pub mapped: bool,
    /// Whether peers learn the addresses that STUN servers report.
    #[key(from = reflexive)]
    pub reflexive: bool,
    /// The limits of WebRTC connections to peers.
    #[key(map)]
    pub webrtc: P2pWebrtc,
}

/// `p2p.webrtc` of a client.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
pub struct P2pWebrtc {
    /// Limits the peers that are connected or connecting by WebRTC at a time.
    #[key("number, from 1 on", default = "30", read = peers)]
    pub peers: u32,
    /// The idle timeout of a WebRTC connection to a peer.
    #[key("duration, above 0", default = "5m", read = Span::positive)]
    pub idle: Span,
}

/// The keys of `p2p` of a server.
#[derive(KeyTable)]
#[keys(rows, later("stun", "ports"))]
#[row(webrtc: map, keys = ServerWebrtc, none,
    text = "Permits programs to visit private services over WebRTC.")]
pub(crate) struct ServerP2p;

/// `p2p.webrtc` of a server: programs visit private services over WebRTC.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(later("peers", "idle"))]
pub struct ServerWebrtc {
    /// The URL path of WebRTC offers at the listeners of HTTP and WebSockets.
    #[key("path", default = "/webrtc", read = path)]
    pub path: String,
}

impl P2p {
    /// Whether no direct path is tried because peers learn no address.
    #[must_use]
    pub const fn is_relayed(&self) -> bool {
        !self.host && !self.mapped && !self.reflexive
    }
}

/// A STUN server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StunAddress {
    /// Name or address.
    pub host: Host,
    /// At least 1.
    pub port: u16,
}

impl fmt::Display for StunAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// STUN servers of a file, at most: an attempt queries eight, including the tunnel's own server.
const SERVERS: usize = 6;

/// Decodes `stun`.
pub(crate) fn stun(s: &Section<'_>, key: &str) -> Vec<StunAddress> {
    let stun = s.each(key, str::parse);
    if stun.len() > SERVERS {
        s.bad(key, BadValue::new(format!("more than {SERVERS} servers")));
    }
    stun
}

/// Parses `webrtc.peers`.
pub(crate) fn peers(text: &str) -> Result<u32, BadValue> {
    number(text, "peers").map(NonZeroU32::get)
}

/// The kinds of addresses that peers learn.
pub(crate) struct Candidates {
    pub(crate) host: bool,
    pub(crate) mapped: bool,
    pub(crate) reflexive: bool,
}

/// Decodes `candidates`. Without the key, peers learn all kinds.
pub(crate) fn candidates(s: &Section<'_>) -> Option<Candidates> {
    if !s.has("candidates") {
        return Some(Candidates { host: true, mapped: true, reflexive: true });
    }
    let kinds = s.each("candidates", kind);
    let has = |kind| kinds.contains(&kind);
    let (host, mapped) = (has(Kind::Host), has(Kind::Mapped));
    Some(Candidates { host, mapped, reflexive: has(Kind::Reflexive) })
}

/// The path of offers: segments of letters, digits and characters without a special meaning in a
/// URL.
pub(crate) fn path(text: &str) -> Result<String, BadValue> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~/".contains(c);
    let is_path = text.len() > 1 && text.starts_with('/') && !text.ends_with('/');
    if is_path && !text.contains("//") && text.chars().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(BadValue::new(format!("`{text}` is no path of offers")).hint("/webrtc"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Host,
    Mapped,
    Reflexive,
}

fn kind(text: &str) -> Result<Kind, BadValue> {
    match text {
        "host" => Ok(Kind::Host),
        "mapped" => Ok(Kind::Mapped),
        "reflexive" => Ok(Kind::Reflexive),
        _ => Err(BadValue::new(format!("`{text}` is no kind of address"))
            .hint("host, mapped, reflexive")),
    }
}

/// Parses `40000-40100`, or a single port.
pub(crate) fn ports(text: &str) -> Result<(u16, u16), BadValue> {
    let bad = || BadValue::new(format!("`{text}` is no range of ports")).hint("40000-40100");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let (first, last) = port(first).zip(port(last)).ok_or_else(bad)?;
    if first > last { Err(bad()) } else { Ok((first, last)) }
}

impl FromStr for StunAddress {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || {
            BadValue::new(format!("`{text}` is no STUN server"))
                .hint("stun.example.com, or stun.example.com:3478")
        };
        let bare = text.strip_prefix("stun:").unwrap_or(text);
        let (host, port) = split(bare)?;
        let host = host.parse().map_err(|_| bad())?;
        let port = match port {
            None => STUN_PORT,
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(bad)?,
        };
        Ok(Self { host, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientFlags, Sources, Text};

    #[test]
    fn a_client_that_tells_no_kind_of_address_stays_relayed() {
        for (candidates, is_relayed) in
            [("[]", Some(true)), ("host", Some(false)), ("[reflexive]", Some(false)), ("x", None)]
        {
            let text = format!(
                "servers: tcp://127.0.0.1:1\nname: home\ntoken: \
                 q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ\np2p: {{ candidates: {candidates} }}\n"
            );
            let sources = Sources { env: &|_| None, read: &|_| Ok(String::new()) };
            let text = Some(Text { name: "client.yaml", text: &text });
            let loaded = crate::load_client(text, &ClientFlags::default(), &sources);
            let read = loaded.ok().map(|loaded| loaded.config.p2p.is_relayed());
            assert_eq!(read, is_relayed, "{candidates}");
        }
    }

    #[test]
    fn servers_have_the_port_of_stun_unless_they_name_another() {
        let read = |text: &str| text.parse::<StunAddress>().map(|one| one.to_string()).ok();
        for (text, expected) in [
            ("stun.example.com", "stun.example.com:3478"),
            ("stun:stun.example.com:19302", "stun.example.com:19302"),
            ("192.0.2.1", "192.0.2.1:3478"),
            ("[2001:db8::1]:9", "[2001:db8::1]:9"),
        ] {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
        }
        for bad in ["", "a b", "x:0", "x:y", "2001:db8::1", "stun://x"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn ports_are_a_range_or_one_port() {
        assert_eq!(ports("40000-40100").unwrap(), (40_000, 40_100));
        assert_eq!(ports("4000").unwrap(), (4_000, 4_000));
        for bad in ["", "0", "5-4", "1-", "-1", "1-70000", "a-b"] {
            assert!(ports(bad).is_err(), "{bad}");
        }
    }
}

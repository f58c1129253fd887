//! `p2p` of a client: how direct paths to other clients are found.

use std::num::NonZeroU32;
use std::str::FromStr;

use super::{Cx, Item, Section, values as units};
use crate::endpoint::split;
use crate::keys::{P2P, P2P_WEBRTC, SERVER_P2P, SERVER_WEBRTC};
use crate::model::{Listen, P2p, P2pWebrtc, ServerWebrtc, StunAddress};
use crate::{BadValue, STUN_PORT};

/// STUN servers of a file, at most: an attempt queries eight, including the tunnel's own server.
const SERVERS: usize = 6;

pub(super) fn p2p(s: &Section<'_>) -> P2p {
    let Some(p2p) = s.section("p2p", &P2P) else { return P2p::default() };
    let cx = p2p.cx;
    let stun: Vec<StunAddress> = values(cx, p2p.key("stun"), str::parse);
    if stun.len() > SERVERS {
        p2p.bad("stun", BadValue::new(format!("more than {SERVERS} servers")));
    }
    let mut read = P2p { stun, ports: p2p.value("ports", ports), ..P2p::default() };
    read.webrtc = webrtc(&p2p);
    if p2p.key("candidates").is_some() {
        let kinds: Vec<Kind> = values(cx, p2p.key("candidates"), kind);
        read.host = kinds.contains(&Kind::Host);
        read.mapped = kinds.contains(&Kind::Mapped);
        read.reflexive = kinds.contains(&Kind::Reflexive);
    }
    read
}

/// `p2p.webrtc.idle`, milliseconds.
const IDLE: u64 = 300_000;

/// Decodes the limits of data channels.
fn webrtc(p2p: &Section<'_>) -> P2pWebrtc {
    let default = P2pWebrtc::default();
    let Some(own) = p2p.section("webrtc", &P2P_WEBRTC) else { return default };
    let peers = own.value("peers", |text| units::limit(text, "peers"));
    let idle = units::positive(&own, "idle", IDLE);
    P2pWebrtc {
        peers: peers.map_or(default.peers, NonZeroU32::get),
        idle: idle.unwrap_or(default.idle),
    }
}

/// `p2p` of a server.
pub(super) fn of_server(
    s: &Section<'_>,
    listen: &[Listen],
    has_http: bool,
) -> Option<ServerWebrtc> {
    let p2p = s.section("p2p", &SERVER_P2P)?;
    let own = p2p.section("webrtc", &SERVER_WEBRTC)?;
    let takes_offers = |at: &Listen| {
        let is_mux = at.mux.is_some() && at.endpoint.path.is_some();
        is_mux || (at.endpoint.scheme.http && at.mux.is_none())
    };
    if !has_http && !listen.iter().any(takes_offers) {
        let bad = BadValue::new(
            "offers of WebRTC come to a listener of wss://, ws:// or mux:// with a path, or to \
             http.listen",
        );
        p2p.bad("webrtc", bad.hint("add one: wss://[::]:7443/tunnel"));
    }
    let path = own.value("path", path).unwrap_or_else(|| DEFAULT_PATH.to_owned());
    Some(ServerWebrtc { path })
}

/// `p2p.webrtc.path`.
const DEFAULT_PATH: &str = "/webrtc";

/// The path of offers: segments of letters, digits and characters without a special meaning in a
/// URL.
fn path(text: &str) -> Result<String, BadValue> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~/".contains(c);
    let is_path = text.len() > 1 && text.starts_with('/') && !text.ends_with('/');
    if is_path && !text.contains("//") && text.chars().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(BadValue::new(format!("`{text}` is no path of offers")).hint(DEFAULT_PATH))
}

fn values<T>(
    cx: &Cx<'_>,
    item: Option<Item>,
    read: impl Fn(&str) -> Result<T, BadValue>,
) -> Vec<T> {
    let items = item.map(|item| cx.one_or_list(&item)).unwrap_or_default();
    items.iter().filter_map(|item| cx.value(item, &read)).collect()
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
fn ports(text: &str) -> Result<(u16, u16), BadValue> {
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

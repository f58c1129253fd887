//! client.yaml.

use std::net::SocketAddr;

use super::keys::{CLIENT, CLIENT_TLS, FORWARD, PATH, PATH_TLS, RETRY};
use super::taken::{Bind, Clash, Taken};
use super::{Cx, Item, Section, common, service};
use crate::endpoint::tcp;
use crate::model::{ClientConfig, Forward, KeyPair, Path, Trust};
use crate::yaml::Kind;
use crate::{BadValue, Endpoint, Host, Span, Target, Transport};

/// Shortest pause between attempts in milliseconds: a restart of the server goes unnoticed.
const RETRY_MIN: u64 = 200;

/// Longest pause in milliseconds: back within two seconds of the network.
const RETRY_MAX: u64 = 1500;

/// `None` only after a problem was reported.
pub(crate) fn client(cx: &Cx<'_>, root: Item) -> Option<ClientConfig> {
    let s = Section::open(cx, root, &CLIENT)?;
    let (trust, identity) = match s.section("tls", &CLIENT_TLS) {
        Some(tls) => verification(&tls),
        None => (Trust::System, None),
    };
    let servers: Vec<Item> = s.key("servers").map(|item| cx.one_or_list(&item)).unwrap_or_default();
    if servers.is_empty() {
        s.missing("servers", "for example [\"tls://example.com:7000\"]");
    }
    let servers =
        servers.into_iter().filter_map(|item| path(cx, item, &trust, identity.as_ref())).collect();
    if s.key("name").is_none() {
        s.missing("name", "the name of this client in the server's file");
    }
    let name = s.value("name", common::name);
    let token = common::tokens(&s, 1).pop();
    let services = service::services(&s);
    let forwards = s.key("forwards").map(|item| cx.list(&item)).unwrap_or_default();
    let mut taken = Taken::default();
    let forwards = forwards.into_iter().filter_map(|i| forward(cx, i, &mut taken)).collect();
    if s.key("services").is_none() && s.key("forwards").is_none() {
        cx.warn(s.at(), "", BadValue::new("neither services nor forwards: nothing to do"));
    }
    let retry = s.section("retry", &RETRY);
    let pause = |key, default| match &retry {
        Some(retry) => common::positive(retry, key, default),
        None => Some(Span::from_millis(default)),
    };
    let retry_range = pause("min", RETRY_MIN).zip(pause("max", RETRY_MAX));
    if let (Some(retry), Some((min, max))) = (&retry, retry_range)
        && min > max
    {
        retry.bad("min", BadValue::new(format!("{min} is more than retry.max ({max})")));
    }
    let (connections, common) = (common::count(&s, "connections"), common::common(&s));
    let (name, token, (retry_min, retry_max)) = (name?, token?, retry_range?);
    Some(ClientConfig {
        servers,
        name,
        token,
        connections,
        services,
        forwards,
        retry_min,
        retry_max,
        common,
    })
}

fn verification(s: &Section<'_>) -> (Trust, Option<KeyPair>) {
    let pins = s.key("pin").map(|item| s.cx.one_or_list(&item)).unwrap_or_default();
    let pins: Vec<String> = pins.iter().filter_map(|item| s.cx.value(item, pin)).collect();
    let ca = common::path(s, "ca");
    if s.key("pin").is_some() && ca.is_some() {
        s.bad(
            "ca",
            BadValue::new("pin and ca together").hint("a pin needs no authority: keep one of them"),
        );
    }
    let trust = match ca {
        _ if !pins.is_empty() => Trust::Pins(pins),
        Some(ca) => Trust::Ca(ca),
        None => Trust::System,
    };
    (trust, common::key_pair(s))
}

/// `sha256:` and the Base64 of 32 bytes.
fn pin(text: &str) -> Result<String, BadValue> {
    let body = text.strip_prefix("sha256:").and_then(|t| t.strip_suffix('='));
    let base64 = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    match body {
        Some(body) if body.len() == 43 && body.bytes().all(base64) => Ok(text.to_owned()),
        _ => Err(BadValue::new("a pin is `sha256:` and 44 characters of Base64")
            .hint("copy it from what the server prints at start")),
    }
}

/// A name that a certificate may be for.
fn host_name(text: &str) -> Result<String, BadValue> {
    match text.parse()? {
        Host::Name(name) => Ok(name),
        Host::Ip(_) => Err(BadValue::new(format!("`{text}` is an address, not a host name"))),
    }
}

fn path(cx: &Cx<'_>, item: Item, trust: &Trust, identity: Option<&KeyPair>) -> Option<Path> {
    let plain = matches!(item.node.kind, Kind::Scalar { .. });
    let (url, section) = if plain {
        (item, None)
    } else {
        let s = Section::open(cx, item, &PATH)?;
        if s.key("url").is_none() {
            s.missing("url", "for example tls://example.com:7000");
        }
        (s.key("url")?, Some(s))
    };
    let section = section.as_ref();
    let own = section.and_then(|s| s.section("tls", &PATH_TLS));
    let (trust, identity) = match own {
        Some(own) => verification(&own),
        None => (trust.clone(), identity.cloned()),
    };
    let sni = section.and_then(|s| s.value("sni", host_name));
    let endpoint = cx.value(&url, |text| match text.parse::<Endpoint>()? {
        e if e.port == 0 => Err(BadValue::new("port 0 cannot be dialled")),
        e => Ok(e),
    })?;
    if endpoint.transport == Transport::Tcp && !endpoint.host.is_loopback() {
        let bad = BadValue::new("no TLS on the way to the server");
        cx.warn(url.at(), &url.path, bad.hint("use tls://"));
    }
    Some(Path { endpoint, trust, identity, sni })
}

fn forward(cx: &Cx<'_>, item: Item, taken: &mut Taken) -> Option<Forward> {
    let s = Section::open(cx, item, &FORWARD)?;
    if s.key("listen").is_none() {
        s.missing("listen", "for example tcp://127.0.0.1:5203");
    }
    let listen = s.value("listen", |text| match tcp(text)? {
        (_, a, b) if a != b => {
            Err(BadValue::new("a range is not in this build yet").hint("one forward per port"))
        }
        (Some(Host::Ip(ip)), port, _) => Ok(SocketAddr::new(ip, port)),
        _ => Err(BadValue::new(format!("`{text}` has no address"))
            .hint("for example tcp://127.0.0.1:5203")),
    });
    if let Some(listen) = listen
        && let Some(clash) = taken.take(Bind::Ip(listen.ip()), listen.port())
    {
        let bad = match clash {
            Clash::Same => BadValue::new(format!("a second forward listens on {listen}")),
            Clash::Covers(other) => {
                BadValue::new(format!("tcp://{listen} and {} overlap", other.tcp(listen.port())))
            }
        };
        s.bad("listen", bad.hint("one forward per port"));
    }
    match (service::target(&s)?, listen) {
        ((host, port, last), listen) if port == last => {
            Some(Forward { listen: listen?, target: Target { host, port } })
        }
        _ => {
            s.bad(
                "target",
                BadValue::new("a range is not in this build yet").hint("one forward per port"),
            );
            None
        }
    }
}

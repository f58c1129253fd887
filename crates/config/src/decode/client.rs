//! client.yaml.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::keys::{CLIENT, CLIENT_TLS, FORWARD, PATH, PATH_TLS, RETRY, SERVICE, TIMEOUTS};
use super::{Cx, Item, Section, common, unknown};
use crate::endpoint::tcp;
use crate::model::{
    ClientConfig, Forward, KeyPair, Path, Priority, Public, Service, Timeouts, Trust,
};
use crate::yaml::Kind;
use crate::{BadValue, Endpoint, Host, Span, Target, Transport};

/// Widest port range of one service: every port is a listener on the server.
const RANGE_MAX: u16 = 1000;

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
    let mut seen = Seen::default();
    let items = |key| s.key(key).map(|item| cx.list(&item)).unwrap_or_default();
    let services: Vec<Service> =
        items("services").into_iter().flat_map(|i| service(cx, i, &mut seen)).collect();
    let forwards =
        items("forwards").into_iter().filter_map(|i| forward(cx, i, &mut seen)).collect();
    if s.key("services").is_none() && s.key("forwards").is_none() {
        cx.warn(s.at(), "", BadValue::new("neither services nor forwards: nothing to do"));
    }
    let retry = s.section("retry", &RETRY);
    let pause = |key, default| match &retry {
        Some(retry) => common::positive(retry, key, default),
        None => Span::from_millis(default),
    };
    let (retry_min, retry_max) = (pause("min", 200), pause("max", 1500));
    if let Some(retry) = &retry
        && retry_min > retry_max
    {
        retry
            .bad("min", BadValue::new(format!("{retry_min} is more than retry.max ({retry_max})")));
    }
    let (connections, common) = (common::count(&s, "connections"), common::common(&s));
    let (name, token) = (name?, token?);
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
    let sni = section.and_then(|s| s.value("sni", common::name));
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

/// What must not be there twice.
#[derive(Default)]
struct Seen {
    names: BTreeSet<String>,
    ports: BTreeSet<(Option<std::net::IpAddr>, u16)>,
    listens: BTreeSet<SocketAddr>,
}

/// One service for each port.
fn service(cx: &Cx<'_>, item: Item, seen: &mut Seen) -> Vec<Service> {
    let Some(s) = Section::open(cx, item, &SERVICE) else { return Vec::new() };
    let target = target(&s);
    let public = public(&s);
    let timeouts = timeouts(&s);
    let priority = s.value("priority", |text| match text {
        "interactive" => Ok(Priority::Interactive),
        "normal" => Ok(Priority::Normal),
        "bulk" => Ok(Priority::Bulk),
        _ => Err(unknown(&format!("priority `{text}`"), text, &["interactive", "normal", "bulk"])),
    });
    let resume = s.value("resume", |text| match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(BadValue::new(format!("`{text}` is neither true nor false"))),
    });
    let name = s.value("name", common::name);
    let (Some((host, first, last)), Some(&(_, (a, b)))) = (target, public.first()) else {
        return Vec::new();
    };
    if s.key("name").is_some() && name.is_none() {
        return Vec::new();
    }
    let wide = b > a || public.len() > 1 && public.iter().any(|(_, (a, b))| b > a);
    if last > first && (public.len() > 1 || b - a != last - first) {
        s.bad("target", BadValue::new("the target's range is not as wide as the public one"));
        return Vec::new();
    }
    if public.iter().any(|(_, (a, b))| b - a >= RANGE_MAX) {
        s.bad("public", BadValue::new(format!("a range of more than {RANGE_MAX} ports")));
        return Vec::new();
    }
    let make = |name: String, port: u16, public: Vec<Public>| Service {
        name,
        target: Target { host: host.clone(), port },
        public,
        priority: priority.unwrap_or_default(),
        timeouts,
        resume: resume.unwrap_or(true),
    };
    let mut made = Vec::new();
    if wide {
        for (bind, (a, b)) in &public {
            for port in *a..=*b {
                let name = format!("{}-{port}", name.as_deref().unwrap_or("tcp"));
                let target = if last > first { first + (port - a) } else { first };
                made.push(make(name, target, vec![Public { bind: *bind, port }]));
            }
        }
    } else {
        let list =
            public.iter().map(|(bind, (port, _))| Public { bind: *bind, port: *port }).collect();
        made.push(make(name.unwrap_or_else(|| format!("tcp-{a}")), first, list));
    }
    for service in &made {
        if !seen.names.insert(service.name.clone()) {
            s.bad(
                "name",
                BadValue::new(format!("a second service named {}", service.name))
                    .hint("names are unique"),
            );
        }
        for public in service.public.iter().filter(|p| p.port != 0) {
            if !seen.ports.insert((public.bind, public.port)) {
                s.bad("public", BadValue::new(format!("{public} is published twice")));
            }
        }
    }
    made
}

fn target(s: &Section<'_>) -> Option<(Host, u16, u16)> {
    let Some(item) = s.key("target") else {
        s.missing("target", "for example tcp://127.0.0.1:22");
        return None;
    };
    if matches!(item.node.kind, Kind::List(_)) {
        s.bad(
            "target",
            BadValue::new("a list of targets is not in this build yet").hint("name one target"),
        );
        return None;
    }
    s.cx.value(&item, |text| match tcp(text)? {
        (None, ..) => {
            Err(BadValue::new(format!("`{text}` has no host"))
                .hint("for example tcp://127.0.0.1:22"))
        }
        (_, 0, _) => Err(BadValue::new("port 0 cannot be dialled")),
        (Some(host), a, b) => Ok((host, a, b)),
    })
}

type Bind = Option<std::net::IpAddr>;

fn public(s: &Section<'_>) -> Vec<(Bind, (u16, u16))> {
    let items = s.key("public").map(|item| s.cx.one_or_list(&item)).unwrap_or_default();
    if items.is_empty() {
        s.missing("public", "where visitors come: tcp://:10022, or tcp://:0 for any port");
    }
    let read = |text: &str| match tcp(text)? {
        (None, a, b) => Ok((None, (a, b))),
        (Some(Host::Ip(ip)), a, b) => Ok((Some(ip), (a, b))),
        (Some(Host::Name(name)), ..) => {
            Err(BadValue::new(format!("`{name}` is not an address of the server"))
                .hint("tcp://:10022 binds the server's public_bind"))
        }
    };
    let read: Vec<_> = items.iter().map(|item| s.cx.value(item, read)).collect();
    // All or nothing, so that a bad entry does not look like a different service.
    read.into_iter().collect::<Option<_>>().unwrap_or_default()
}

fn timeouts(s: &Section<'_>) -> Timeouts {
    let own = s.section("timeouts", &TIMEOUTS);
    let of = |key, default| match &own {
        Some(own) if key == "dial" => common::positive(own, key, default),
        Some(own) => common::span(own, key, default),
        None => Span::from_millis(default),
    };
    Timeouts { dial: of("dial", 10_000), idle: of("idle", 0), half_close: of("half_close", 60_000) }
}

fn forward(cx: &Cx<'_>, item: Item, seen: &mut Seen) -> Option<Forward> {
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
    let target = target(&s);
    let listen = listen?;
    if listen.port() != 0 && !seen.listens.insert(listen) {
        s.bad("listen", BadValue::new(format!("a second forward listens on {listen}")));
    }
    match target? {
        (host, a, b) if a == b => Some(Forward { listen, target: Target { host, port: a } }),
        _ => {
            s.bad(
                "target",
                BadValue::new("a range is not in this build yet").hint("one forward per port"),
            );
            None
        }
    }
}

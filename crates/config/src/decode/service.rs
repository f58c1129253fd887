//! `services`: the published services of a client, with ranges expanded. Each check uses only the
//! values that it needs, so a bad target does not hide a port that is published twice.

use std::collections::BTreeSet;

use proto::UnixAddr;
use proto::control::SERVICES_MAX;
use proto::greeting::NAME_MAX;

use super::keys::{HEALTH, SERVICE, TIMEOUTS};
use super::public::{Published, entries, ports, publish};
use super::{Cx, Item, Section, http, unknown, values, visit};
use crate::endpoint::{HERE, split, tcp, unix};
use crate::lists::PUBLISHED_MAX;
use crate::model::{Check, Priority, Public, Service, Timeouts};
use crate::names::service_name;
use crate::yaml::Kind;
use crate::{BadValue, Host, Span, Target};

/// Default of `timeouts.dial`, in milliseconds: TCP has sent four SYNs by then (RFC 6298).
const DIAL: u64 = 10_000;

/// Default of `health.interval`, in milliseconds.
const CHECK_INTERVAL: u64 = 10_000;

/// Shortest `health.interval`, in milliseconds. More frequent checks load the target.
const CHECK_LEAST: u64 = 1_000;

/// Default of `health.timeout`, in milliseconds: a target that needs longer serves nobody well.
const CHECK_TIMEOUT: u64 = 2_000;

/// Default of `timeouts.half_close`, in milliseconds. A long answer to a finished request is
/// permitted while it flows. After this silence, the peer has vanished.
const HALF_CLOSE: u64 = 60_000;

/// The public address of a short form without one: the server chooses the port.
const ANY: &str = "tcp://:0";

/// Decodes entries of `services`. The result is empty if there are none, and incomplete only after a
/// problem was reported. `prefix` comes before each name.
pub(super) fn services(s: &Section<'_>, items: Vec<Item>, prefix: Option<&str>) -> Vec<Service> {
    let mut seen = Seen { prefix: prefix.map(str::to_owned), ..Seen::default() };
    let mut made = Vec::new();
    for item in items {
        let item = long(item);
        made.extend(service(Section::open(s.cx, item, &SERVICE), &mut seen).unwrap_or_default());
        let (what, most) = if seen.names.len() > SERVICES_MAX {
            ("services", SERVICES_MAX)
        } else if seen.published.count > PUBLISHED_MAX {
            ("public addresses", PUBLISHED_MAX)
        } else {
            continue;
        };
        let bad = BadValue::new(format!("more than {most} {what}"));
        s.bad("services", bad.hint("each port of a range is one"));
        break;
    }
    made
}

/// Values that must be unique among all services, and settings that all services share.
#[derive(Default)]
struct Seen {
    /// The prefix of each name.
    prefix: Option<String>,
    names: BTreeSet<String>,
    published: Published,
}

/// The long form of an entry: `10080=3000` has the keys `public` and `target`, and `3000` is a target
/// at any public port.
fn long(item: Item) -> Item {
    item.long("public", Some(ANY))
}

/// The services of one entry alone. Empty after a problem.
pub(crate) fn services_of(cx: &Cx<'_>, item: Item, prefix: Option<&str>) -> Vec<Service> {
    let mut seen = Seen { prefix: prefix.map(str::to_owned), ..Seen::default() };
    service(Section::open(cx, long(item), &SERVICE), &mut seen).unwrap_or_default()
}

/// Decodes an entry: one service, or one service for each port of a range.
fn service(s: Option<Section<'_>>, seen: &mut Seen) -> Option<Vec<Service>> {
    let s = s?;
    let target = target(&s);
    let entries = entries(&s);
    let timeouts = timeouts(&s);
    let visitors = visit::visitors(&s);
    let proxy_protocol = visit::proxy_protocol(&s);
    let priority = s.value("priority", priority).unwrap_or_default();
    let health = health(&s);
    let name = s.value("name", values::name);
    let nameless = s.key("name").is_none();
    let options = http::options(&s);
    let published = publish(&s, &entries, options.path.as_deref(), &mut seen.published);
    if let Some(published) = &published {
        http::fit(&s, &options, published);
    }
    let ports = ports(published.as_deref().unwrap_or_default());
    let wide = entries.iter().flatten().any(|entry| entry.width() > 0);
    // After a bad name, or a range with a bad entry, the resulting names are unknown.
    let mut names = Vec::new();
    if (nameless || name.is_some()) && (published.is_some() || !wide) {
        let stem = name.as_deref().unwrap_or("tcp");
        names = match ports.first_key_value() {
            None if nameless => {
                published.iter().flatten().find_map(|at| by_name(at, seen)).into_iter().collect()
            }
            // The port is not known yet.
            Some((0, _)) if nameless => target.iter().map(Targets::name).collect(),
            Some((port, _)) if !wide && nameless => vec![format!("{stem}-{port}")],
            Some(_) if wide => ports.keys().map(|port| format!("{stem}-{port}")).collect(),
            _ => name.iter().cloned().collect(),
        };
        if let Some(prefix) = &seen.prefix {
            names.iter_mut().for_each(|name| *name = format!("{prefix}-{name}"));
        }
        check_names(&s, &names, seen);
    }
    let target = target?;
    let published = published?;
    if let Targets::Tcp(_, first, last) = target
        && last > first
    {
        match entries.as_slice() {
            [Some(entry)] if entry.width() == last - first => {}
            _ => {
                let bad = BadValue::new("the target's range is not as wide as the public one");
                s.bad("target", bad);
                return None;
            }
        }
    }
    let make = |name, nth, public| Service {
        name,
        target: target.nth(nth),
        public,
        priority,
        timeouts,
        health,
        kept: false,
        visitors: visitors.clone(),
        proxy_protocol,
        http: options.clone(),
    };
    if !wide {
        return Some(vec![make(names.pop()?, 0, published)]);
    }
    let lowest = ports.first_key_value().map_or(0, |(port, _)| *port);
    let made = ports.iter().zip(names);
    Some(made.map(|((port, public), name)| make(name, port - lowest, public.clone())).collect())
}

/// The name of a service without a name, by its host name.
fn by_name(public: &Public, seen: &Seen) -> Option<String> {
    let most = NAME_MAX - seen.prefix.as_ref().map_or(0, |prefix| prefix.len() + 1).min(NAME_MAX);
    match public {
        Public::Name { kind, host } => Some(service_name(*kind, host, most)),
        Public::Tcp { .. } => None,
    }
}

fn priority(text: &str) -> Result<Priority, BadValue> {
    match text {
        "interactive" => Ok(Priority::Interactive),
        "normal" => Ok(Priority::Normal),
        "bulk" => Ok(Priority::Bulk),
        _ => Err(unknown(&format!("priority `{text}`"), text, &["interactive", "normal", "bulk"])),
    }
}

fn check_names(s: &Section<'_>, names: &[String], seen: &mut Seen) {
    for name in names {
        if let Err(bad) = values::name(name) {
            s.bad("name", bad);
        } else if !seen.names.insert(name.clone()) {
            let bad = BadValue::new(format!("a second service named {name}"));
            s.bad("name", bad.hint("names are unique"));
        }
    }
}

/// The value of `target`.
pub(super) enum Targets {
    /// Host, first and last port.
    Tcp(Host, u16, u16),
    Unix(UnixAddr),
}

impl Targets {
    /// The name of a service of this target without a name and a public port of its own.
    fn name(&self) -> String {
        match self {
            Self::Tcp(_, port, _) => format!("tcp-{port}"),
            Self::Unix(address) => {
                let file = address.place().rsplit('/').next().unwrap_or_default();
                let file = file.strip_suffix(".sock").unwrap_or(file);
                let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
                format!("unix-{}", file.chars().take(32).map(plain).collect::<String>())
            }
        }
    }

    /// The target of the nth port of a range. A single target serves all ports.
    fn nth(&self, n: u16) -> Target {
        match self {
            Self::Tcp(host, first, last) => {
                let port = if last > first { first.saturating_add(n) } else { *first };
                Target::Tcp { host: host.clone(), port }
            }
            Self::Unix(address) => Target::Unix(address.clone()),
        }
    }

    /// The target, unless it is a range.
    pub(super) fn one(&self) -> Option<Target> {
        match self {
            Self::Tcp(_, first, last) if last > first => None,
            Self::Tcp(..) | Self::Unix(_) => Some(self.nth(0)),
        }
    }
}

/// Decodes `target`. `None` after a problem.
pub(super) fn target(s: &Section<'_>) -> Option<Targets> {
    let Some(item) = s.key("target") else {
        s.missing("target", "for example tcp://127.0.0.1:22");
        return None;
    };
    if matches!(item.node.kind, Kind::List(_)) {
        s.bad(
            "target",
            BadValue::new("a service of this version has one target").hint("name one target"),
        );
        return None;
    }
    s.cx.value(&item, parse_target)
}

/// Parses a target, which may be a range of ports.
pub(super) fn parse_target(text: &str) -> Result<Targets, BadValue> {
    match unix(text) {
        Some(address) => address.map(Targets::Unix),
        None => tcp_target(text),
    }
}

fn tcp_target(text: &str) -> Result<Targets, BadValue> {
    let of_http;
    let text = match text.split_once("://") {
        Some(("http", rest)) => {
            of_http = http_target(text, rest)?;
            of_http.as_str()
        }
        Some((scheme @ ("https" | "tls"), rest)) => {
            let at = if rest.contains(':') { rest.to_owned() } else { format!("{rest}:443") };
            return Err(BadValue::new(format!("a target of {scheme}:// is not supported"))
                .hint(format!("tcp://{at} with `public: tls://NAME` carries TLS unchanged")));
        }
        Some(_) | None => text,
    };
    match tcp(text, Some(HERE))? {
        (None, ..) => {
            Err(BadValue::new(format!("`{text}` has no host"))
                .hint("for example tcp://127.0.0.1:22"))
        }
        (_, 0, _) => Err(BadValue::new("port 0 cannot be dialled")),
        (Some(host), a, b) => Ok(Targets::Tcp(host, a, b)),
    }
}

/// The TCP address of `http://host[:port]`.
fn http_target(text: &str, rest: &str) -> Result<String, BadValue> {
    if rest.contains(['/', '?', '#']) {
        return Err(BadValue::new(format!("`{text}`: a target has no path"))
            .hint("for example http://127.0.0.1:3000"));
    }
    match split(rest)? {
        (_, Some(_)) => Ok(format!("tcp://{rest}")),
        (host, None) => Ok(format!("tcp://{host}:80")),
    }
}

/// Decodes `health`. `None` without it.
fn health(s: &Section<'_>) -> Option<Check> {
    let own = s.section("health", &HEALTH)?;
    let interval = values::positive(&own, "interval", CHECK_INTERVAL)?;
    let timeout = values::positive(&own, "timeout", CHECK_TIMEOUT)?;
    let least = Span::from_millis(CHECK_LEAST);
    if interval < least {
        let bad = BadValue::new(format!("{interval} is too often"));
        own.bad("interval", bad.hint(format!("{least} or more")));
        return None;
    }
    if timeout > interval {
        let bad = BadValue::new(format!("{timeout} is longer than the interval ({interval})"));
        own.bad("timeout", bad);
        return None;
    }
    Some(Check { interval, timeout })
}

fn timeouts(s: &Section<'_>) -> Timeouts {
    let own = s.section("timeouts", &TIMEOUTS);
    let of = |key, default| match &own {
        Some(own) => values::span(own, key, default),
        None => Span::from_millis(default),
    };
    let dial = own.as_ref().and_then(|own| values::positive(own, "dial", DIAL));
    Timeouts {
        dial: dial.unwrap_or(Span::from_millis(DIAL)),
        idle: of("idle", 0),
        half_close: of("half_close", HALF_CLOSE),
    }
}

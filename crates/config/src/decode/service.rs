//! `services`: the published services of a client, with ranges expanded. Each check uses only the
//! values that it needs, so a bad target does not hide a port that is published twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proto::control::{SERVICES_MAX, ServiceTerms};
use proto::greeting::NAME_MAX;
use proto::{Limits, TargetProtocol};

use super::public::{Published, entries, ports, publish};
use super::target::{Targets, parse_target, target};
use super::{
    Cx, Item, Section, broadcast, exit, files, fit, http, private, redirects, spread, target_tls,
    terms, unknown, values, visit,
};
use crate::keys::{
    HEALTH, HEALTH_UDP, SERVICE, SERVICE_LIMITS, SERVICE_SOURCE_LIMITS, SERVICE_STREAM_LIMITS,
};
use crate::lists::PUBLISHED_MAX;
use crate::model::{Check, DatagramCheck, FlowLimits, Public, Service};
use crate::names::service_name;
use crate::yaml::{At, Kind};
use crate::{BadValue, Over, Span};

/// Default of `health.interval`, in milliseconds.
const CHECK_INTERVAL: u64 = 10_000;

/// Shortest `health.interval`, in milliseconds. More frequent health checks would load the target.
const CHECK_LEAST: u64 = 1_000;

/// Default of `health.timeout`, in milliseconds, limited by the interval: a slower target is of no
/// use to visitors.
const CHECK_TIMEOUT: u64 = 2_000;

/// The longest datagram of a health check, in bytes: it fits into one packet on every path.
const PAYLOAD_MAX: usize = 1_200;

/// The longest `health.path`.
const PATH_MAX: usize = 1024;

/// The public address of a short form that gives none: the server chooses the port.
const ANY: &str = "tcp://:0";

/// As [`ANY`], for a UDP target.
const ANY_UDP: &str = "udp://:0";

/// Decodes entries of `services`. The result is empty if there are none, and incomplete only after
/// a problem was reported. `prefix` is prepended to each name.
pub(super) fn services(s: &Section<'_>, items: Vec<Item>, prefix: Option<&str>) -> Vec<Service> {
    let mut seen = Seen { prefix: prefix.map(str::to_owned), ..Seen::default() };
    let (mut made, mut entries) = (Vec::new(), Vec::new());
    for item in items {
        // A problem was reported.
        let Some(item) = filled_in(s.cx, item) else { continue };
        let before = made.len();
        let entry = Section::open(s.cx, item.clone(), &SERVICE);
        made.extend(service(entry, &mut seen).unwrap_or_default());
        entries.push((item, before..made.len()));
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
    let of = |(item, made_of): &(Item, std::ops::Range<usize>)| {
        (item.clone(), made.get(made_of.clone()).unwrap_or_default())
    };
    redirects::check(s.cx, entries.iter().map(of));
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

/// The long form of an entry: `10080=3000` has the keys `public` and `target`, and `3000` is a
/// target at any public port.
pub(crate) fn long(item: Item) -> Item {
    let any = match &item.node.kind {
        Kind::Scalar { text, .. } if is_udp(text) => ANY_UDP,
        Kind::Scalar { .. } | Kind::List(_) | Kind::Map(_) => ANY,
    };
    item.long("public", Some(any))
}

/// The long form of an entry, whose variables are expanded first. `None` after a problem.
pub(super) fn filled_in(cx: &Cx<'_>, item: Item) -> Option<Item> {
    item.filled_in(cx).map(long)
}

fn is_udp(target: &str) -> bool {
    matches!(parse_target(target), Ok(Targets::Ports(Some(Over::Udp), ..)))
}

/// The services of a single entry. Empty after a problem.
pub(crate) fn services_of(cx: &Cx<'_>, item: Item, prefix: Option<&str>) -> Vec<Service> {
    let mut seen = Seen { prefix: prefix.map(str::to_owned), ..Seen::default() };
    let entry = filled_in(cx, item).and_then(|item| Section::open(cx, item, &SERVICE));
    service(entry, &mut seen).unwrap_or_default()
}

/// Decodes an entry: one service, or one service for each port of a range.
fn service(s: Option<Section<'_>>, seen: &mut Seen) -> Option<Vec<Service>> {
    let s = s?;
    let redirect = http::redirect(&s);
    let targets = target(&s, redirect.to.as_ref());
    let shared = s.value("shared", values::switch).unwrap_or(false);
    let balance = spread::balance(&s, targets.as_ref(), shared);
    let target = targets.as_ref().map(|targets| &targets.first);
    let is_private = private::is_private(&s);
    let entries = if is_private { Vec::new() } else { entries(&s) };
    let private = private::private(&s, is_private);
    let terms = terms::terms(&s);
    let (limits, stream_limits) = limits(&s);
    let visitors = visit::visitors(&s);
    let proxy_protocol = visit::proxy_protocol(&s);
    let health = health(&s);
    let until = s.parse("until");
    let target_tls = target_tls::target_tls(&s, target);
    let files = files::files(&s);
    let requests = s.value(http::REQUESTS, values::switch).unwrap_or_default();
    let name = s.value("name", values::name);
    let nameless = s.key("name").is_none();
    let is_exit = target.is_some_and(Targets::is_exit);
    let protocol = target.map(Targets::protocol).unwrap_or_default();
    let read = http::options(&s, is_exit, redirect, protocol);
    let http::Read { options: mut http, file: user_file, unforwarded } = read;
    http.sticky = http::settle(&s, http.sticky, targets.as_ref(), shared);
    let mut terms = ServiceTerms { http, shared: shared.then(|| balance.sharing()), ..terms };
    let of_exit = if is_exit { exit::exit(&s) } else { exit::none(&s) };
    let published = if is_private {
        if !private::fit(&s, target) {
            return None;
        }
        Some(Vec::new())
    } else {
        publish(&s, &entries, terms.http.path.as_deref(), &mut seen.published)
    };
    if shared {
        refuse_chosen(&s, published.as_deref().unwrap_or_default());
    }
    let mut over = Over::Tcp;
    if let Some(target) = target.filter(|_| is_private) {
        files::fit(&s, target);
    } else if let Some(published) = &published {
        http::fit(&s, &terms.http, is_exit, published);
        over = fit::visitors(published);
        if let Some(targets) = &targets {
            fit::fit(&s, targets, published);
            files::fit(&s, &targets.first);
        }
    }
    let broadcast = broadcast::of_service(&s, targets.as_ref(), published.as_deref());
    let ports = ports(published.as_deref().unwrap_or_default());
    let wide = entries.iter().flatten().any(|entry| entry.width() > 0);
    // After a bad name, or a range with a bad entry, the resulting names are unknown.
    let mut names = Vec::new();
    if (nameless || name.is_some()) && (published.is_some() || !wide) {
        let public = published.as_deref().unwrap_or_default();
        names = Naming { name, target, over, public, ports: &ports, wide }.names(seen);
        check_names(&s, &names, seen);
    }
    let (targets, target, published) = (targets.as_ref()?, target?, published?);
    if is_private && private.is_none() {
        return None;
    }
    if is_private || !published.iter().all(Public::is_http) {
        // At a port, the visitors' bytes are passed to the target unchanged.
        terms.http.target = TargetProtocol::Http;
    }
    if !fit::has_right_width(&s, target, &entries) {
        return None;
    }
    let make = |name, nth, public: Vec<Public>| Service {
        name,
        target: target.nth(nth, target.over(&public)),
        spread: targets.spread(balance, target.over(&public)),
        target_tls: target_tls.clone(),
        public,
        private: private.clone(),
        terms: terms.clone(),
        limits,
        stream_limits,
        health: health.clone(),
        kept: false,
        until,
        visitors: visitors.clone(),
        proxy_protocol,
        exit: of_exit.clone(),
        user_file: user_file.clone(),
        unforwarded,
        files: files.clone(),
        broadcast,
        requests,
    };
    if !wide {
        return Some(vec![make(names.pop()?, 0, published)]);
    }
    let lowest = ports.first_key_value().map_or(0, |(port, _)| *port);
    let made = ports.iter().zip(names);
    Some(made.map(|((port, public), name)| make(name, port - lowest, public.clone())).collect())
}

/// Reports a port that the server chooses: every client would get another one.
fn refuse_chosen(s: &Section<'_>, published: &[Public]) {
    let is_chosen =
        |at: &Public| matches!(at, Public::Tcp { port: 0, .. } | Public::Udp { port: 0, .. });
    if published.iter().any(is_chosen) {
        let bad = BadValue::new("clients cannot share a port that the server chooses");
        s.bad("shared", bad.hint("name the port in `public`, the same for all clients"));
    }
}

/// What the names of the services of an entry are made of.
struct Naming<'a> {
    /// The name of the entry; `None`: it has none.
    name: Option<String>,
    target: Option<&'a Targets>,
    /// The protocol of the visitors.
    over: Over,
    public: &'a [Public],
    /// The public addresses by port.
    ports: &'a BTreeMap<u16, Vec<Public>>,
    /// A public address is a range.
    wide: bool,
}

impl Naming<'_> {
    /// The names of the services, in the order of their ports.
    fn names(&self, seen: &Seen) -> Vec<String> {
        let Self { name, target, over, public, ports, wide } = self;
        let nameless = name.is_none();
        let stem = |public: &[Public]| match name {
            Some(name) => name.clone(),
            None => public.first().map_or(Over::Tcp, Public::over).to_string(),
        };
        let mut names: Vec<_> = match ports.first_key_value() {
            None if nameless => {
                public.iter().find_map(|at| by_name(at, seen)).into_iter().collect()
            }
            // The port is not known yet.
            Some((0, _)) if nameless => target.iter().map(|target| target.name(*over)).collect(),
            Some((port, at)) if !wide && nameless => vec![format!("{}-{port}", stem(at))],
            Some(_) if *wide => {
                ports.iter().map(|(port, at)| format!("{}-{port}", stem(at))).collect()
            }
            _ => name.iter().cloned().collect(),
        };
        if let Some(prefix) = &seen.prefix {
            names.iter_mut().for_each(|name| *name = format!("{prefix}-{name}"));
        }
        names
    }
}

/// Decodes `limits`: the limits of flows, sources and streams.
fn limits(s: &Section<'_>) -> (FlowLimits, Limits) {
    let Some(own) = s.section("limits", &SERVICE_LIMITS) else { return Default::default() };
    let each = [&SERVICE_SOURCE_LIMITS, &SERVICE_STREAM_LIMITS];
    let streams = values::limits(&own, "streams", each);
    (values::flow_limits(&own, &SERVICE_SOURCE_LIMITS), streams)
}

/// The name of a service that has a host name but no name of its own.
fn by_name(public: &Public, seen: &Seen) -> Option<String> {
    let most = NAME_MAX - seen.prefix.as_ref().map_or(0, |prefix| prefix.len() + 1).min(NAME_MAX);
    match public {
        Public::Name { kind, host } => Some(service_name(*kind, host, most)),
        Public::Tcp { .. } | Public::Udp { .. } => None,
    }
}

fn check_names(s: &Section<'_>, names: &[String], seen: &mut Seen) {
    for name in names {
        if let Err(bad) = values::name(name) {
            s.bad("name", bad);
        } else if !seen.names.insert(name.clone()) {
            let bad = BadValue::new(format!("a second service named {name}"));
            let hint = match s.key("name").map(|item| item.at()) {
                Some(At::Flag(_)) => "publish one service with each command, or leave the name out",
                Some(At::Text { .. }) | None => "names are unique: give one of them another `name`",
            };
            s.bad("name", bad.hint(hint));
        }
    }
}

/// Decodes `health`. `None` without a host name.
pub(super) fn health(s: &Section<'_>) -> Option<Check> {
    let own = s.section("health", &HEALTH)?;
    let interval = values::positive(&own, "interval", CHECK_INTERVAL)?;
    let usual = Span::from_millis(CHECK_TIMEOUT).min(interval);
    let timeout = values::positive_or(&own, "timeout", usual)?;
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
    let (path, udp) = (own.value("path", request_path), datagrams(&own));
    Some(Check { interval, timeout, path, udp })
}

/// Decodes `health.udp`: the name of a protocol, or a datagram and the expected reply.
fn datagrams(health: &Section<'_>) -> Option<DatagramCheck> {
    let item = health.key("udp")?;
    if matches!(item.node.kind, Kind::Scalar { .. }) {
        return health.value("udp", |text| match text {
            "dns" => Ok(DatagramCheck::Dns),
            _ => Err(unknown("protocol", text, &["dns"]).hint(
                "`dns`, or { send: TEXT, expect: TEXT }: what is sent, and how the answer begins",
            )),
        });
    }
    let own = health.section("udp", &HEALTH_UDP)?;
    if own.key("send").is_none() {
        own.missing("send", "the datagram that the target answers, as text or as hex:…");
    }
    let expect = own.value("expect", payload);
    let expect = if own.key("expect").is_some() { expect? } else { Arc::from([]) };
    Some(DatagramCheck::Own { send: own.value("send", payload)?, expect })
}

/// The bytes of a datagram: a text, or hexadecimal digits after `hex:`.
fn payload(text: &str) -> Result<Arc<[u8]>, BadValue> {
    let bad = |why: String| BadValue::new(why).hint("for example ping, or hex:0001ff");
    let bytes = match text.strip_prefix("hex:") {
        None => text.as_bytes().to_vec(),
        Some(digits) => {
            let nibble = |digit: u8| char::from(digit).to_digit(16);
            let byte = |pair: &[u8]| match pair {
                [high, low] => u8::try_from(nibble(*high)? * 16 + nibble(*low)?).ok(),
                _ => None,
            };
            let bytes: Option<Vec<_>> = digits.as_bytes().chunks(2).map(byte).collect();
            bytes.ok_or_else(|| bad(format!("`{text}` has no pairs of hexadecimal digits")))?
        }
    };
    if bytes.len() > PAYLOAD_MAX {
        return Err(bad(format!("{} bytes are too many: {PAYLOAD_MAX} at most", bytes.len())));
    }
    Ok(bytes.into())
}

/// The path of a request, possibly with a query.
fn request_path(text: &str) -> Result<Arc<str>, BadValue> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    if text.starts_with('/') && text.bytes().all(is_plain) && text.len() <= PATH_MAX {
        return Ok(text.into());
    }
    Err(BadValue::new(format!("`{text}` is no path of a request")).hint("for example /healthz"))
}

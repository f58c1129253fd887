//! `services`: the published services of a client, with ranges expanded. Each check uses only the
//! values that it needs, so a bad target does not hide a port that is published twice.

use std::collections::{BTreeMap, BTreeSet};

use proto::TargetProtocol;
use proto::control::ServiceTerms;
use proto::greeting::NAME_MAX;

use super::public::{Published, entries, ports, publish};
use super::target::{Targets, parse_target, target};
use super::{broadcast, exit, files, fit, http, private, redirects, spread, target_tls};
use crate::key_table::KeyTable as _;
use crate::lists::too_many;
use crate::model::entry::Written;
use crate::model::{ClientConfig, Public, Service, VisitorLists};
use crate::names::service_name;
use crate::section::{Cx, FromSection as _, Item, Section};
use crate::yaml::At;
use crate::{BadValue, Over, values};

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
        let entry = Section::open(s.cx, item.clone(), ClientConfig::map("services"));
        made.extend(service(entry, &mut seen).unwrap_or_default());
        entries.push((item, before..made.len()));
        if let Some(bad) = too_many(seen.names.len(), seen.published.count) {
            s.bad("services", bad);
            break;
        }
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
    let any = if item.node.text().is_some_and(is_udp) { ANY_UDP } else { ANY };
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
    let entry =
        filled_in(cx, item).and_then(|item| Section::open(cx, item, ClientConfig::map("services")));
    service(entry, &mut seen).unwrap_or_default()
}

/// Decodes an entry: one service, or one service for each port of a range.
fn service(s: Option<Section<'_>>, seen: &mut Seen) -> Option<Vec<Service>> {
    let s = s?;
    let written = Written::read(&s)?;
    let redirect = http::redirect(&s);
    let targets = target(&s, redirect.to.as_ref());
    let shared = written.shared;
    spread::fit(&s, targets.as_ref(), shared);
    let target = targets.as_ref().map(|targets| &targets.first);
    let is_private = private::is_private(&s);
    let entries = if is_private { Vec::new() } else { entries(&s) };
    let private = private::private(&s, is_private);
    let target_tls = target_tls::target_tls(&s, target);
    let files = files::files(&s);
    let nameless = !s.has("name");
    let is_exit = target.is_some_and(Targets::is_exit);
    let protocol = target.map(Targets::protocol).unwrap_or_default();
    let read = http::options(&s, &written, is_exit, redirect, protocol);
    let http::Read { options: mut http, file: user_file, unforwarded } = read;
    http.sticky = http::settle(&s, http.sticky, targets.as_ref(), shared);
    let mut terms = ServiceTerms { http, ..written.terms() };
    let (limits, stream_limits) = (written.limits.flows(), written.limits.streams());
    let Written { name, balance, health, allow_from, deny_from, .. } = written;
    let Written { proxy_protocol, requests, until, dial, servers, .. } = written;
    let visitors = VisitorLists { allow_from, deny_from };
    let of_exit = if is_exit { exit::exit(&s) } else { exit::none(&s) };
    let published = if is_private {
        if !private::fit(&s, target) {
            return None;
        }
        Some(Vec::new())
    } else {
        let place = (terms.http.path.as_deref(), servers.as_slice());
        publish(&s, &entries, place, &mut seen.published)
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
        servers: servers.clone(),
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
        dial: dial.clone(),
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

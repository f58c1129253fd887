//! Decodes proxy.yaml.

use std::collections::BTreeSet;
use std::iter;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use proto::control::{SERVICES_MAX, ServiceTerms};

use super::local::{self, Listeners};
use super::spread::{self, Listed};
use super::target::{self, Targets, parse_of_proxy};
use super::{broadcast, fit, target_tls, visit};
use crate::address::{Kind, Ports, Role, unix};
use crate::key_table::{KeyMap, KeyPlace, KeyTable as _};
use crate::lists::publishes_admin;
use crate::model::limits::limits;
use crate::model::times::{self, Times};
use crate::model::{
    Admin, Balancer, Common, DialOptions, Exit, Files, KeyPair, ProxyConfig, Public, Service,
    credentials, entry,
};
use crate::section::{Cx, Item, Section};
use crate::{BadValue, Host, Local, LocalAddr, Net, Over, Span, Target, values};

/// Default of `timeouts.dial`, which is longer than that of a service: the visitor has not already
/// waited for a tunnel.
const DIAL: Duration = Duration::from_secs(15);

/// An example of an entry.
const EXAMPLE: &str = "for example [{ listen: \"tcp://:5201\", target: [\"tcp://10.0.1.4:5201\", \"tcp://10.0.1.5:5201\"] }]";

/// The names and addresses that were decoded so far.
#[derive(Default)]
struct Seen {
    names: BTreeSet<String>,
    listeners: Listeners,
}

/// Decodes the file. `None` only after a problem was reported.
pub(crate) fn proxy(cx: &Cx<'_>, root: Item) -> Option<ProxyConfig> {
    let s = Section::open(cx, root, KeyMap { at: Some(KeyPlace::Proxy), ..ProxyConfig::MAP })?;
    let items = s.key("proxies").map(|item| cx.list(&item));
    if items.is_none() {
        s.missing("proxies", EXAMPLE);
    } else if items.as_ref().is_some_and(Vec::is_empty) {
        s.bad("proxies", BadValue::new("a proxy without an entry").hint(EXAMPLE));
    }
    let mut items = items.unwrap_or_default();
    if items.len() > SERVICES_MAX {
        s.bad("proxies", BadValue::new(format!("more than {SERVICES_MAX} proxies")));
        items.truncate(SERVICES_MAX);
    }
    let mut seen = Seen::default();
    let trusted_proxies: Vec<Net> = s.each("trusted_proxies", str::parse);
    let common = Common::of(&s, crate::Role::Proxy)?;
    let balancer = |item: Item| {
        let made = balancer(cx, item.clone(), &trusted_proxies, &mut seen)?;
        let reaches = |admin: &Admin| made.service.targets().any(|(target, _)| admin.is_at(target));
        if common.admin.as_ref().is_some_and(reaches)
            && let Some(entry) = Section::quiet(cx, item)
        {
            entry.bad("target", publishes_admin(&made.service));
        }
        Some(made)
    };
    let proxies = items.into_iter().filter_map(balancer).collect();
    Some(ProxyConfig { proxies, trusted_proxies, common })
}

/// Decodes an entry. `None` after a problem.
fn balancer(cx: &Cx<'_>, item: Item, trusted: &[Net], seen: &mut Seen) -> Option<Balancer> {
    let s = Section::open(cx, item, ProxyConfig::map("proxies"))?;
    let mode = local::mode(&s);
    let listen = s.required("listen", "for example tcp://:5201", |text| listener(text, mode));
    if let Some(bad) = listen.as_ref().and_then(|listen| seen.listeners.take(listen, "proxy")) {
        s.bad("listen", bad.hint("one proxy per address"));
    }
    local::fit_mode(&s, listen.as_ref());
    let targets = target::target_by(&s, None, parse_of_proxy);
    let balance = s.value("balance", entry::rule).unwrap_or_default();
    spread::fit(&s, targets.as_ref(), false);
    let is_tls = |targets: &Targets| matches!(targets, Targets::One(Target::Tls { .. }));
    let fits = targets.as_ref().is_none_or(|targets| is_tls(&targets.first));
    let target_tls = target_tls::of_targets(&s, "tls", fits);
    let dial: DialOptions = s.flat(Balancer::map("")).unwrap_or_default();
    let terms = terms(&s, &dial);
    let limits = limits::<Balancer>(&s);
    let visitors = entry::visitors(&s, usize::MAX);
    let proxy_protocol = s.parse("proxy_protocol");
    let accepts = visit::accept_proxy(&s, listen.as_ref());
    if accepts && trusted.is_empty() {
        visit::nobody_announces(cx, s.at());
    }
    let announced_by = if accepts { trusted.to_vec() } else { Vec::new() };
    let health = s.map("health", Balancer::map("health"));
    let tls = tls(&s);
    let name = s.value("name", values::name);
    let is_nameless = !s.has("name");
    let (listen, targets, terms) = (listen?, targets?, terms?);
    let public = vec![place(&listen)];
    if unfit(&s, &listen, &targets) {
        return None;
    }
    fit::fit(&s, &targets, &public);
    let name = if is_nameless { own_name(&listen) } else { name? };
    if !seen.names.insert(name.clone()) {
        let bad = BadValue::new(format!("a second proxy named {name}"));
        s.bad("name", bad.hint("names are unique: give one of them another `name`"));
    }
    let over = public.first().map_or(Over::Tcp, Public::over);
    let service = Service {
        name,
        target: targets.first.nth(0, over),
        spread: targets.spread(balance, over),
        target_tls,
        public,
        private: None,
        servers: Vec::new(),
        terms,
        limits: limits.flows(),
        stream_limits: limits.streams(),
        health,
        kept: false,
        until: None,
        visitors,
        proxy_protocol,
        exit: Exit::default(),
        user_file: None,
        unforwarded: false,
        files: Files::default(),
        dial,
        broadcast: broadcast::broadcast(&s, &targets, &[over]),
        requests: false,
    };
    Some(Balancer { listen, tls, announced_by, service })
}

fn terms(s: &Section<'_>, dial: &DialOptions) -> Option<ServiceTerms> {
    let times: Times = s.map_or_empty("timeouts", Balancer::map("timeouts"))?;
    let mut timeouts = times.streams();
    timeouts.dial = times.dial.map_or(DIAL, Span::duration);
    if let Some(keepalive) = s.value("tcp_keepalive", times::tcp_keepalive) {
        timeouts.keepalive = keepalive;
    }
    Some(ServiceTerms {
        timeouts,
        dscp: dial.dscp,
        flows: times.flows(),
        ..ServiceTerms::default()
    })
}

/// Decodes `tls`.
fn tls(s: &Section<'_>) -> Option<KeyPair> {
    let own = s.section::<Balancer>("tls")?;
    let pair = credentials::key_pair(&own);
    if !own.has("cert") && !own.has("key") {
        own.missing("cert", "the files of the certificate and of its key: `cert:` and `key:`");
    }
    pair
}

/// Parses the address of a listener. Without a host it listens on all addresses of the machine, as
/// the `public` of a service does.
fn listener(text: &str, mode: u32) -> Result<Local, BadValue> {
    if let Some(address) = unix(text) {
        return address.map(|address| Local::Unix { address, mode });
    }
    let Ports { kind, host, first, last } = Ports::parse(text, Role::Public)?;
    if first != last {
        let bad = BadValue::new("a proxy has one port, not a range");
        return Err(bad.hint("an entry of `proxies` for each port"));
    }
    let host = host.unwrap_or(Host::Ip(IpAddr::V6(Ipv6Addr::UNSPECIFIED)));
    let bad = BadValue::new(format!("`{host}` is a host name; a proxy listens at an address"));
    let Some(at) = LocalAddr::of(host, first) else {
        return Err(bad.hint("for example tcp://127.0.0.1:5201, or tcp://:5201 for all addresses"));
    };
    match kind {
        None | Some(Kind::Tcp) => Ok(Local::Tcp(at)),
        Some(Kind::Udp) => Ok(Local::Udp(at)),
        // Not parsed as the address of a listener.
        Some(Kind::Socks5 | Kind::HttpProxy) => {
            Err(BadValue::new(format!("`{text}` is no listener")))
        }
    }
}

/// The listener in the form of a service's public address. A Unix socket counts as TCP.
fn place(listen: &Local) -> Public {
    match listen.socket() {
        Some((over, at)) => {
            Public::of_port(over, Some(at.ip()).filter(|ip| !ip.is_unspecified()), at.port())
        }
        None => Public::of_port(Over::Tcp, None, 0),
    }
}

/// The name of an entry that has none of its own.
fn own_name(listen: &Local) -> String {
    match listen {
        Local::Unix { address, .. } => Targets::One(Target::Unix(address.clone())).name(Over::Tcp),
        Local::Tcp(at) | Local::Socks5(at) | Local::HttpProxy(at) => format!("tcp-{}", at.port()),
        Local::Udp(at) => format!("udp-{}", at.port()),
    }
}

/// Reports targets that do not fit the listener, and returns whether there are any; also reports
/// settings that have no effect at a listener for datagrams. [`fit::fit`] reports the rest.
fn unfit(s: &Section<'_>, listen: &Local, targets: &Listed) -> bool {
    let is_udp = matches!(listen, Local::Udp(_));
    let all = iter::once(&targets.first).chain(targets.others.iter().map(|(target, _)| target));
    let own = |target: &Targets| match target {
        Targets::Ports(over, ..) => *over,
        Targets::One(_) => Some(Over::Tcp),
    };
    let is_other = |target: &&Targets| own(target).is_some_and(|of| (of == Over::Udp) != is_udp);
    if let Some(target) = all.into_iter().find(is_other).and_then(|target| target.one(Over::Tcp)) {
        let (takes, hint) = if is_udp {
            ("datagrams", "write udp://host:port, or listen on tcp://")
        } else {
            ("connections", "write tcp://host:port, or listen on udp://")
        };
        let bad = BadValue::new(format!("{listen} takes {takes}, which {target} does not"));
        s.bad("target", bad.hint(hint));
        return true;
    }
    if is_udp {
        let why = format!(" at {listen}");
        s.no_effect("tls", &why, "remove the key, or listen on tcp://");
        if let Some(limits) = s.checked("limits") {
            limits.no_effect("connections", &why, "datagrams have `flows`");
        }
    }
    false
}

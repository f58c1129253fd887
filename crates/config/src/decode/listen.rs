//! Decodes `listen` of a server: the addresses, their conflicts, the listeners that cannot request
//! a client certificate, and the settings of `mux://`.

use std::ops::RangeInclusive;

use super::target::parse_target;
use crate::key_table::KeyTable as _;
use crate::model::times::Times;
use crate::model::{Listen, Mux, ServerTls};
use crate::section::{Item, Section};
use crate::taken::{Addresses, Bind, Clash};
use crate::yaml::{At, Kind};
use crate::{BadValue, Endpoint, Host, Over, Scheme, Span, Target, values};

const EXAMPLE: &str = "for example tls://[::]:7000";

/// Default of `silence`, in milliseconds. A client that speaks first has sent its first bytes by
/// then, even if its first packet was lost twice: Linux retransmits a packet after 1 s, and again 2
/// s later (RFC 6298 section 2). A client of a protocol in which the server speaks first also waits
/// for this time.
const SILENCE: u64 = 3_000;

/// Permitted range of `silence`. A shorter time would mistake clients on a long path for silent
/// ones, and a longer time would make visitors of the default target give up.
const SILENCE_RANGE: RangeInclusive<Span> = Span::from_millis(50)..=Span::from_millis(30_000);

/// Decodes the list. `tls` is the decoded section of the server's certificates.
pub(super) fn listen(s: &Section<'_>, tls: &ServerTls) -> Vec<Listen> {
    let Some(item) = s.key("listen") else {
        s.missing("listen", "for example [\"tls://[::]:7000\"]");
        return Vec::new();
    };
    let items = s.cx.one_or_list(&item);
    if items.is_empty() {
        s.bad("listen", BadValue::new("an empty list").hint(EXAMPLE));
    }
    let mut all = Vec::new();
    for item in items {
        let Some((url, listen)) = entry(s, &item) else { continue };
        address(s, &url, &listen.endpoint, &mut s.cx.taken.borrow_mut());
        exposed(s, &url, &listen.endpoint);
        if tls.client_ca.is_some() && listen.client_ca && !listen.endpoint.scheme.tls {
            refuse_plain(s, &item, &url, &listen.endpoint);
        }
        all.push(listen);
    }
    let asks = |listen: &Listen| listen.client_ca && listen.endpoint.scheme.tls;
    if tls.client_ca.is_some()
        && all.iter().any(|listen| listen.endpoint.scheme.tls)
        && !all.iter().any(asks)
        && let Some(tls) = s.key("tls")
    {
        let bad = BadValue::new("no listener asks clients for a certificate")
            .hint("remove `client_ca: false` from a listener with TLS, or this key");
        let path = format!("{}.client_ca", tls.path);
        s.cx.warn(place_of(&tls, "client_ca"), &path, bad);
    }
    all
}

/// Decodes one entry: a URL, or a map with a URL. Returns the position of the URL as well.
fn entry(s: &Section<'_>, item: &Item) -> Option<(Item, Listen)> {
    let plain = matches!(item.node.kind, Kind::Scalar { .. });
    let (url, client_ca, section) = if plain {
        (item.clone(), true, None)
    } else {
        let s = Section::open(s.cx, item.clone(), Listen::MAP)?;
        if !s.has("url") {
            s.missing("url", EXAMPLE);
        }
        let asks = !s.has("client_ca");
        s.value("client_ca", no_client_ca);
        (s.key("url")?, asks, Some(s))
    };
    let endpoint = s.cx.value(&url, |text| {
        let is_url = text.contains("://");
        // The example of a dialled address does not fit a listener.
        text.parse::<Endpoint>().map_err(|bad| if is_url { bad } else { bad.hint(EXAMPLE) })
    })?;
    let mux = (endpoint.scheme == Scheme::MUX).then(|| mux(section.as_ref()));
    if let (None, Some(section)) = (&mux, &section) {
        let of_mux = ["default", "silence", "timeouts", "accept_proxy"];
        for key in of_mux.into_iter().filter(|key| section.has(key)) {
            let bad = BadValue::new(format!("{}:// takes carriers alone", endpoint.scheme.name));
            section.bad(key, bad.hint("remove the key, or listen on mux://"));
        }
    }
    let dscp = section.as_ref().and_then(|s| s.value("dscp", values::dscp)).unwrap_or_default();
    Some((url, Listen { endpoint, client_ca, dscp, mux }))
}

/// Decodes the settings of a `mux://` listener.
fn mux(s: Option<&Section<'_>>) -> Mux {
    let default = s.and_then(|s| {
        s.value("default", |text| {
            let bad = |why| BadValue::new(why).hint("tcp://host:port or unix:///path");
            let target =
                parse_target(text)?.one(Over::Tcp).ok_or_else(|| bad("a range of ports"))?;
            match target {
                Target::Tcp { .. } | Target::Unix(_) => Ok(target),
                Target::Udp { .. } => Err(bad("the connections of a mux:// port are TCP")),
                Target::Socks5
                | Target::HttpProxy
                | Target::Files(_)
                | Target::Https { .. }
                | Target::H2c { .. }
                | Target::Tls { .. }
                | Target::Redirect(_)
                | Target::Private(_) => Err(bad("the server dials an address")),
            }
        })
    });
    let silence = s.and_then(|s| s.value("silence", |text| values::ranged(text, SILENCE_RANGE)));
    let times = s.and_then(|s| s.map::<Times>("timeouts", Listen::map("timeouts")));
    let timeouts = times.map(|times| times.streams()).unwrap_or_default();
    if let Some(s) = s.filter(|s| !s.has("default")) {
        for key in ["silence", "timeouts"].into_iter().filter(|key| s.has(key)) {
            let bad = BadValue::new(format!("{key} without a default target"));
            s.bad(key, bad.hint("add `default: tcp://127.0.0.1:22`, or remove the key"));
        }
    }
    let accept_proxy = s.and_then(|s| s.value("accept_proxy", values::switch)) == Some(true);
    Mux { default, accept_proxy, silence: silence.unwrap_or(Span::from_millis(SILENCE)), timeouts }
}

/// Parses the only possible value of a listener's `client_ca`.
fn no_client_ca(text: &str) -> Result<(), BadValue> {
    let bad = BadValue::new("only `false` is possible here");
    match values::switch(text) {
        Ok(false) => Ok(()),
        Ok(true) => Err(bad.hint("remove the key: without it `tls.client_ca` applies")),
        Err(_) => Err(bad.hint("the authority belongs under `tls.client_ca`")),
    }
}

/// Checks the address of a listener by itself and against the previous listeners.
pub(super) fn address(s: &Section<'_>, item: &Item, endpoint: &Endpoint, seen: &mut Addresses) {
    let (is_udp, port) = (endpoint.scheme.over == Over::Udp, endpoint.port);
    let taken = if is_udp { &mut seen.udp } else { &mut seen.tcp };
    let clash = match &endpoint.host {
        Host::Ip(ip) => taken.take(Bind::Ip(*ip), port),
        // The same address on two interfaces is two addresses.
        host @ (Host::Name(_) | Host::Scoped(_)) => {
            (port != 0 && !seen.names.insert((host.bare(), port, is_udp))).then_some(Clash::Same)
        }
    };
    let bad = clash.map(|clash| match clash {
        Clash::Same => BadValue::new("the same address twice").hint("remove one of them"),
        Clash::Covers(other) => {
            let (host, other) = (&endpoint.host, other.host());
            BadValue::new(format!("{host} and {other} overlap on port {}", endpoint.port))
                .hint("keep the wider one, or name each address")
        }
    });
    if let Some(bad) = bad {
        s.cx.problem(item.at(), &item.path, bad);
    }
    if endpoint.path.as_ref().is_some_and(|path| path.contains('?')) {
        let bad = BadValue::new("a listener is found by its path, not by a query");
        s.cx.problem(item.at(), &item.path, bad.hint("remove what follows the `?`"));
    }
}

/// Warns of a listener without TLS that others can reach.
fn exposed(s: &Section<'_>, item: &Item, endpoint: &Endpoint) {
    if !endpoint.scheme.tls && !endpoint.host.is_loopback() {
        let bad = BadValue::new("no TLS on an address others can reach");
        let with = endpoint.scheme.with_tls().name;
        let hint = format!("use {with}:// or bind 127.0.0.1");
        s.cx.warn(item.at(), &item.path, bad.hint(hint));
    }
}

/// Refuses a listener without TLS if `tls.client_ca` is set. The file requires client certificates,
/// and this listener would admit clients by their tokens alone.
fn refuse_plain(s: &Section<'_>, item: &Item, url: &Item, endpoint: &Endpoint) {
    let shown = match url.node.text() {
        // The value of a variable may be a secret in the wrong place.
        Some(text) if text.contains("${") => text.to_owned(),
        Some(_) | None => endpoint.to_string(),
    };
    let scheme = endpoint.scheme.name;
    let text = format!(
        "{scheme}:// cannot ask for a certificate of tls.client_ca: a token alone logs in at \
         {shown}"
    );
    let place = if matches!(item.at(), At::Flag(_)) { " in the file" } else { "" };
    let hint = format!(
        "remove the listener, or write {{ url: \"{shown}\", client_ca: false }}{place} if that is \
         meant"
    );
    s.cx.problem(item.at(), &item.path, BadValue::new(text).hint(hint));
}

/// The position of a key's value in a map.
fn place_of(map: &Item, key: &str) -> At {
    let Kind::Map(entries) = &map.node.kind else { return map.at() };
    entries.iter().find(|entry| entry.key == key).map_or_else(|| map.at(), |entry| entry.value.at)
}

//! `http` and `tls_routes` of a server: the doors for visitors of names.

use std::net::SocketAddr;
use std::time::Duration;

use proto::FieldEdits;

use super::listen::Addresses;
use super::{Item, Section, acme, unknown, values};
use crate::keys::{CERTIFICATE, HTTP, PAGES, TLS_ROUTES};
use crate::model::{Http, KeyPair, Listen, Pages, TlsRoutes, TlsVersion};
use crate::taken::{Bind, Clash};
use crate::{BadValue, Host, Span};

/// Decodes both sections, and compares their ports with the other listeners.
pub(super) fn doors(
    s: &Section<'_>,
    listen: &[Listen],
    taken: &mut Addresses,
) -> (Http, TlsRoutes) {
    let (http, tls) = (s.section("http", &HTTP), s.section("tls_routes", &TLS_ROUTES));
    let of_http = http.as_ref().map(|http| self::http(http, taken)).unwrap_or_default();
    let of_tls = tls.as_ref().map(|tls| tls_routes(tls, taken)).unwrap_or_default();
    let has_mux = listen.iter().any(|listen| listen.mux.is_some());
    let offers = |listen: &Listen| {
        listen.endpoint.scheme.http && (listen.mux.is_none() || listen.endpoint.path.is_some())
    };
    if let Some(http) = &http
        && of_http.browser
        && !listen.iter().any(offers)
    {
        let bad = BadValue::new("no listener offers the page for browsers");
        let hint = "add a listener wss://, mux:// with a path, or ws:// behind a reverse proxy";
        http.bad("browser", bad.hint(hint));
    }
    let has_tls = has_mux || !of_tls.listen.is_empty();
    if let Some(http) = http
        && !has_tls
        && !of_http.browser
        && of_http.listen.is_empty()
        && http.key("listen").is_none()
    {
        let bad = BadValue::new("no port takes visitors of http:// names");
        let hint = "add http: { listen: [\"0.0.0.0:80\"] }, or a mux:// listener";
        s.cx.warn(http.at(), &http.item.path, bad.hint(hint));
    }
    if let Some(tls) = tls
        && !has_tls
        && tls.key("listen").is_none()
    {
        for key in ["certificates", "min_version", "acme"] {
            let Some(item) = tls.key(key) else { continue };
            let bad = BadValue::new("no port takes visitors of https:// names");
            let hint = "add tls_routes: { listen: [\"0.0.0.0:443\"] }, or a mux:// listener";
            s.cx.warn(item.at(), &item.path, bad.hint(hint));
        }
    }
    (of_http, of_tls)
}

/// Warns about rights to names that no port serves.
pub(super) fn rights(s: &Section<'_>, has_doors: bool, has_rights: bool) {
    if has_doors || !has_rights {
        return;
    }
    let Some(item) = s.key("clients").or_else(|| s.key("allow_any_client")) else { return };
    let bad = BadValue::new("rights to names (allow.http, allow.tls), and no port for visitors");
    let hint = "add http: { listen: [\"0.0.0.0:80\"] }, tls_routes: { listen: [\"0.0.0.0:443\"] }, \
                or a mux:// listener";
    s.cx.warn(item.at(), &item.path, bad.hint(hint));
}

/// The shortest `http.idle`. A visitor sends its next request over the same connection.
const IDLE_LEAST: Duration = Duration::from_secs(1);

/// The longest `http.idle`. Routers forget a connection much earlier.
const IDLE_MOST: Duration = Duration::from_secs(86_400);

fn http(s: &Section<'_>, taken: &mut Addresses) -> Http {
    let pages = s.section("pages", &PAGES).map(|pages| Pages {
        not_found: values::path(&pages, "not_found"),
        unavailable: values::path(&pages, "unavailable"),
    });
    let domain = s.value("domain", domain_name);
    let browser = s.value("browser", values::switch) == Some(true);
    if browser && s.key("domain").is_none() {
        let bad = BadValue::new("the page for browsers needs names of its own");
        let hint = "add domain: example.com; the page is at visit.example.com, and each service at a \
                    name below example.com";
        s.bad("browser", bad.hint(hint));
    }
    Http {
        listen: addresses(s, "0.0.0.0:80", taken),
        domain,
        browser,
        route_header: s.value("route_header", |text| match FieldEdits::check_name(text) {
            Ok(()) => Ok(text.to_owned()),
            Err(why) => Err(BadValue::new(why.to_string())
                .hint("without the key, Host names the service; X-Route is possible")),
        }),
        no_redirect: s.value("redirect", values::switch) == Some(false),
        pages: pages.unwrap_or_default(),
        accept_proxy: s.value("accept_proxy", values::switch) == Some(true),
        remember: s.parse("remember").unwrap_or_else(|| Http::default().remember),
        idle: s.value("idle", idle).unwrap_or_else(|| Http::default().idle),
    }
}

fn idle(text: &str) -> Result<Span, BadValue> {
    let span = text.parse::<Span>()?;
    if (IDLE_LEAST..=IDLE_MOST).contains(&span.duration()) {
        return Ok(span);
    }
    let bad = BadValue::new(format!("`{text}` is not between 1s and 1d"));
    Err(bad.hint("75s is the default; balancers in front keep connections for 240s to 900s"))
}

fn domain_name(text: &str) -> Result<String, BadValue> {
    match text.parse() {
        Ok(Host::Name(name)) => Ok(name),
        Err(why) if !text.is_ascii() => Err(why),
        Ok(Host::Ip(_) | Host::Scoped(_)) | Err(_) => {
            Err(BadValue::new(format!("`{text}` is not a domain"))
                .hint("example.com gives the client home the name home.example.com"))
        }
    }
}

/// Decodes `listen` of a door.
fn addresses(s: &Section<'_>, example: &str, taken: &mut Addresses) -> Vec<SocketAddr> {
    let Some(item) = s.key("listen") else { return Vec::new() };
    let mut all = Vec::new();
    for item in s.cx.one_or_list(&item) {
        let Some(at) = s.cx.value(&item, |text| address(text, example)) else { continue };
        let clash = taken.tcp.take(Bind::Ip(at.ip()), at.port());
        if let Some(clash) = clash {
            let bad = match clash {
                Clash::Same => BadValue::new(format!("another listener has {at}")),
                Clash::Covers(other) => {
                    let host = Host::Ip(at.ip());
                    let (other, port) = (other.host(), at.port());
                    BadValue::new(format!("{host} and {other} overlap on port {port}"))
                }
            };
            let hint = "remove one of them, or serve clients and names on one port: listen: \
                        mux://0.0.0.0:443";
            s.cx.problem(item.at(), &item.path, bad.hint(hint));
        }
        all.push(at);
    }
    all
}

fn address(text: &str, example: &str) -> Result<SocketAddr, BadValue> {
    let hint = format!("an address with a port: {example}");
    if let Some((scheme, rest)) = text.split_once("://") {
        let bad = BadValue::new(format!("`{text}` has a scheme"));
        return Err(match rest.parse::<SocketAddr>() {
            Ok(at) => bad.hint(format!("write {at}; the section says what is spoken there")),
            Err(_) if scheme == "mux" => bad.hint("mux:// belongs under `listen`"),
            Err(_) => bad.hint(hint),
        });
    }
    text.parse().map_err(|_| BadValue::new(format!("`{text}` is not an address")).hint(hint))
}

fn tls_routes(s: &Section<'_>, taken: &mut Addresses) -> TlsRoutes {
    let pairs = s.key("certificates").map(|item| s.cx.one_or_list(&item)).unwrap_or_default();
    TlsRoutes {
        listen: addresses(s, "0.0.0.0:443", taken),
        certificates: pairs.into_iter().filter_map(|item| certificate(s, item)).collect(),
        min_version: s.value("min_version", version).unwrap_or_default(),
        acme: acme::accounts(s),
        accept_proxy: s.value("accept_proxy", values::switch) == Some(true),
    }
}

fn certificate(s: &Section<'_>, item: Item) -> Option<KeyPair> {
    let s = Section::open(s.cx, item, &CERTIFICATE)?;
    if s.key("cert").is_none() && s.key("key").is_none() {
        s.missing("cert", "the file with the chain, and `key` with its key");
    }
    values::key_pair(&s)
}

pub(super) fn version(text: &str) -> Result<TlsVersion, BadValue> {
    match text {
        "1.2" => Ok(TlsVersion::V12),
        "1.3" => Ok(TlsVersion::V13),
        _ => Err(unknown(&format!("version `{text}` of TLS"), text, &["1.2", "1.3"])),
    }
}

//! Decodes the paths to a server: addresses, certificates, header fields and proxies.

use std::cell::RefCell;

use crate::endpoint::server_url;
use crate::key_table::{KeyMap, KeyTable as _};
use crate::model::credentials::fields;
use crate::model::path::Wish;
use crate::model::{ClientConfig, Field, Path, PathDefaults, PathTls, TlsVersion};
use crate::section::{Cx, Item, Section};
use crate::yaml::Kind;
use crate::{BadValue, Host, Over, Scheme, proxy, values};

/// Settings at the top of the file. They apply to each path without its own settings.
pub(super) struct Shared<'a> {
    tls: PathTls,
    headers: Vec<Field>,
    proxy: Option<Wish>,
    /// The section `tls`, for problems of its keys.
    section: Option<Section<'a>>,
    /// The values of `via` of the paths that were decoded since [`Self::take_vias`].
    vias: RefCell<Vec<(Item, String)>>,
}

impl<'a> Shared<'a> {
    /// Decodes the settings.
    pub(super) fn of(s: &Section<'a>) -> Self {
        let tls = s.map("tls", ClientConfig::map("tls")).unwrap_or_default();
        let (headers, section, vias) = (fields(s, "headers"), s.checked("tls"), RefCell::default());
        Self { tls, headers, proxy: wish(s), section, vias }
    }

    /// The settings as they are kept for servers that are found later.
    pub(super) fn of_defaults(defaults: &PathDefaults) -> Self {
        let PathDefaults { tls, headers, proxy, .. } = defaults.clone();
        Self { tls, headers, proxy, section: None, vias: RefCell::default() }
    }

    /// The values of `via` of the paths that were decoded since the previous call.
    pub(super) fn take_vias(&self) -> Vec<(Item, String)> {
        self.vias.take()
    }

    /// Decodes the paths to one server. `map` has the keys of an entry that is a map.
    pub(super) fn paths(&self, cx: &Cx<'_>, items: Vec<Item>, map: KeyMap) -> Vec<Path> {
        let (urls, paths): (Vec<Item>, Vec<Path>) =
            items.into_iter().filter_map(|item| path(cx, item, map, self)).unzip();
        warn_of_plain(cx, &urls, &paths);
        paths
    }

    /// Reports a `min_version` of the top that no path can use.
    pub(super) fn check<'p>(&self, mut paths: impl Iterator<Item = &'p Path>) {
        let Some(tls) = self.section.as_ref().filter(|_| self.tls.min_version == TlsVersion::V12)
        else {
            return;
        };
        let mut is_empty = true;
        let is_old = |path: &Path| path.min_version == TlsVersion::V12;
        if !paths.any(|path| {
            is_empty = false;
            is_old(path)
        }) && !is_empty
        {
            tls.bad("min_version", needs_https("a client of these servers"));
        }
    }
}

/// TLS of `tls://` ends at the server, to which the log-in is bound, and QUIC and KCP use only TLS
/// 1.3.
fn needs_https(what: &str) -> BadValue {
    BadValue::new(format!("{what}: TLS 1.3 alone"))
        .hint("remove `min_version`: it is for wss:// through a proxy that ends TLS")
}

/// Warns of each path without TLS that leaves this machine. The client tries the paths in their
/// order, so the first such path gets a different warning where a path with TLS follows it: the
/// client would use TLS only after the path without TLS has failed.
fn warn_of_plain(cx: &Cx<'_>, urls: &[Item], paths: &[Path]) {
    let mut is_reported = false;
    for (n, (url, path)) in urls.iter().zip(paths).enumerate() {
        let scheme = path.endpoint.scheme;
        if scheme.tls || path.endpoint.host.is_loopback() {
            continue;
        }
        let place = url.path.strip_suffix(".url").unwrap_or(&url.path);
        let behind = paths.iter().skip(n).find(|other| other.endpoint.scheme.tls);
        let bad = match behind {
            Some(other) if !is_reported => {
                is_reported = true;
                let (plain, tls) = (scheme.name, other.endpoint.scheme.name);
                let text = format!("{plain}:// is not encrypted and is tried before {tls}://");
                let hint = format!("write {place} behind the encrypted addresses, or remove it");
                BadValue::new(text).hint(hint)
            }
            Some(_) | None => BadValue::new("no TLS on the way to the server")
                .hint(format!("use {}://", scheme.with_tls().name)),
        };
        cx.warn(url.at(), &url.path, bad);
    }
}

/// Parses a host name that may appear in a certificate.
fn host_name(text: &str) -> Result<String, BadValue> {
    match text.parse()? {
        Host::Name(name) => Ok(name),
        Host::Ip(_) | Host::Scoped(_) => {
            Err(BadValue::new(format!("`{text}` is an address, not a host name")))
        }
    }
}

/// Decodes `proxy`: a proxy, or `none`.
pub(super) fn wish(s: &Section<'_>) -> Option<Wish> {
    s.value("proxy", |text| match text {
        "none" => Ok(Wish::None),
        _ => text.parse().map(Wish::Of),
    })
}

/// Decodes one path. Returns the position of its URL as well.
pub(super) fn path(
    cx: &Cx<'_>,
    item: Item,
    map: KeyMap,
    shared: &Shared<'_>,
) -> Option<(Item, Path)> {
    let plain = matches!(item.node.kind, Kind::Scalar { .. });
    let (url, section) = if plain {
        (item, None)
    } else {
        let s = Section::open(cx, item, map)?;
        if !s.has("url") {
            s.missing("url", "for example tls://example.com:7000");
        }
        (s.key("url")?, Some(s))
    };
    let section = section.as_ref();
    let own: Option<PathTls> = section.and_then(|s| s.map("tls", Path::map("tls")));
    let PathTls { trust, identity, min_version: wished } =
        own.unwrap_or_else(|| shared.tls.clone());
    let own = section.and_then(|s| s.checked("tls"));
    let headers = match section {
        Some(s) if s.has("headers") => fields(s, "headers"),
        _ => shared.headers.to_vec(),
    };
    let sni = section.and_then(|s| s.value("sni", host_name));
    let dial = section.and_then(|s| s.flat(Path::map(""))).unwrap_or_default();
    let endpoint = cx.value(&url, |text| match server_url(text)? {
        e if e.port == 0 => Err(BadValue::new("port 0 cannot be dialled")),
        e => Ok(e),
    })?;
    let min_version = if endpoint.scheme.http { wished } else { TlsVersion::V13 };
    if let Some(own) = own.filter(|_| wished != min_version) {
        own.bad("min_version", needs_https(&format!("{}://", endpoint.scheme.name)));
    }
    let wish = section.and_then(wish);
    if endpoint.scheme.over == Over::Udp {
        of_udp(cx, (&url, endpoint.scheme), section, wish.as_ref(), shared);
        let headers = Vec::new();
        let (proxy, via) = (None, None);
        let path = Path { endpoint, trust, identity, min_version, sni, headers, proxy, via, dial };
        return Some((url, path));
    }
    if let Some(section) = section.filter(|s| s.has("via")) {
        let via = through(section, shared);
        let (proxy, dial) = Default::default();
        let path = Path { endpoint, trust, identity, min_version, sni, headers, proxy, via, dial };
        return Some((url, path));
    }
    let via = None;
    let proxy = match wish.as_ref().or(shared.proxy.as_ref()) {
        Some(Wish::None) => None,
        Some(Wish::Of(proxy)) => Some(proxy.clone()),
        None => proxy::of_environment(&endpoint, cx.sources.env).unwrap_or_else(|(name, bad)| {
            let bad = BadValue { message: format!("{name} is {}", bad.message), ..bad };
            cx.problem(url.at(), &url.path, bad);
            None
        }),
    };
    let path = Path { endpoint, trust, identity, min_version, sni, headers, proxy, via, dial };
    Some((url, path))
}

/// Decodes `via`. The other server dials, so settings of the dial are reported. A proxy of the top
/// or of the environment applies to the paths to the other server.
fn through(s: &Section<'_>, shared: &Shared<'_>) -> Option<String> {
    for key in ["proxy", "interface", "source", "dscp"].into_iter().filter(|key| s.has(key)) {
        let bad =
            BadValue::new(format!("`{key}` beside `via`: this machine does not dial the path"));
        s.bad(key, bad.hint("remove it, or write it into a path of the server that `via` names"));
    }
    let via = s.value("via", values::name);
    shared.vias.borrow_mut().extend(s.key("via").zip(via.clone()));
    via
}

/// Reports settings that a path over UDP cannot have. A proxy of the file is an error, because the
/// user would not expect a connection that bypasses it. Proxies of the environment apply only to
/// TCP by convention, so they are ignored.
fn of_udp(
    cx: &Cx<'_>,
    (url, scheme): (&Item, Scheme),
    section: Option<&Section<'_>>,
    own: Option<&Wish>,
    shared: &Shared<'_>,
) {
    let name = format!("{}://", scheme.name);
    let through = |last| Scheme::list(last, |scheme| scheme.tls && scheme.over == Over::Tcp);
    if let Some(s) = section.filter(|s| s.has("headers")) {
        let bad = BadValue::new(format!("{name} has no request that they could be in"));
        let http = Scheme::list("and", |scheme| scheme.http);
        s.bad("headers", bad.hint(format!("remove them: they are for {http}")));
    }
    if let Some(s) = section.filter(|s| s.has("via")) {
        let bad =
            BadValue::new(format!("{name} is UDP, which does not lead through another server"));
        s.bad("via", bad.hint(format!("remove it, or go there by {}", through("or"))));
    }
    let bad =
        |proxy| BadValue::new(format!("{name} is UDP, which the proxy {proxy} does not take"));
    match (section, own, &shared.proxy) {
        (Some(s), Some(Wish::Of(proxy)), _) => {
            s.bad("proxy", bad(proxy).hint(format!("remove it, or go there by {}", through("or"))));
        }
        (_, None, Some(Wish::Of(proxy))) => {
            let hint = format!(
                "with `proxy: none` beside its `url` it goes there directly; {} go through it",
                through("and")
            );
            cx.problem(url.at(), &url.path, bad(proxy).hint(hint));
        }
        (_, None | Some(_), _) => {}
    }
}

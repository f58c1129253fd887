//! Decodes client.yaml.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use proto::UnixAddr;

use super::keys::{CLIENT, CLIENT_TLS, FORWARD, PATH, PATH_TLS, RETRY};
use super::taken::{Bind, Clash, Taken};
use super::values::fields;
use super::{Cx, Item, Section, common, service, values};
use crate::endpoint::{tcp, unix};
use crate::model::{ClientConfig, Field, Forward, KeyPair, Path, Trust};
use crate::proxy::{self, Proxy};
use crate::yaml::Kind;
use crate::{BadValue, Endpoint, Host, Local, Over, Scheme, Span};

/// Default of `retry.min`, in milliseconds: short enough that visitors do not notice a restart of
/// the server.
const RETRY_MIN: u64 = 200;

/// Default of `retry.max`, in milliseconds: the client is connected again within 2 s after the
/// network returns.
const RETRY_MAX: u64 = 1500;

/// Default mode of a forward's Unix socket: only its user may connect, as with ssh's forwards.
const SOCKET_MODE: u32 = 0o600;

/// The hint for a missing token if some paths have certificates, but certificates alone are not
/// enough.
const TOKEN_BESIDE: &str = "a certificate alone is enough where every server is tls:// or quic:// and is shown one; \
                            else make a token with `tunnel generate token`";

/// Decodes the file. `None` only after a problem was reported.
pub(crate) fn client(cx: &Cx<'_>, root: Item) -> Option<ClientConfig> {
    let s = Section::open(cx, root, &CLIENT)?;
    let (trust, identity) = match s.section("tls", &CLIENT_TLS) {
        Some(tls) => verification(&tls),
        None => (Trust::System, None),
    };
    let (headers, proxy) = (fields(&s), wish(&s));
    let servers: Vec<Item> = s.key("servers").map(|item| cx.one_or_list(&item)).unwrap_or_default();
    if servers.is_empty() {
        s.missing("servers", "for example [\"tls://example.com:7000\"]");
    }
    let servers: Vec<Path> = servers
        .into_iter()
        .filter_map(|item| {
            path(
                cx,
                item,
                &Shared {
                    trust: &trust,
                    identity: identity.as_ref(),
                    headers: &headers,
                    proxy: proxy.as_ref(),
                },
            )
        })
        .collect();
    if s.key("name").is_none() {
        s.missing("name", "the name of this client in the server's file");
    }
    let name = s.value("name", values::name);
    // A certificate proves the name only on its own connection, and that connection may end at a
    // reverse proxy.
    let is_enough = |path: &Path| path.identity.is_some() && path.endpoint.scheme.binds_log_ins;
    let by_certificate = !servers.is_empty() && servers.iter().all(is_enough);
    let has_one = servers.iter().any(|path| path.identity.is_some());
    let hint = if has_one { TOKEN_BESIDE } else { common::TOKEN_WANTED };
    let without = (!by_certificate).then_some(hint);
    let token = common::tokens(&s, 1, common::Kept::Plain, without).pop();
    let is_there = token.is_some() || s.key("token").is_none() && s.key("token_file").is_none();
    let introduce = s.value("introduce", values::switch).unwrap_or_default();
    let services = service::services(&s);
    let forwards = s.key("forwards").map(|item| cx.list(&item)).unwrap_or_default();
    let mut taken = Listeners::default();
    let forwards = forwards.into_iter().filter_map(|i| forward(cx, i, &mut taken)).collect();
    if s.key("services").is_none() && s.key("forwards").is_none() {
        cx.warn(s.at(), "", BadValue::new("neither services nor forwards: nothing to do"));
    }
    let retry = s.section("retry", &RETRY);
    let pause = |key, default| match &retry {
        Some(retry) => values::positive(retry, key, default),
        None => Some(Span::from_millis(default)),
    };
    let retry_range = pause("min", RETRY_MIN).zip(pause("max", RETRY_MAX));
    if let (Some(retry), Some((min, max))) = (&retry, retry_range)
        && min > max
    {
        retry.bad("min", BadValue::new(format!("{min} is more than retry.max ({max})")));
    }
    let (connections, common) = (values::count(&s, "connections"), common::common(&s));
    let (name, (retry_min, retry_max)) = (name?, retry_range?);
    if !is_there {
        return None;
    }
    Some(ClientConfig {
        servers,
        name,
        token,
        introduce,
        connections,
        services,
        forwards,
        retry_min,
        retry_max,
        common,
    })
}

pub(super) fn verification(s: &Section<'_>) -> (Trust, Option<KeyPair>) {
    let pins = s.key("pin").map(|item| s.cx.one_or_list(&item)).unwrap_or_default();
    let pins: Vec<String> = pins.iter().filter_map(|item| s.cx.value(item, pin)).collect();
    let ca = values::path(s, "ca");
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
    (trust, values::key_pair(s))
}

/// Parses a pin: `sha256:` and the Base64 of 32 bytes.
fn pin(text: &str) -> Result<String, BadValue> {
    let body = text.strip_prefix("sha256:").and_then(|t| t.strip_suffix('='));
    let base64 = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    match body {
        Some(body) if body.len() == 43 && body.bytes().all(base64) => Ok(text.to_owned()),
        _ => Err(BadValue::new("a pin is `sha256:` and 44 characters of Base64")
            .hint("copy it from what the server prints at start")),
    }
}

/// Parses a host name that a certificate may contain.
fn host_name(text: &str) -> Result<String, BadValue> {
    match text.parse()? {
        Host::Name(name) => Ok(name),
        Host::Ip(_) => Err(BadValue::new(format!("`{text}` is an address, not a host name"))),
    }
}

/// Settings at the top of the file. They apply to each path without its own settings.
struct Shared<'a> {
    trust: &'a Trust,
    identity: Option<&'a KeyPair>,
    headers: &'a [Field],
    proxy: Option<&'a Wish>,
}

/// A setting of `proxy`.
#[derive(Clone)]
enum Wish {
    /// No proxy, even if the environment names a proxy.
    None,
    Of(Proxy),
}

/// Decodes `proxy`: a proxy, or `none`.
fn wish(s: &Section<'_>) -> Option<Wish> {
    s.value("proxy", |text| match text {
        "none" => Ok(Wish::None),
        _ => text.parse().map(Wish::Of),
    })
}

fn path(cx: &Cx<'_>, item: Item, shared: &Shared<'_>) -> Option<Path> {
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
        None => (shared.trust.clone(), shared.identity.cloned()),
    };
    let headers = match section {
        Some(s) if s.key("headers").is_some() => fields(s),
        _ => shared.headers.to_vec(),
    };
    let sni = section.and_then(|s| s.value("sni", host_name));
    let endpoint = cx.value(&url, |text| match text.parse::<Endpoint>()? {
        e if e.port == 0 => Err(BadValue::new("port 0 cannot be dialled")),
        e => Ok(e),
    })?;
    if !endpoint.scheme.tls && !endpoint.host.is_loopback() {
        let bad = BadValue::new("no TLS on the way to the server");
        let with = endpoint.scheme.with_tls().name;
        cx.warn(url.at(), &url.path, bad.hint(format!("use {with}://")));
    }
    let wish = section.and_then(wish);
    if endpoint.scheme.over == Over::Udp {
        of_udp(cx, (&url, endpoint.scheme), section, wish.as_ref(), shared);
        return Some(Path { endpoint, trust, identity, sni, headers: Vec::new(), proxy: None });
    }
    let proxy = match wish.as_ref().or(shared.proxy) {
        Some(Wish::None) => None,
        Some(Wish::Of(proxy)) => Some(proxy.clone()),
        None => proxy::of_environment(&endpoint, cx.sources.env).unwrap_or_else(|(name, bad)| {
            let bad = BadValue { message: format!("{name} is {}", bad.message), ..bad };
            cx.problem(url.at(), &url.path, bad);
            None
        }),
    };
    Some(Path { endpoint, trust, identity, sni, headers, proxy })
}

/// Reports settings that a path over UDP cannot have. A proxy of the file is an error, because a
/// connection that bypasses it would surprise the user. Proxies of the environment apply only to
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
    if let Some(s) = section.filter(|s| s.key("headers").is_some()) {
        let bad = BadValue::new(format!("{name} has no request that they could be in"));
        let http = Scheme::list("and", |scheme| scheme.http);
        s.bad("headers", bad.hint(format!("remove them: they are for {http}")));
    }
    let bad =
        |proxy| BadValue::new(format!("{name} is UDP, which the proxy {proxy} does not take"));
    match (section, own, shared.proxy) {
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

/// The addresses of the forwards that were decoded so far.
#[derive(Default)]
struct Listeners {
    tcp: Taken,
    unix: BTreeSet<UnixAddr>,
}

fn forward(cx: &Cx<'_>, item: Item, taken: &mut Listeners) -> Option<Forward> {
    let s = Section::open(cx, item, &FORWARD)?;
    if s.key("listen").is_none() {
        s.missing("listen", "for example tcp://127.0.0.1:5203");
    }
    let mode = s.value("mode", mode);
    let listen = s.value("listen", |text| match unix(text) {
        Some(address) => {
            address.map(|address| Local::Unix { address, mode: mode.unwrap_or(SOCKET_MODE) })
        }
        None => listen_tcp(text).map(Local::Tcp),
    });
    if let Some(bad) = listen.as_ref().and_then(|listen| clash(listen, taken)) {
        s.bad("listen", bad.hint("one forward per address"));
    }
    let file = |listen: &Local| match listen {
        Local::Unix { address, .. } => address.abstract_name().is_none(),
        Local::Tcp(_) => false,
    };
    if s.key("mode").is_some() && !listen.as_ref().is_none_or(file) {
        let bad = BadValue::new("only the file of a Unix socket has a mode");
        s.bad("mode", bad.hint("remove it, or listen on unix:///path"));
    }
    let target = service::target(&s)?.one();
    if target.is_none() {
        let bad = BadValue::new("a range is not in this build yet");
        s.bad("target", bad.hint("one forward per port"));
    }
    Some(Forward { listen: listen?, target: target? })
}

fn listen_tcp(text: &str) -> Result<SocketAddr, BadValue> {
    match tcp(text)? {
        (_, a, b) if a != b => {
            Err(BadValue::new("a range is not in this build yet").hint("one forward per port"))
        }
        (Some(Host::Ip(ip)), port, _) => Ok(SocketAddr::new(ip, port)),
        _ => Err(BadValue::new(format!("`{text}` has no address"))
            .hint("for example tcp://127.0.0.1:5203")),
    }
}

/// Records the address. Returns the problem if another forward already has the address.
fn clash(listen: &Local, taken: &mut Listeners) -> Option<BadValue> {
    let same = || BadValue::new(format!("a second forward listens on {listen}"));
    match listen {
        Local::Unix { address, .. } => (!taken.unix.insert(address.clone())).then(same),
        Local::Tcp(at) => taken.tcp.take(Bind::Ip(at.ip()), at.port()).map(|clash| match clash {
            Clash::Same => same(),
            Clash::Covers(other) => {
                BadValue::new(format!("{listen} and {} overlap", other.tcp(at.port())))
            }
        }),
    }
}

/// Parses permission bits in octal, as chmod(1) does.
fn mode(text: &str) -> Result<u32, BadValue> {
    let digits = (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    let bits = u32::from_str_radix(text, 8).ok().filter(|bits| digits && *bits <= 0o777);
    bits.ok_or_else(|| {
        BadValue::new(format!("`{text}` is not a file mode"))
            .hint("three octal digits as for chmod: \"660\" is for user and group")
    })
}

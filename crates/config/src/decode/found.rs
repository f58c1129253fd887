//! Decodes `servers_from`, and the answer of an API or of DNS about servers. The paths of an answer
//! are read by the rules of the file, but an answer is the text of another machine: it names no
//! file of this machine.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::auth::http_url;
use super::paths::{Shared, path, wish};
use super::via::{self, Detours};
use crate::json::NOWHERE;
use crate::key_table::KeyTable as _;
use crate::model::credentials::{self, fields};
use crate::model::found::{FoundDocument, FoundEntry};
use crate::model::path::Wish;
use crate::model::{FoundServer, FoundServers, Path, PathDefaults, PathTls, ServersFrom, SrvName};
use crate::section::{Cx, Item, Section};
use crate::yaml::{Entry, Kind, Node};
use crate::{BadValue, Over, Secret, Span, proxy, values};

/// The largest number of servers in an answer. Each has links, a session and a part of the status.
pub(crate) const SERVERS_MAX: usize = 64;

/// The largest number of paths to a server in an answer. The client tries one after the other.
pub(crate) const PATHS_MAX: usize = 16;

/// The longest name (`proto::greeting::NAME_MAX`).
const NAME_MAX: usize = 64;

/// The bounds of `every`.
const EVERY: (Span, Span) = (Span::from_millis(10_000), Span::from_millis(86_400_000));

/// The keys of `tls` that name files.
const FILES: &[&str] = &["ca", "cert", "key"];

/// The settings at the top of the file, for servers that are found while the client runs.
/// `has_token`: whether the client logs in with a token.
pub(crate) fn defaults(s: &Section<'_>, has_token: bool) -> PathDefaults {
    let variable = |name: &&'static str| Some((*name, Secret::new((s.cx.sources.env)(name)?)));
    // The keys were checked where the file was read, so a problem is reported once.
    let quiet = s.cx.again();
    let top = Section::quiet(&quiet, s.item.clone());
    let tls: Option<PathTls> =
        top.as_ref().and_then(|top| top.map("tls", crate::model::ClientConfig::map("tls")));
    PathDefaults {
        tls: tls.unwrap_or_default(),
        headers: top.as_ref().map(|top| fields(top, "headers")).unwrap_or_default(),
        proxy: top.as_ref().and_then(wish),
        environment: proxy::VARIABLES.iter().filter_map(variable).collect(),
        by_certificate: !has_token,
    }
}

/// Decodes what names the servers of a client while it runs, with the settings for their paths.
pub(super) fn source(
    s: &Section<'_>,
    has_token: bool,
) -> (Option<ServersFrom>, Option<SrvName>, PathDefaults) {
    let defaults = defaults(s, has_token);
    let from = s.key("servers_from").and_then(|item| servers_from(s.cx, item, &defaults));
    (from, s.parse("srv"), defaults)
}

/// Decodes the value of `servers_from`: a URL, or a map. `defaults` has the proxy for an API
/// without its own proxy.
pub(crate) fn servers_from(
    cx: &Cx<'_>,
    item: Item,
    defaults: &PathDefaults,
) -> Option<ServersFrom> {
    let item = match item.node.kind {
        Kind::Scalar { .. } => item.keyed("url"),
        Kind::List(_) | Kind::Map(_) => item,
    };
    let s = Section::open(cx, item, ServersFrom::MAP)?;
    let endpoint = s.required("url", EXAMPLE, |text| http_url(text, EXAMPLE, "who names servers"));
    let tls = s.map::<PathTls>("tls", ServersFrom::map("tls")).unwrap_or_default();
    let PathTls { trust, identity, min_version } = tls;
    let headers = fields(&s, "headers");
    let token = credentials::tokens(&s, 1, credentials::Kept::Bearer, None).pop();
    if (token.is_some() || s.has("token") || s.has("token_file"))
        && headers.iter().any(|field| field.name.eq_ignore_ascii_case("authorization"))
    {
        let bad = BadValue::new("the field `Authorization` and a token together");
        s.bad("headers", bad.hint("keep one of them"));
    }
    let every = s.or("every", ServersFrom::usual("every"), every)?;
    let endpoint = endpoint?;
    let proxy = match wish(&s).as_ref().or(defaults.proxy.as_ref()) {
        Some(Wish::None) => None,
        Some(Wish::Of(proxy)) => Some(proxy.clone()),
        None => proxy::of_environment(&endpoint, cx.sources.env).unwrap_or_else(|(name, bad)| {
            let bad = BadValue { message: format!("{name} is {}", bad.message), ..bad };
            s.bad("url", bad);
            None
        }),
    };
    let (sni, dial) = Default::default();
    let path =
        Path { endpoint, trust, identity, min_version, sni, headers, proxy, via: None, dial };
    Some(ServersFrom { path, token, every })
}

const EXAMPLE: &str =
    "for example https://fleet.example.com/servers, or http://127.0.0.1:8080/servers";

fn every(text: &str) -> Result<Span, BadValue> {
    values::ranged(text, EVERY.0..=EVERY.1)
}

/// Decodes the answer of an API. `None` only after a problem was reported.
pub(crate) fn answer(cx: &Cx<'_>, root: Item, defaults: &PathDefaults) -> Option<FoundServers> {
    if !has_no_variable(cx, &root) {
        return None;
    }
    let s = Section::open(cx, root, FoundDocument::MAP)?;
    let every = s.value("every", every);
    let items = s.one_or_list("servers");
    if items.is_empty() {
        let bad = if s.has("servers") { "there is no server in it" } else { "missing" };
        s.bad("servers", BadValue::new(bad).hint("for example [\"tls://fra.example.com:7000\"]"));
    }
    if items.len() > SERVERS_MAX {
        let bad = BadValue::new(format!("{} servers", items.len()));
        s.bad("servers", bad.hint(format!("at most {SERVERS_MAX}")));
        return None;
    }
    let mut read: Vec<_> =
        items.into_iter().filter_map(|item| server(cx, item, defaults)).collect();
    let vias: Vec<_> = read.iter_mut().map(|server| std::mem::take(&mut server.vias)).collect();
    let servers = named(read, |item, name| {
        let bad = BadValue::new(format!("two servers have the name `{name}`"));
        cx.problem(item.at(), &item.path, bad.hint("write them as maps with a `name`"));
    });
    let detours = servers.iter().zip(&vias).map(|(server, values)| Detours {
        name: &server.name,
        paths: &server.paths,
        values,
    });
    via::check(cx, &detours.collect::<Vec<_>>());
    Some(FoundServers { servers, every })
}

/// Decodes the servers of a service in DNS, by host and port, in order of preference. A record that
/// cannot be a server is left out with a warning.
pub(crate) fn records(
    cx: &Cx<'_>,
    name: &SrvName,
    places: &[(String, u16)],
    defaults: &PathDefaults,
) -> Option<FoundServers> {
    let scheme = match name.over() {
        Over::Tcp => "tls",
        Over::Udp => "quic",
    };
    let mut seen = BTreeSet::new();
    let mut read = Vec::new();
    for (host, port) in places.iter().filter(|place| seen.insert(*place)).take(SERVERS_MAX) {
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let node = Node::scalar(format!("{scheme}://{host}:{port}"), NOWHERE);
        let own = Cx::new(cx.file, cx.sources);
        let found = server(&own, Item { node, path: String::new() }, defaults);
        let problems = own.problems.into_inner();
        let mut warnings = cx.warnings.borrow_mut();
        warnings.extend(own.warnings.into_inner());
        if problems.is_empty() {
            read.extend(found);
        } else {
            warnings.extend(problems);
        }
    }
    if read.is_empty() {
        let bad = BadValue::new("no record names a server that can be dialled");
        cx.problem(NOWHERE, "", bad);
        return None;
    }
    // Each place is there once, so each name with the port is as well.
    Some(FoundServers { servers: named(read, |_, _| ()), every: None })
}

/// A decoded server. The name is missing where only a URL is written.
struct Unnamed {
    item: Item,
    name: Option<String>,
    paths: Vec<Path>,
    /// The values of `via` of the paths.
    vias: Vec<(Item, String)>,
}

fn server(cx: &Cx<'_>, item: Item, defaults: &PathDefaults) -> Option<Unnamed> {
    let (name, items) = match item.node.kind {
        Kind::Scalar { .. } => (None, vec![item.clone()]),
        Kind::List(_) | Kind::Map(_) => {
            let s = Section::open(cx, item.clone(), FoundEntry::MAP)?;
            let name = s.required("name", "for example fra", values::name);
            let items = s.one_or_list("paths");
            if items.is_empty() {
                s.missing("paths", "for example [\"tls://fra.example.com:7000\"]");
            }
            if items.len() > PATHS_MAX {
                let bad = BadValue::new(format!("{} paths to a server", items.len()));
                s.bad("paths", bad.hint(format!("at most {PATHS_MAX}")));
                return None;
            }
            (Some(name?), items)
        }
    };
    let shared = Shared::of_defaults(defaults);
    let mut paths = Vec::new();
    for item in items {
        refuse_files(cx, &item);
        let Some((url, path)) = path(cx, item, Path::MAP, &shared) else { continue };
        let scheme = path.endpoint.scheme;
        if !scheme.tls && !path.endpoint.host.is_loopback() {
            let bad = BadValue::new("no TLS on the way to the server");
            cx.warn(url.at(), &url.path, bad.hint(format!("use {}://", scheme.with_tls().name)));
        }
        if defaults.by_certificate && !(path.identity.is_some() && scheme.binds_log_ins) {
            let bad =
                BadValue::new("the client has no token, and a certificate cannot log in here");
            let hint =
                "tls://, quic:// or kcp://, and `tls` with cert and key in the client's file";
            cx.problem(url.at(), &url.path, bad.hint(hint));
        }
        paths.push(path);
    }
    let vias = shared.take_vias();
    (!paths.is_empty()).then_some(Unnamed { item, name, paths, vias })
}

/// Refuses the keys of a path that name files: the answer of another machine must not say which
/// file of this machine is read.
fn refuse_files(cx: &Cx<'_>, item: &Item) {
    let path = Section::quiet(cx, item.clone());
    let Some(tls) = path.and_then(|path| path.checked("tls")) else { return };
    for key in FILES.iter().filter(|key| tls.has(key)) {
        let bad = BadValue::new("an answer names no file of this machine");
        tls.bad(key, bad.hint("write `pin`, or write the key into `tls` of the client's file"));
    }
}

/// Gives each server a name. A server without one has the name of its host, and behind the name its
/// port where another server has the same. `twice` reports a name that is there twice nonetheless.
fn named(read: Vec<Unnamed>, twice: impl Fn(&Item, &str)) -> Vec<FoundServer> {
    let host = |server: &Unnamed| {
        let host = server.paths.first().map(|path| path.endpoint.host.bare());
        as_name(&host.unwrap_or_default(), NAME_MAX)
    };
    let wished: Vec<String> =
        read.iter().map(|server| server.name.clone().unwrap_or_else(|| host(server))).collect();
    let mut seen = BTreeSet::new();
    let mut servers = Vec::new();
    for (server, wish) in read.into_iter().zip(&wished) {
        let is_shared = wished.iter().filter(|other| *other == wish).count() > 1;
        let name = match server.paths.first() {
            Some(path) if server.name.is_none() && is_shared => {
                let port = format!("-{}", path.endpoint.port);
                format!("{}{port}", as_name(wish, NAME_MAX - port.len()))
            }
            Some(_) | None => wish.clone(),
        };
        if !seen.insert(name.clone()) {
            twice(&server.item, &name);
        }
        servers.push(FoundServer { name, paths: server.paths });
    }
    servers
}

/// The text in the characters of a name, with at most `most` bytes: the colons of an IPv6 address
/// are hyphens.
fn as_name(host: &str, most: usize) -> String {
    let letter = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' }
    };
    host.chars().map(letter).take(most).collect()
}

/// Reports each text with a variable of the environment, and whether there is none: the answer of
/// another machine must not read the environment of this machine.
fn has_no_variable(cx: &Cx<'_>, item: &Item) -> bool {
    let below =
        |node: &Rc<Node>, path: String| has_no_variable(cx, &Item { node: Rc::clone(node), path });
    match &item.node.kind {
        Kind::Scalar { text, .. } => {
            let is_plain = !text.contains("${");
            if !is_plain {
                let bad = BadValue::new("an answer has no variables of the environment");
                cx.problem(item.at(), &item.path, bad.hint("write the value instead of `${…}`"));
            }
            is_plain
        }
        Kind::List(items) => items
            .iter()
            .enumerate()
            .fold(true, |so_far, (n, node)| below(node, format!("{}[{n}]", item.path)) && so_far),
        Kind::Map(entries) => entries.iter().fold(true, |so_far, Entry { key, value, .. }| {
            let key = crate::secrecy::key(key);
            let path = if item.path.is_empty() { key } else { format!("{}.{key}", item.path) };
            below(value, path) && so_far
        }),
    }
}

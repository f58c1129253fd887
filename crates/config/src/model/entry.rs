//! An entry of `services` as written.

use proto::control::{ServiceTerms, Timeouts};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use proto::{Balance, Compress, HttpOptions, NETWORKS_MAX, Network, Networks, Priority, Sticky};

use crate::endpoint::split;
use crate::files_read::{LISTED_MAX, READ_MAX};
use crate::key_table::KeyTable;
use crate::model::check::Check;
use crate::model::dial_options::DialOptions;
use crate::model::limits::Limited;
use crate::model::private::{PeerTls, Visitor};
use crate::model::service::{ProxyProtocol, TargetTls, VisitorLists};
use crate::model::spread::Weighted;
use crate::model::times::Times;
use crate::net::listed;
use crate::problem::unknown;
use crate::secrecy::{unexpanded, unreadable};
use crate::section::{Cx, Item, Reading, Section};
use crate::yaml::{At, Entry, Kind, Node};
use crate::{BadValue, Host, Moment, Net, Span, values};

/// An entry of `services` as written. Values without a field are read together with others.
#[derive(KeyTable)]
#[keys(later("resume"))]
#[row(target: "`tcp://host:port` (short: `host:port`, `3000`), `udp://host:port`, range, \
    `http://host:port`, `https://host:port`, `h2c://host:port`, `unix:///path`, `socks5`, \
    `http-proxy` or `file:///path`; a list of targets", list, keys = Weighted, required,
    note = "not with a `redirect` to an address", holds = Url,
    text = "The target of the service, or a list of targets to balance visitors over.")]
#[row(target_tls: map, keys = TargetTls, none,
    text = "The verification of certificates of https:// targets of the service.")]
#[row(public: "`tcp://[address]:port` (short: `10080`), `udp://[address]:port` or range, `http://`, \
    `https://` or `tls://` and a host, one or list; or `private`", required,
    text = "The public addresses of the service on the server, or private for other clients.")]
#[row(basic_auth: "`user:password` or `user:hash`, one or list, at most 16 and 256",
    none = "everybody may visit", holds = Passwords,
    text = "The users and passwords with which visitors log in to the service.")]
#[row(basic_auth_file: "path", none,
    text = "The htpasswd file with additional users of the service.")]
#[row(headers: map, keys = RequestEdits, none, holds = Fields,
    text = "The changes of HTTP headers in requests to targets of the service.")]
#[row(response_headers: map, keys = ResponseEdits, none, holds = Fields,
    text = "The changes of HTTP headers in responses to visitors of the service.")]
#[row(strip_prefix: "`true`, `false`, or a path", default = "false",
    text = "Removes or replaces the path of the service in requests to targets.")]
#[row(redirect: "`true`, `false`, or an address `https://www.example.com{uri}`", default = "true",
    text = "Redirects http:// visitors to the https:// name, or all visitors to an address.")]
#[row(preflight: "`pass`", none = "a preflight needs a password",
    text = "Passes CORS preflights to the service without a password.")]
#[row(list: "`true`, `false`", default = "false",
    text = "Lists the content of served directories without index.html.")]
#[row(try_files: "paths, one or list, at most 8", none = "404",
    text = "The files to serve where the path of a request names no file, in order of trial.")]
#[row(allow: "host:ports, one or list, at most 256", absent = "everything but special addresses",
    text = "The hosts and ports that visitors of an exit may reach.")]
#[row(visitors: "list of maps or names, at most 1024", list, keys = Visitor,
    absent = "required of a private service",
    text = "The clients that may visit the private service.")]
#[row(visitor_tls: map, keys = PeerTls, none = "visitors have tokens",
    text = "The certificates between the private service and visitors without a token.")]
#[row(browser: "`true`, `false`", default = "false",
    text = "Permits browsers to visit the private service by the page of the server.")]
#[row(broadcast: "`true`, `false`", default = "false",
    text = "Permits broadcast addresses as UDP targets of the service.")]
pub(crate) struct Written {
    /// The unique name of the service.
    #[key("name", read = values::name,
        absent = "`tcp-PORT` (or `udp-PORT`; the public port; for port 0 the target's port), `http-HOST`")]
    pub(crate) name: Option<String>,
    /// The servers of the client at which the service is published.
    #[key("names of servers, one or list", none = "every server", each, read = values::name,
        holds = Url)]
    pub(crate) servers: Vec<String>,
    /// The priority of streams of the service within a link.
    #[key("`interactive`, `normal`, `bulk`", default = "normal", read = super::times::priority)]
    pub(crate) priority: Priority,
    /// The timeouts of streams and flows of the service.
    #[key(map)]
    pub(crate) timeouts: Times,
    /// The idle time before TCP keepalive probes to visitors and targets of the service.
    #[key("duration, 1s-9h, or 0", default = "2m", read = super::times::tcp_keepalive)]
    pub(crate) tcp_keepalive: Duration,
    /// What the packets to visitors and targets are like.
    #[key(flat)]
    pub(crate) dial: DialOptions,
    /// The health check of the targets of the service.
    #[key(map, none = "visitors find out")]
    pub(crate) health: Option<Check>,
    /// The addresses from which visitors may use the service.
    #[key("addresses, networks and `@FILE`, one or list", absent = "`allow_from` of the top",
        with = allow_from)]
    pub(crate) allow_from: Option<Networks>,
    /// The addresses from which visitors may not use the service.
    #[key("addresses, networks and `@FILE`, one or list", absent = "`deny_from` of the top",
        with = networks)]
    pub(crate) deny_from: Option<Networks>,
    /// The version of the PROXY protocol header that is sent to targets of the service.
    #[key("`v1`, `v2`", none = "no header")]
    pub(crate) proxy_protocol: Option<ProxyProtocol>,
    /// The Host header in requests to targets of the service.
    #[key("host, perhaps with a port", none = "the visitor's", read = host)]
    pub(crate) host_rewrite: Option<String>,
    /// Sets X-Forwarded-* and X-Real-IP headers in requests to targets of the service.
    #[key("`true`, `false`", absent = "`false` (`true` with an `https://` name)",
        read = values::switch)]
    pub(crate) forwarded: Option<bool>,
    /// The path at and below which the service takes requests.
    #[key("path", absent = "`/` (every request)", read = path)]
    pub(crate) path: Option<String>,
    /// The max-age of the Strict-Transport-Security header in responses over `https://`.
    #[key("duration, whole seconds", none = "the field is not sent", read = hsts)]
    pub(crate) hsts: Option<u32>,
    /// Compresses HTTP responses of the service for visitors that accept compression.
    #[key("`true`, `false`, `always`", default = "false", read = compress)]
    pub(crate) compress: Compress,
    /// Reads only the first HTTP request of a connection and passes on all later bytes.
    #[key("`true`, `false`", default = "false", read = values::switch)]
    pub(crate) pass_through: bool,
    /// Keeps the latest requests and responses of the service in the memory of the client.
    #[key("`true`, `false`", default = "false", read = values::switch)]
    pub(crate) requests: bool,
    /// Keeps the names of the service known to the server while the client is away.
    #[key("`true`, `false`", default = "true", read = values::switch)]
    pub(crate) remember: bool,
    /// The time at which the client withdraws the service.
    #[key("time in UTC, `2026-12-01T18:00:00Z`", none = "never")]
    pub(crate) until: Option<Moment>,
    /// The limits of streams and flows of the service.
    #[key(map)]
    pub(crate) limits: Limited,
    /// The rule that selects a target, or a client of a shared service, for a visitor.
    #[key(is = Balance::WORDS, default = "round_robin",
        read = rule)]
    pub(crate) balance: Balance,
    /// Shares the public addresses of the service with other clients and processes.
    #[key("`true`, `false`", default = "false", read = values::switch)]
    pub(crate) shared: bool,
    /// Keeps visitors at the target and client of the first request by a cookie.
    #[key("`cookie`, `false`", default = "false", read = sticky)]
    pub(crate) sticky: Sticky,
}

impl Written {
    /// The terms, without the options of HTTP.
    pub(crate) fn terms(&self) -> ServiceTerms {
        ServiceTerms {
            priority: self.priority,
            timeouts: Timeouts { keepalive: self.tcp_keepalive, ..self.timeouts.streams() },
            dscp: self.dial.dscp,
            ephemeral: !self.remember,
            flows: self.timeouts.flows(),
            shared: self.shared.then_some(self.balance),
            ..ServiceTerms::default()
        }
    }
}

/// The keys of `headers`.
#[derive(KeyTable)]
#[keys(rows)]
#[row(set: "map of names to values", none, holds = Fields,
    text = "The HTTP headers that are set in requests to targets of the service.")]
#[row(remove: "names of fields, one or list", none,
    text = "The HTTP headers that are removed from requests to targets of the service.")]
pub(crate) struct RequestEdits;

/// The keys of `response_headers`.
#[derive(KeyTable)]
#[keys(rows)]
#[row(set: "map of names to values", none, holds = Fields,
    text = "The HTTP headers that are set in responses to visitors of the service.")]
#[row(remove: "names of fields, one or list", none,
    text = "The HTTP headers that are removed from responses to visitors of the service.")]
pub(crate) struct ResponseEdits;

pub(crate) fn host(text: &str) -> Result<String, BadValue> {
    if !text.is_ascii() {
        let (host, port) = split(text)?;
        let host = host.parse::<Host>()?;
        return Ok(port.map_or_else(|| host.to_string(), |port| format!("{host}:{port}")));
    }
    match HttpOptions::check_host(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(_) => Err(BadValue::new(format!("`{text}` is no value of Host"))
            .hint("a host with an optional port: localhost:3000")),
    }
}

pub(crate) fn hsts(text: &str) -> Result<u32, BadValue> {
    let span = text.parse::<Span>()?.duration();
    if span.subsec_nanos() > 0 {
        let bad = BadValue::new(format!("`{text}` is no max-age"));
        return Err(bad.hint("whole seconds; 0 makes browsers forget the host"));
    }
    // A duration has at most ten years.
    Ok(u32::try_from(span.as_secs()).unwrap_or(u32::MAX))
}

pub(crate) fn compress(text: &str) -> Result<Compress, BadValue> {
    match text {
        "false" => Ok(Compress::Off),
        "true" => Ok(Compress::Public),
        "always" => Ok(Compress::Always),
        _ => Err(unknown(&format!("compress `{text}`"), text, &["true", "false", "always"])),
    }
}

pub(crate) fn sticky(text: &str) -> Result<Sticky, BadValue> {
    match text {
        "cookie" => Ok(Sticky::Client),
        "false" => Ok(Sticky::Off),
        _ => Err(unknown(&format!("sticky `{text}`"), text, &["cookie", "false"])),
    }
}

pub(crate) fn path(text: &str) -> Result<String, BadValue> {
    // `/api/` and `/api` cover the same requests.
    let path = match text.strip_suffix('/') {
        None | Some("") => text,
        Some(path) => path,
    };
    match HttpOptions::check_path(path) {
        Ok(()) => Ok(path.to_owned()),
        Err(why) => Err(BadValue::new(format!("`{text}` is no path of requests"))
            .hint(format!("{why}: /api takes /api and /api/v1"))),
    }
}

/// Parses `balance`.
pub(crate) fn rule(text: &str) -> Result<Balance, BadValue> {
    let bad = || unknown(&format!("balance `{text}`"), text, &Balance::ALL.map(Balance::name));
    Balance::of_name(text).ok_or_else(bad)
}

/// How the file of a list is read. A list of all networks with their countries has 20 MiB.
const LIST: Reading = Reading { most: READ_MAX, is_watched: true };

/// The keys whose lists of networks may name files.
const LIST_KEYS: [&str; 2] = ["allow_from", "deny_from"];

/// The files that the lists of networks in a tree name.
pub(crate) fn list_files(cx: &Cx<'_>, node: &Rc<Node>) -> Vec<PathBuf> {
    match &node.kind {
        Kind::Scalar { .. } => Vec::new(),
        Kind::List(items) => items.iter().flat_map(|item| list_files(cx, item)).collect(),
        Kind::Map(entries) => entries.iter().flat_map(|entry| files_of(cx, entry)).collect(),
    }
}

fn files_of(cx: &Cx<'_>, entry: &Entry) -> Vec<PathBuf> {
    if !LIST_KEYS.contains(&entry.key.as_str()) {
        return list_files(cx, &entry.value);
    }
    let list = Item { node: Rc::clone(&entry.value), path: String::new() };
    let file = |item: &Item| Some(split_file(cx.text(item)?.strip_prefix('@')?).0.into());
    cx.one_or_list(&list).iter().filter_map(file).collect()
}

/// Decodes `allow_from` and `deny_from`, of at most this number of networks each: a client sends
/// its lists to servers. The result is incomplete only after a problem was reported.
pub(crate) fn visitors(s: &Section<'_>, most: usize) -> VisitorLists {
    VisitorLists {
        allow_from: allowed(s, "allow_from", most),
        deny_from: list(s, "deny_from", most),
    }
}

/// Decodes `allow_from` of a service of a client.
pub(crate) fn allow_from(s: &Section<'_>, key: &str) -> Option<Networks> {
    allowed(s, key, NETWORKS_MAX)
}

/// Decodes `deny_from` of a service of a client.
pub(crate) fn networks(s: &Section<'_>, key: &str) -> Option<Networks> {
    list(s, key, NETWORKS_MAX)
}

/// Decodes a list of visitors that are let in, with a warning of an empty list.
fn allowed(s: &Section<'_>, key: &str, most: usize) -> Option<Networks> {
    let allow_from = list(s, key, most);
    if allow_from.as_ref().is_some_and(|list| list.is_empty())
        && let Some(item) = s.key(key)
    {
        let bad = BadValue::new("an empty list lets nobody visit");
        s.cx.warn(item.at(), &item.path, bad.hint("[0.0.0.0/0, \"::/0\"] lets everybody visit"));
    }
    allow_from
}

/// Decodes a list of at most this number of networks.
fn list(s: &Section<'_>, key: &str, most: usize) -> Option<Networks> {
    let items = s.cx.one_or_list(&s.key(key)?);
    let files = with_files(&items);
    let known = files.as_ref().and_then(|files| s.cx.files.list(files));
    if let Some(known) = known.filter(|known| known.len() <= most) {
        return Some(known);
    }
    let room = if files.is_some() { s.cx.files.room() } else { usize::MAX };
    let (mut all, mut long, mut is_whole) = (Vec::new(), None, true);
    for item in items {
        let read = |text: &str| match text.strip_prefix('@') {
            None => network(text).map(|one| vec![one]),
            Some(file) => {
                let networks = of_file(s.cx, item.at(), file)?;
                if networks.len() > most {
                    let what = format!("`{file}` has {} networks: ", networks.len());
                    let bad = unexpanded(BadValue::new(what), &item.node);
                    long.get_or_insert(bad.message);
                }
                Ok(networks)
            }
        };
        let networks = s.cx.value(&item, read);
        is_whole &= networks.is_some();
        all.extend(networks.unwrap_or_default());
        if all.len() > room {
            let what = format!("more than {LISTED_MAX} networks in all lists with files");
            let hint = "join neighbouring networks; lists with equal items count once";
            s.bad(key, BadValue::new(what).hint(hint));
            return None;
        }
    }
    if all.len() <= most {
        let all = Networks::from(all);
        if let Some(files) = files.filter(|_| is_whole) {
            s.cx.files.keep(files, &all);
        }
        return Some(all);
    }
    let what = long.unwrap_or_default();
    let bad = BadValue::new(format!("{what}more than {most} networks of a client's service"));
    s.bad(
        key,
        bad.hint(
            "join neighbouring networks; a long list belongs under `allow_from` or `deny_from` of \
             the server, or of a proxy",
        ),
    );
    None
}

/// The items of a list that may name a file, as written in the configuration file.
fn with_files(items: &[Item]) -> Option<Vec<String>> {
    let text = |item: &Item| match (&item.node.kind, item.at()) {
        (Kind::Scalar { text, .. }, At::Text { .. }) => Some(text.clone()),
        (Kind::Scalar { .. } | Kind::List(_) | Kind::Map(_), _) => None,
    };
    let texts: Option<Vec<String>> = items.iter().map(text).collect();
    let may_be_file = |text: &String| text.starts_with('@') || text.starts_with('$');
    texts.filter(|texts| texts.iter().any(may_be_file))
}

/// Reads the networks of `FILE` or `FILE:DE,AT`.
fn of_file(cx: &Cx<'_>, at: At, written: &str) -> Result<Vec<Network>, BadValue> {
    if matches!(at, At::Flag(_)) {
        return Err(BadValue::new("a file of networks belongs into a configuration file")
            .hint("write it there: allow_from: \"@FILE\""));
    }
    let (file, countries) = split_file(written);
    if file.is_empty() {
        return Err(BadValue::new("a file without a path").hint("for example \"@blocked.txt\""));
    }
    let text = cx.read(Path::new(file), LIST).map_err(|why| unreadable(file, &why))?;
    listed(text.reveal(), &countries).map_err(|bad| {
        let message = format!("`{file}`: {}", bad.message);
        BadValue { message, ..bad }
    })
}

/// The path and the countries of `FILE` or `FILE:DE,AT`.
fn split_file(written: &str) -> (&str, Vec<&str>) {
    let is_country = |code: &str| code.len() == 2 && code.bytes().all(|b| b.is_ascii_alphabetic());
    match written.rsplit_once(':') {
        Some((file, codes)) if codes.split(',').all(is_country) => {
            (file, codes.split(',').collect())
        }
        _ => (written, Vec::new()),
    }
}

fn network(text: &str) -> Result<Network, BadValue> {
    text.parse::<Net>().map(Net::network).map_err(|bad| match text.parse() {
        // The addresses of a name change without a change of this file.
        Ok(Host::Name(name)) => {
            BadValue::new(format!("`{name}` is a host name; visitors are listed by address"))
                .hint("for example 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32")
        }
        Ok(Host::Scoped(_)) => crate::endpoint::no_zone(text, "visitors are listed by address"),
        Ok(Host::Ip(_)) | Err(_) => bad,
    })
}

#[cfg(test)]
mod tests {
    use crate::Sources;
    use crate::files_read::FilesRead;

    use super::*;

    #[test]
    fn all_lists_with_files_together_have_a_bound() {
        let sources = Sources { env: &|_| None, read: &|_| Ok("10.0.0.1\n10.0.0.2\n".to_owned()) };
        let cx = Cx { files: Rc::new(FilesRead::with_room(3)), ..Cx::new("f", &sources) };
        let len = |list: &str| {
            let text = format!("allow_from: {list}");
            let node = crate::mistakes::parse("f", &text).unwrap();
            let section = Section::quiet(&cx, Item { node, path: String::new() }).unwrap();
            super::list(&section, "allow_from", usize::MAX).map(|list| list.len())
        };
        assert_eq!(len("'@a'"), Some(2));
        // An equal list shares its networks.
        assert_eq!(len("'@a'"), Some(2));
        assert_eq!(len("['@a', 10.0.0.3]"), None);
        assert_eq!(len("[10.0.0.3, 10.0.0.4]"), Some(2));
        let said = cx.problems.borrow().iter().map(ToString::to_string).collect::<String>();
        assert!(said.contains("allow_from: more than 4194304 networks in all lists"), "{said}");
    }
}

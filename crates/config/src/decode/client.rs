//! Decodes client.yaml.

use std::num::NonZeroUsize;

use proto::NETWORKS_MAX;
use proto::control::ServiceTerms;

use super::local::{self, Listeners};
use super::{broadcast, exit, found, private, servers, service, target, visit};
use crate::address::{HTTP_PROXY, SOCKS5, local};
use crate::key_table::{KeyMap, KeyPlace, KeyTable as _};
use crate::lists::{open_to_all, publishes_admin};
use crate::model::client::Retry;
use crate::model::limits::limits;
use crate::model::times::Times;
use crate::model::{
    Choose, ClientConfig, Common, Forward, KeptLists, Path, PathDefaults, PathSpread, Policy,
    ServerPaths, credentials, entry,
};
use crate::section::{Cx, Item, Section};
use crate::yaml::At;
use crate::{BadValue, Kept, Lists, Local, Net, Over, Role, Target, Trust, values};

/// The largest number of exits for any visitor that are reported. Finding the position of each
/// reads the whole list.
const OPEN_SHOWN: usize = 20;

/// The most homes of a client: the record of a client in a cluster has room for no more.
const HOMES: usize = 4;

/// The hint for a missing token where some paths have certificates, but certificates alone are not
/// enough.
const TOKEN_BESIDE: &str = "a certificate alone is enough where every server is tls://, quic:// or kcp:// and is shown one; \
                            else make a token with `tunnel generate token`";

/// Decodes the file. `None` only after a problem was reported.
pub(crate) fn client(cx: &Cx<'_>, root: Item) -> Option<ClientConfig> {
    let s = Section::open(cx, root, KeyMap { at: Some(KeyPlace::Client), ..ClientConfig::MAP })?;
    let servers = servers::servers(&s);
    let policy: Policy = s.parse("use").unwrap_or_default();
    let name = s.required("name", "the name of this client in the server's file", values::name);
    // A certificate proves the name only on its own TLS connection, and that connection may end at
    // a reverse proxy.
    let is_enough = |path: &Path| path.identity.is_some() && path.endpoint.scheme.binds_log_ins;
    let proves =
        |server: &servers::ReadServer| server.has_token || server.paths.paths.iter().all(is_enough);
    let is_found = s.has("servers_from") || s.has("srv");
    // The paths of servers that are found have the certificate of the top.
    let has_top = is_found && s.has("tls.cert");
    let by_certificate = has_top || !servers.is_empty() && servers.iter().all(proves);
    let mut paths = servers.iter().flat_map(|server| &server.paths.paths);
    let has_one = paths.any(|path| path.identity.is_some());
    let servers: Vec<_> = servers.into_iter().map(|server| server.paths).collect();
    let hint = if has_one { TOKEN_BESIDE } else { credentials::TOKEN_WANTED };
    let without = (!by_certificate).then_some(hint);
    let token = credentials::tokens(&s, 1, credentials::Kept::Plain, without).pop();
    let is_there = token.is_some() || !s.has("token") && !s.has("token_file");
    let (servers_from, srv, path_defaults) = found::source(&s, token.is_some());
    warn_of_servers(&s, (&servers, policy), (srv.is_some(), &path_defaults));
    let introduce = s.value("introduce", values::switch).unwrap_or_default();
    let id_prefix = s.value("id_prefix", values::name);
    let (Lists { services, mut forwards }, shadowed) = lists(&s, id_prefix.as_deref());
    let limits = limits::<ClientConfig>(&s).streams();
    let trusted_proxies: Vec<Net> = s.each("trusted_proxies", str::parse);
    for forward in forwards.iter_mut().filter(|forward| forward.accept_proxy) {
        forward.announced_by.clone_from(&trusted_proxies);
    }
    if trusted_proxies.is_empty() && forwards.iter().any(|forward| forward.accept_proxy) {
        visit::nobody_announces(s.cx, s.at());
    }
    let visitors = entry::visitors(&s, NETWORKS_MAX);
    let visits = private::visits(&s, &forwards);
    private::check(&s, &forwards, &visits);
    private::check_ways(&s, &forwards, &visits);
    private::check_identities(&s, has_one, &services, &forwards, &visits);
    let p2p = s.map_or_empty("p2p", ClientConfig::map("p2p"));
    let retry: Option<Retry> = s.map_or_empty("retry", ClientConfig::map("retry"));
    let (spread, choose) = use_of_paths(&s);
    let common = Common::of(&s, Role::Client);
    let (name, retry, p2p, common) = (name?, retry?, p2p?, common?);
    if !is_there {
        return None;
    }
    let mut config = ClientConfig {
        servers,
        servers_from,
        srv,
        path_defaults,
        policy,
        name,
        token,
        introduce,
        connections: values::count(&s, "connections"),
        homes: s.value("homes", homes).flatten(),
        spread,
        choose,
        id_prefix,
        visitors,
        services,
        forwards,
        visits,
        p2p,
        shadowed,
        retry_min: retry.min,
        retry_max: retry.max,
        trusted_proxies,
        limits,
        common,
    };
    let entry_of_own = |name: &str| entry_of(&s, name, config.id_prefix.as_deref());
    // The names of servers that are found are not known yet.
    if !is_found {
        servers::check_names(&s, &config, entry_of_own);
    }
    if let Err(bad) = config.expand().and_then(|()| config.check_sizes()) {
        s.bad("services", bad);
    }
    let prefix = config.id_prefix.as_deref();
    for service in config.open_exits().take(OPEN_SHOWN) {
        let item = entry_of(&s, &service.name, prefix).and_then(|item| Section::quiet(cx, item));
        match item {
            // After a problem with `basic_auth` there are no pairs.
            Some(entry) if entry.has("basic_auth") => {}
            Some(entry) => entry.bad("target", open_to_all(service)),
            None => s.bad("services", open_to_all(service)),
        }
    }
    for service in config.admin_services().take(OPEN_SHOWN) {
        let item = entry_of(&s, &service.name, prefix).and_then(|item| Section::quiet(cx, item));
        match item {
            Some(entry) => entry.bad("target", publishes_admin(service)),
            None => s.bad("services", publishes_admin(service)),
        }
    }
    Some(config)
}

/// Parses the number of homes. `None`: `auto`.
fn homes(text: &str) -> Result<Option<NonZeroUsize>, BadValue> {
    if text == "auto" {
        return Ok(None);
    }
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let count = text.parse().ok().filter(|count: &NonZeroUsize| is_number && count.get() <= HOMES);
    let bad = BadValue::new(format!("`{text}` is no number of homes"));
    count.map(Some).ok_or_else(|| bad.hint(format!("auto or 1 to {HOMES}")))
}

/// Warns of a policy without effect, and of a trust that DNS decides.
fn warn_of_servers(
    s: &Section<'_>,
    (servers, policy): (&[ServerPaths], Policy),
    (has_srv, defaults): (bool, &PathDefaults),
) {
    if policy.is_single() && servers.len() == 1 {
        let bad = BadValue::new("one server, so no other server can take over");
        let hint = "several servers have an entry each: servers: [{ name: fra, paths: [URL] }, …]";
        s.warn("use", bad.hint(hint));
    }
    if has_srv && matches!(defaults.tls.trust, Trust::System) {
        let bad = BadValue::new("DNS names the servers, and each has to prove only its own name");
        let hint = "who changes the DNS answer chooses the server: add `tls: { pin: … }` or `tls: \
                    { ca: … }` at the top";
        s.warn("srv", bad.hint(hint));
    }
}

/// How the links use the paths to a server.
fn use_of_paths(s: &Section<'_>) -> (PathSpread, Choose) {
    let spread = s.parse("spread").unwrap_or_default();
    let choose = s.parse("choose").unwrap_or_default();
    if choose == Choose::Measured && spread == PathSpread::ByStream {
        let bad = BadValue::new(format!("`measured` does not go together with `spread: {spread}`"));
        s.bad("choose", bad.hint("remove one of the two keys"));
    }
    (spread, choose)
}

/// The entry of `services` that defines the service of this name; of several entries the last,
/// which replaces the others.
fn entry_of(s: &Section<'_>, name: &str, prefix: Option<&str>) -> Option<Item> {
    let items = s.cx.one_or_list(&s.key("services")?);
    let cx = s.cx.again();
    let makes = |item: &Item| {
        let made = service::services_of(&cx, item.clone(), prefix);
        made.iter().any(|service| service.name == name)
    };
    items.into_iter().rev().find(makes).and_then(|item| service::filled_in(&cx, item))
}

/// Decodes `services` and `forwards`. The entries of flags are added to the entries of the file.
/// The second lists hold the entries of the file that a flag has replaced.
fn lists(s: &Section<'_>, prefix: Option<&str>) -> (Lists, Lists) {
    let [mut of_file, of_flags] = [false, true].map(|of_flags| {
        let [services, forwards] = ["services", "forwards"].map(|key| {
            let mut items = s.list(key);
            items.retain(|item| matches!(item.at(), At::Flag(_)) == of_flags);
            if of_flags {
                // Otherwise the index would count the entries of the file as well.
                let renumber = |(n, item): (usize, &mut Item)| item.path = format!("{key}[{n}]");
                items.iter_mut().enumerate().for_each(renumber);
            }
            items
        });
        let mut taken = Listeners::default();
        Lists {
            services: service::services(s, services, prefix),
            forwards: forwards.into_iter().filter_map(|i| forward(s.cx, i, &mut taken)).collect(),
        }
    });
    if of_flags.is_empty() {
        return (of_file, Lists::default());
    }
    let shadowed = of_file.add(of_flags);
    if let Err(bad) = of_file.check() {
        s.bad("services", bad);
    }
    (of_file, shadowed)
}

/// Decodes the lists that a client keeps in its state directory.
pub(crate) fn kept(cx: &Cx<'_>, root: Item, prefix: Option<&str>) -> Option<Kept> {
    let s = Section::open(cx, root, KeptLists::MAP)?;
    let without = s.one_or_list("without").iter().filter_map(|item| cx.text(item)).collect();
    let (mut lists, _) = lists(&s, prefix);
    lists.services.iter_mut().for_each(|service| service.kept = true);
    lists.forwards.iter_mut().for_each(|forward| forward.kept = true);
    Some(Kept { lists, without, saved: false })
}

/// Decodes a single forward. `None` after a problem.
pub(crate) fn forward_of(cx: &Cx<'_>, item: Item) -> Option<Forward> {
    forward(cx, item, &mut Listeners::default())
}

fn forward(cx: &Cx<'_>, item: Item, taken: &mut Listeners) -> Option<Forward> {
    let s = Section::open(cx, long(cx, item)?, ClientConfig::map("forwards"))?;
    let example = "for example tcp://127.0.0.1:5203";
    let mode = local::mode(&s);
    let listen = s.required("listen", example, |text| local(text, mode));
    if let Some(bad) = listen.as_ref().and_then(|listen| taken.take(listen, "forward")) {
        s.bad("listen", bad.hint("one forward per address"));
    }
    local::fit_mode(&s, listen.as_ref());
    if listen.as_ref().is_some_and(Local::is_proxy) {
        return proxy(&s, listen?);
    }
    if let Some(listen) = &listen {
        let hint = "it is for socks5:// and http-proxy://: remove it";
        s.no_effect("basic_auth", &format!(" at {listen}"), hint);
    }
    let over = match listen {
        Some(Local::Udp(_)) => Over::Udp,
        Some(Local::Tcp(_) | Local::Unix { .. } | Local::Socks5(_) | Local::HttpProxy(_))
        | None => Over::Tcp,
    };
    if listen.is_none() && is_proxy(&s) && !s.has("target") {
        return None;
    }
    let targets = target::target(&s, None)?;
    if !targets.others.is_empty() {
        let bad = BadValue::new("a forward has one target");
        s.bad("target", bad.hint("the server dials it: a service may have several targets"));
        return None;
    }
    let target = targets.first.one(over);
    if target.is_none() {
        let bad = BadValue::new("a forward has one port, not a range");
        s.bad("target", bad.hint("one forward per port"));
    }
    let accept_proxy = visit::accept_proxy(&s, listen.as_ref());
    let (listen, target) = (listen?, target?);
    if let Some(bad) = unfit(&listen, &target).or_else(|| broadcast::of_forward(&target, over)) {
        s.bad("target", bad);
    }
    if over == Over::Udp {
        let hint = "flows of a forward have the default times: remove it";
        s.no_effect("timeouts", &format!(" at {listen}"), hint);
    }
    Some(Forward { accept_proxy, ..of(&s, listen, Some(target)) })
}

/// A forward with the keys that any listener and target have.
fn of(s: &Section<'_>, listen: Local, target: Option<Target>) -> Forward {
    let (token, tls, p2p) = private::of_forward(s, target.as_ref());
    let server = server(s, target.as_ref());
    Forward {
        listen,
        target,
        token,
        tls,
        p2p,
        server,
        basic_auth: Vec::new(),
        terms: of_forward(s),
        accept_proxy: false,
        announced_by: Vec::new(),
        limits: limits::<Forward>(s).streams(),
        kept: false,
    }
}

/// Decodes the server that dials the target.
fn server(s: &Section<'_>, target: Option<&Target>) -> Option<String> {
    if let Some(target @ Target::Private(_)) = target {
        let hint = "the server that the forwards use leads to the other client: remove the key";
        s.no_effect("server", &format!(" with {target}"), hint);
        return None;
    }
    s.value("server", values::name)
}

/// Whether an address, even an otherwise invalid one, has the scheme of a proxy.
fn has_proxy_scheme(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| [SOCKS5, HTTP_PROXY].contains(&scheme))
}

/// The long form of an entry: `5203=5201` has the keys `listen` and `target`, and a proxy has only
/// `listen`.
fn long(cx: &Cx<'_>, item: Item) -> Option<Item> {
    let item = item.filled_in(cx)?;
    let is_proxy = |text: &str| !text.contains('=') && has_proxy_scheme(text);
    let is_proxy = item.node.text().is_some_and(is_proxy);
    Some(if is_proxy { item.keyed("listen") } else { item.long("listen", None) })
}

/// Whether `listen` has the scheme of a proxy.
fn is_proxy(s: &Section<'_>) -> bool {
    s.key("listen").is_some_and(|item| item.node.text().is_some_and(has_proxy_scheme))
}

/// Decodes a forward whose programs name what they want to reach.
fn proxy(s: &Section<'_>, listen: Local) -> Option<Forward> {
    let basic_auth = exit::users(s);
    if s.has("target") {
        let bad = BadValue::new(format!("the programs that use {listen} choose the targets"));
        s.bad("target", bad.hint("remove it, or listen on tcp:// with this target"));
        return None;
    }
    let is_local = listen.socket().is_none_or(|(_, at)| at.ip().to_canonical().is_loopback());
    if !is_local && !s.has("basic_auth") {
        let bad = BadValue::new("everybody who reaches this address can use the proxy");
        let hint = "add `basic_auth: \"user:password\"`, or listen on 127.0.0.1";
        s.warn("listen", bad.hint(hint));
    }
    let accept_proxy = visit::accept_proxy(s, Some(&listen));
    Some(Forward { basic_auth, accept_proxy, ..of(s, listen, None) })
}

/// The reason why a target does not fit the listener.
fn unfit(listen: &Local, target: &Target) -> Option<BadValue> {
    let bad = |why: String, hint: &str| Some(BadValue::new(why).hint(hint));
    let is_udp = matches!(listen, Local::Udp(_));
    match target {
        Target::Tcp { .. } | Target::Unix(_) if is_udp => bad(
            format!("{listen} takes datagrams, which {target} does not"),
            "for example udp://127.0.0.1:53",
        ),
        Target::Udp { .. } if !is_udp => bad(
            format!("{target} takes datagrams, and {listen} has none"),
            "listen on udp://127.0.0.1:5300, or write a tcp:// target",
        ),
        // Only the other client knows what the service carries.
        Target::Tcp { .. } | Target::Udp { .. } | Target::Unix(_) | Target::Private(_) => None,
        Target::Socks5 | Target::HttpProxy => bad(
            format!("the server is no proxy: `{target}` is for a service"),
            "listen on socks5:// or http-proxy:// without a target, and the server dials what \
             programs ask for",
        ),
        Target::Https { .. } | Target::H2c { .. } | Target::Tls { .. } => bad(
            format!("the server carries bytes for a forward: {target} is for a service"),
            "write tcp://host:port: the programs that connect speak HTTP or TLS themselves",
        ),
        Target::Redirect(_) => bad(
            format!("{target} is a redirect, which is for a service"),
            "a forward dials tcp://host:port, udp://host:port or unix:///path",
        ),
        Target::Files(_) => bad(
            format!("the server serves no files: {target} is for a service"),
            "a forward dials tcp://host:port, udp://host:port or unix:///path",
        ),
    }
}

/// Decodes the terms of a forward.
pub(super) fn of_forward(s: &Section<'_>) -> ServiceTerms {
    let times: Option<Times> = s.map("timeouts", Forward::map("timeouts"));
    let timeouts = times.map(|times| times.streams()).unwrap_or_default();
    ServiceTerms { timeouts, ..ServiceTerms::default() }
}

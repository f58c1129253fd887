//! Decodes client.yaml.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use proto::UnixAddr;

use super::keys::{CLIENT, FORWARD, KEPT, RETRY};
use super::taken::{Bind, Clash, Taken};
use super::{Cx, Item, Section, common, paths, service, values, visit};
use crate::endpoint::{HERE, tcp, unix};
use crate::model::{ClientConfig, Forward, Path};
use crate::yaml::At;
use crate::{BadValue, Host, Kept, Lists, Local, Span};

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
    let servers = paths::servers(&s);
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
    let id_prefix = s.value("id_prefix", values::name);
    let Lists { services, forwards } = lists(&s, id_prefix.as_deref());
    let visitors = visit::visitors(&s);
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
    let mut config = ClientConfig {
        servers,
        name,
        token,
        introduce,
        connections,
        id_prefix,
        visitors,
        services,
        forwards,
        retry_min,
        retry_max,
        common,
    };
    if let Err(bad) = config.expand().and_then(|()| config.check_sizes()) {
        s.bad("services", bad);
    }
    Some(config)
}

/// Decodes `services` and `forwards`. The entries of flags add to the entries of the file.
fn lists(s: &Section<'_>, prefix: Option<&str>) -> Lists {
    let [mut of_file, of_flags] = [false, true].map(|of_flags| {
        let [services, forwards] = ["services", "forwards"].map(|key| {
            let all = s.key(key).map(|item| s.cx.list(&item)).unwrap_or_default();
            let is_flag = |item: &Item| matches!(item.at(), At::Flag(_));
            let mut items: Vec<_> = all.into_iter().filter(|i| is_flag(i) == of_flags).collect();
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
        return of_file;
    }
    of_file.add(of_flags);
    if let Err(bad) = of_file.check() {
        s.bad("services", bad);
    }
    of_file
}

/// Decodes the lists that a client keeps in its state directory.
pub(crate) fn kept(cx: &Cx<'_>, root: Item, prefix: Option<&str>) -> Option<Kept> {
    let s = Section::open(cx, root, &KEPT)?;
    let without = s.key("without").map(|item| cx.one_or_list(&item)).unwrap_or_default();
    let without = without.iter().filter_map(|item| cx.text(item)).collect();
    let mut lists = lists(&s, prefix);
    lists.services.iter_mut().for_each(|service| service.kept = true);
    lists.forwards.iter_mut().for_each(|forward| forward.kept = true);
    Some(Kept { lists, without })
}

/// The addresses of the forwards that were decoded so far.
#[derive(Default)]
struct Listeners {
    tcp: Taken,
    unix: BTreeSet<UnixAddr>,
}

/// One forward alone. `None` after a problem.
pub(crate) fn forward_of(cx: &Cx<'_>, item: Item) -> Option<Forward> {
    forward(cx, item, &mut Listeners::default())
}

fn forward(cx: &Cx<'_>, item: Item, taken: &mut Listeners) -> Option<Forward> {
    // The short form is `5203=5201`.
    let s = Section::open(cx, item.long("listen", None), &FORWARD)?;
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
        let bad = BadValue::new("a forward has one port, not a range");
        s.bad("target", bad.hint("one forward per port"));
    }
    Some(Forward { listen: listen?, target: target?, kept: false })
}

fn listen_tcp(text: &str) -> Result<SocketAddr, BadValue> {
    match tcp(text, Some(HERE))? {
        (_, a, b) if a != b => {
            Err(BadValue::new("a forward has one port, not a range").hint("one forward per port"))
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

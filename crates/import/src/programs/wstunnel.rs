//! wstunnel, version 7 and later: the command line of a server or a client.

use config::edit::Value;

use super::flags::Grammar;
use crate::Options;
use crate::address::{at, bind, host_port, is_loopback, local, public, span, url};
use crate::finding::shown;
use crate::plan::{Client, Forward, Keys, Path, Plan, Service, set, text, texts_by_name};
use crate::section::{Book, Read, Section, fields};
use crate::table::{Row, already, lacks, to};

pub(super) const GRAMMAR: Grammar = Grammar {
    switches: &[
        "--tls-verify-certificate",
        "--tls-sni-disable",
        "--tls-ech-enable",
        "--websocket-mask-frame",
        "--dns-resolver-prefer-ipv4",
        "--no-color",
        "--help",
        "--version",
    ],
    aliases: &[
        ("-L", "--local-to-remote"),
        ("-R", "--remote-to-local"),
        ("-c", "--connection-min-idle"),
        ("-p", "--http-proxy"),
        ("-P", "--http-upgrade-path-prefix"),
        ("-H", "--http-headers"),
        ("-r", "--restrict-http-upgrade-path-prefix"),
        ("-f", "--websocket-ping-frequency-sec"),
        ("--websocket-ping-frequency", "--websocket-ping-frequency-sec"),
        ("-h", "--help"),
    ],
};

const ROUTE: &str = "it is a matter of the system's routing";

pub(super) const ROWS: &[Row] = &[
    to("role", "server.yaml or client.yaml"),
    to("arguments", "`listen`, `servers`"),
    to("--local-to-remote", "`forwards`"),
    to("--remote-to-local", "`services`"),
    already("--connection-min-idle", "many streams share a link: there is no pool"),
    to("--tls-sni-override", "`servers[].sni`"),
    lacks("--tls-sni-disable", "the name is always sent", "`servers[].sni`"),
    lacks("--tls-ech-enable", "there is no encrypted ClientHello", "`servers[].sni`"),
    already("--tls-verify-certificate", "the server is always verified: the client pins its key"),
    to("--tls-certificate", "`tls.cert`"),
    to("--tls-private-key", "`tls.key`"),
    to("--tls-client-ca-certs", "`tls.client_ca`"),
    to("--http-proxy", "`proxy`"),
    lacks(
        "--http-proxy-login",
        "a proxy has its password in its URL",
        "`proxy: http://user:password@host:port`",
    ),
    lacks(
        "--http-proxy-password",
        "a proxy has its password in its URL",
        "`proxy: http://user:password@host:port`",
    ),
    to("--http-upgrade-path-prefix", "the path of `servers`"),
    to(
        "--restrict-http-upgrade-path-prefix",
        "the path of `listen`; who may log in is decided by tokens",
    ),
    lacks(
        "--http-upgrade-credentials",
        "clients log in by tokens",
        "`headers: { Authorization: … }` for a reverse proxy",
    ),
    to("--http-headers", "`headers`"),
    lacks("--http-headers-file", "fields are in the file of the client", "`headers`"),
    to("--websocket-ping-frequency-sec", "`keepalive`"),
    already("--websocket-mask-frame", "frames of clients are masked as RFC 6455 asks"),
    to("--reverse-tunnel-connection-retry-max-backoff", "`retry.max`"),
    to("--restrict-to", "`clients[].allow.forward`"),
    lacks(
        "--restrict-config",
        "each client has its rights in the file of the server",
        "`clients[].allow`",
    ),
    lacks("--dns-resolver", "names are looked up as the system does", "/etc/resolv.conf"),
    lacks(
        "--dns-resolver-prefer-ipv4",
        "all addresses of a name race",
        "`no-aaaa` in /etc/resolv.conf",
    ),
    lacks("--socket-so-mark", ROUTE, "a rule of nftables"),
    to("--nb-worker-threads", "`workers`"),
    to("--log-lvl", "`log.level`"),
    already("--no-color", "colours are for terminals alone, and `NO_COLOR` is obeyed"),
    already("--help", "it changes nothing"),
    already("--version", "it changes nothing"),
];

pub(super) fn map(sources: &[Read], options: &Options, book: &Book, plan: &mut Plan) {
    // The server's restrictions apply to every client.
    let mut only: Vec<String> = Vec::new();
    for source in sources {
        let section = source.section(book);
        match section.text("role") {
            Some("server") => server(&section, plan, &mut only),
            Some("client") => {
                let wanted = options.name.as_deref().filter(|_| plan.clients.is_empty());
                client(&section, plan.client(wanted, &source.name));
            }
            _ => section.note("neither `wstunnel server` nor `wstunnel client`", ""),
        }
    }
    if only.is_empty() {
        return;
    }
    plan.server.to_come.forward.clone_from(&only);
    for forward in plan.clients.iter_mut().flat_map(|client| &mut client.forwards) {
        // A proxy reaches only what the server allows.
        if !forward.reaches.is_empty() {
            forward.reaches.clone_from(&only);
        }
    }
}

fn server(section: &Section<'_>, plan: &mut Plan, only: &mut Vec<String>) {
    let server = &mut plan.server;
    server.sources.push(section.source.name.clone());
    let prefix = section.last("--restrict-http-upgrade-path-prefix");
    let path = prefix.map(|prefix| format!("/{}", prefix.trim_matches('/'))).unwrap_or_default();
    for listen in section.words("arguments") {
        let Some(parts) = url(listen) else { continue };
        let port = parts.port.unwrap_or(if parts.scheme == "ws" { 80 } else { 443 });
        server.listen.push(format!("wss://{}{path}", at(bind(&parts.host), port)));
    }
    if let (Some(cert), Some(key)) =
        (section.last_path("--tls-certificate"), section.last_path("--tls-private-key"))
    {
        server.identity = Some((cert, key));
    }
    if let Some(ca) = section.last_path("--tls-client-ca-certs") {
        set(&mut server.keys, "tls.client_ca", text(ca));
    }
    for place in section.words("--restrict-to") {
        if let Some((host, port)) = host_port(place) {
            only.push(at(local(&host), port));
        }
    }
    common(section, &mut server.keys);
}

fn common(section: &Section<'_>, keys: &mut Keys) {
    if let Some(span) = section.last("--websocket-ping-frequency-sec").and_then(span)
        && span != "0s"
    {
        set(keys, "keepalive", text(span));
    }
    if let Some(workers) = section.last("--nb-worker-threads").and_then(|n| n.parse::<u16>().ok())
        && (1..=1024).contains(&workers)
    {
        set(keys, "workers", Value::Number(workers.to_string()));
    }
    if let Some(level) = section.last("--log-lvl") {
        let known = ["trace", "debug", "info", "warn", "error"];
        let found = known.into_iter().find(|known| level.eq_ignore_ascii_case(known));
        set(keys, "log.level", text(found.unwrap_or("info")));
    }
}

fn client(section: &Section<'_>, client: &mut Client) {
    let prefix = section.last("--http-upgrade-path-prefix");
    for server in section.words("arguments") {
        let Some(parts) = url(server) else { continue };
        let port = parts.port.unwrap_or(if parts.scheme == "ws" { 80 } else { 443 });
        let mut path = Path::new("wss", parts.host, port);
        path.path = prefix.map(|p| format!("/{}", p.trim_matches('/'))).unwrap_or_default();
        path.sni = section.last("--tls-sni-override").map(str::to_owned);
        client.servers.push(path);
    }
    if let (Some(cert), Some(key)) =
        (section.last_path("--tls-certificate"), section.last_path("--tls-private-key"))
    {
        client.identity = Some((cert, key));
    }
    if let Some(proxy) = section.last("--http-proxy") {
        let proxy =
            if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") };
        set(&mut client.keys, "proxy", text(proxy));
    }
    let back_off = section.last("--reverse-tunnel-connection-retry-max-backoff").and_then(span);
    if let Some(span) = back_off.filter(|span| span != "0s") {
        set(&mut client.keys, "retry.max", text(span));
    }
    let pairs = fields(&section.words("--http-headers"));
    if !pairs.is_empty() {
        set(&mut client.keys, "headers", texts_by_name(&pairs));
    }
    common(section, &mut client.keys);
    for (key, is_reverse) in [("--local-to-remote", false), ("--remote-to-local", true)] {
        for (line, written) in section.lines(key) {
            // The options of a proxy contain its password.
            let place = written.split('?').next().unwrap_or(written);
            let note = |why: &str, near: &str| section.note_word(line, place, why, near);
            if let Err(why) = tunnel(&note, written, is_reverse, client) {
                note(why, if is_reverse { "`services`" } else { "`forwards`" });
            }
        }
    }
}

/// Reports why a word has no counterpart, and the nearest thing.
type Note<'a> = dyn Fn(&str, &str) + 'a;

/// A tunnel: `tcp://[BIND:]PORT:HOST:PORT?options`.
fn tunnel(
    note: &Note<'_>,
    written: &str,
    is_reverse: bool,
    client: &mut Client,
) -> Result<(), &'static str> {
    const WRONG: &str = "it is not understood";
    let (scheme, rest) = written.split_once("://").ok_or(WRONG)?;
    let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
    let proxy = match scheme {
        "socks5" | "socks" => Some("socks5"),
        "http" => Some("http-proxy"),
        _ => None,
    };
    if let Some(kind) = proxy {
        let (host, port) = host_port(rest).ok_or(WRONG)?;
        return proxied(note, kind, (&host, port), options, is_reverse, client);
    }
    unknown(note, options.split('&'));
    let over = match scheme {
        "tcp" => "tcp",
        "udp" => "udp",
        "stdio" => {
            let (host, port) = host_port(rest).ok_or(WRONG)?;
            client.rights.forward.push(at(local(&host), port));
            return Err("a connection of standard input is a command: `tunnel connect HOST:PORT`");
        }
        "unix" if !is_reverse => {
            let (path, target) = rest.split_once(':').ok_or(WRONG)?;
            let (host, port) = host_port(target).ok_or(WRONG)?;
            let target = Some(format!("tcp://{}", at(local(&host), port)));
            let listen = format!("unix://{path}");
            client.forwards.push(Forward { listen, target, ..Forward::default() });
            return Ok(());
        }
        _ => return Err("this kind of tunnel has no counterpart"),
    };
    let (near, far_host, far) = ends(rest).ok_or(WRONG)?;
    let (host, port) = host_port(&near).ok_or(WRONG)?;
    let target = format!("{over}://{}", at(local(&far_host), far));
    if is_reverse {
        let service = Service::new(format!("{over}-{port}"), target, public(over, &host, port));
        client.publish(service);
    } else {
        let host = if host.is_empty() { "127.0.0.1" } else { &host };
        let listen = format!("{over}://{}", at(bind(host), port));
        client.forwards.push(Forward { listen, target: Some(target), ..Forward::default() });
    }
    Ok(())
}

/// Reports options that have no equivalent here.
fn unknown<'a>(note: &Note<'_>, options: impl Iterator<Item = &'a str>) {
    for option in options.filter(|option| !option.is_empty()) {
        match option.split('=').next().unwrap_or_default() {
            "proxy_protocol" => {
                let why = "a header of the PROXY protocol is sent by services alone";
                note(why, "`proxy_protocol` of a service");
            }
            "timeout_sec" => {
                let why = "an idle flow of UDP ends after 120 s";
                note(why, "`timeouts.flow` of a service");
            }
            name => {
                let why = format!("the option `{}` of the tunnel has no counterpart", shown(name));
                note(&why, "");
            }
        }
    }
}

/// The user name and the password of a proxy, `login=…&password=…`.
fn password(options: &str) -> Result<Option<String>, &'static str> {
    const ODD: &str =
        "a proxy needs a user and a password without `%` and `+` here; no proxy is written";
    let of = |key| options.split('&').find_map(|option| option.strip_prefix(key));
    let plain = |text: &str| !text.is_empty() && !text.contains(['%', '+']);
    match (of("login="), of("password=")) {
        (None, None) => Ok(None),
        (Some(user), Some(word)) if plain(user) && plain(word) && !user.contains(':') => {
            Ok(Some(format!("{user}:{word}")))
        }
        _ => Err(ODD),
    }
}

/// The local end, and the remote host and port.
fn ends(text: &str) -> Option<(String, String, u16)> {
    let (rest, port) = text.rsplit_once(':')?;
    let port = port.parse().ok()?;
    if let Some(begin) = rest.rfind('[').filter(|_| rest.ends_with(']')) {
        let near = rest.get(..begin)?.strip_suffix(':')?;
        return Some((near.to_owned(), rest.get(begin + 1..rest.len() - 1)?.to_owned(), port));
    }
    let (near, host) = rest.rsplit_once(':')?;
    Some((near.to_owned(), host.to_owned(), port))
}

fn proxied(
    note: &Note<'_>,
    kind: &str,
    (host, port): (&str, u16),
    options: &str,
    is_reverse: bool,
    client: &mut Client,
) -> Result<(), &'static str> {
    let pair = password(options)?;
    let is_pair = |option: &&str| option.starts_with("login=") || option.starts_with("password=");
    unknown(note, options.split('&').filter(|option| !is_pair(option)));
    let mut keys = Keys::new();
    if let Some(pair) = &pair {
        set(&mut keys, "basic_auth", text(pair));
    }
    if is_reverse {
        let near = if pair.is_some() { host } else { "127.0.0.1" };
        let service = Service::new(kind, kind, public("tcp", near, port));
        client.publish(Service { keys, ..service });
        if pair.is_none() && !is_loopback(host) {
            let why = "a proxy without a password is not published: programs on the server alone \
                       use it";
            note(why, "`basic_auth`, `allow_from`");
        }
        return Ok(());
    }
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    let listen = format!("{kind}://{}", at(bind(host), port));
    let reaches = vec!["*:*".to_owned()];
    client.forwards.push(Forward { listen, reaches, keys, ..Forward::default() });
    Ok(())
}

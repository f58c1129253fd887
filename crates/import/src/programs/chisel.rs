//! chisel: the command line of a server or a client.

use super::flags::Grammar;
use crate::Options;
use crate::address::{at, bind, host_port, is_loopback, public, span, url};
use crate::plan::{Client, Forward, Path, Plan, Service, set, text, texts_by_name};
use crate::section::{Book, Read, Section, fields};
use crate::table::{Row, already, lacks, to};

pub(super) const GRAMMAR: Grammar = Grammar {
    switches: &["--reverse", "--socks5", "--pid", "--verbose", "--tls-skip-verify", "--help"],
    aliases: &[("-p", "--port"), ("-v", "--verbose"), ("-h", "--help")],
};

pub(super) const ROWS: &[Row] = &[
    to("role", "server.yaml or client.yaml"),
    to("arguments", "`servers`; `services` for remotes with `R:`, `forwards` for the others"),
    to("--host", "`listen`"),
    to("--port", "`listen`"),
    already("--key", "the certificate of the server has the key"),
    lacks("--keyfile", "the certificate of the server has another kind of key", "`tls.key`"),
    lacks(
        "--authfile",
        "each client has its rights in the file of the server",
        "`clients[].allow.forward`, `clients[].allow.tcp`",
    ),
    to("--auth", "`name` and `token`: a new one, as a hash on the server"),
    to("--keepalive", "`keepalive`"),
    lacks(
        "--backend",
        "a request that is no WebSocket of a client gets a 404",
        "a reverse proxy in front, or a `mux://` listener with `default`",
    ),
    to("--socks5", "`clients[].allow.forward` of clients with a `socks` remote"),
    to("--reverse", "`clients[].allow.tcp`: the ports of each client"),
    to("--tls-key", "`tls.key`"),
    to("--tls-cert", "`tls.cert`"),
    lacks(
        "--tls-domain",
        "the certificate of the tunnel is a file",
        "`tls.cert`; names of services have `tls_routes.acme`",
    ),
    to("--tls-ca", "`tls.client_ca` of the server, `tls.ca` of the client"),
    lacks("--ldap-config", "clients are known by their tokens", "`auth.http` asks a program"),
    to("--fingerprint", "`tls.pin`: that of the new server"),
    already("--max-retry-count", "a client tries again until it is stopped"),
    to("--max-retry-interval", "`retry.max`"),
    to("--proxy", "`proxy`"),
    to("--header", "`headers`"),
    lacks("--hostname", "the field Host is that of `servers`", "`servers[].sni`"),
    to("--sni", "`servers[].sni`"),
    already("--tls-skip-verify", "the client pins the key of the server"),
    lacks(
        "--pid",
        "there is no file with the number of the process",
        "the units of `tunnel install`",
    ),
    to("--verbose", "`log.level: debug`"),
    already("--help", "it changes nothing"),
];

pub(super) fn map(sources: &[Read], options: &Options, book: &Book, plan: &mut Plan) {
    for source in sources {
        let section = source.section(book);
        match section.text("role") {
            Some("server") => server(&section, plan),
            Some("client") => {
                let user = section.texts("--auth").first().and_then(|auth| auth.split(':').next());
                let wanted = options.name.as_deref().filter(|_| plan.clients.is_empty()).or(user);
                client(&section, plan.client(wanted.filter(|name| !name.is_empty()), &source.name));
            }
            _ => section.note("neither `chisel server` nor `chisel client`", ""),
        }
    }
}

fn server(section: &Section<'_>, plan: &mut Plan) {
    let server = &mut plan.server;
    server.sources.push(section.source.name.clone());
    let port = section.last("--port").and_then(|port| port.parse().ok()).unwrap_or(8080);
    let host = section.last("--host").unwrap_or("0.0.0.0");
    server.listen.push(format!("wss://{}", at(bind(host), port)));
    if let (Some(cert), Some(key)) =
        (section.last_path("--tls-cert"), section.last_path("--tls-key"))
    {
        server.identity = Some((cert, key));
    }
    if let Some(ca) = section.last_path("--tls-ca") {
        set(&mut server.keys, "tls.client_ca", text(ca));
    }
    for key in ["--reverse", "--socks5", "--auth"] {
        section.words(key);
    }
    common(section, &mut server.keys);
}

fn common(section: &Section<'_>, keys: &mut crate::plan::Keys) {
    if let Some(span) = section.last("--keepalive").and_then(span).filter(|span| span != "0s") {
        set(keys, "keepalive", text(span));
    }
    if section.last("--verbose").is_some() {
        set(keys, "log.level", text("debug"));
    }
}

fn client(section: &Section<'_>, client: &mut Client) {
    section.words("--auth");
    section.words("--fingerprint");
    let mut arguments = section.lines("arguments").into_iter();
    if let Some(parts) = arguments.next().and_then(|(_, server)| url(server)) {
        let port = parts.port.unwrap_or(if parts.scheme == "https" { 443 } else { 80 });
        let mut path = Path::new("wss", parts.host, port);
        path.path = parts.path.trim_end_matches('/').to_owned();
        path.sni = section.last("--sni").map(str::to_owned);
        client.servers.push(path);
    }
    client.ca = section.last_path("--tls-ca");
    if let (Some(cert), Some(key)) =
        (section.last_path("--tls-cert"), section.last_path("--tls-key"))
    {
        client.identity = Some((cert, key));
    }
    if let Some(proxy) = section.last("--proxy") {
        set(&mut client.keys, "proxy", text(proxy.replace("socks://", "socks5://")));
    }
    if let Some(span) = section.last("--max-retry-interval").and_then(span).filter(|s| s != "0s") {
        set(&mut client.keys, "retry.max", text(span));
    }
    let pairs = fields(&section.words("--header"));
    if !pairs.is_empty() {
        set(&mut client.keys, "headers", texts_by_name(&pairs));
    }
    common(section, &mut client.keys);
    for (line, written) in arguments {
        let note = |why: &str, near: &str| section.note_word(line, written, why, near);
        if remote(&note, written, client).is_none() {
            note("the remote is not understood", "`services`, `forwards`");
        }
    }
}

/// The parts of a remote between colons; brackets enclose an IPv6 address.
fn parts(text: &str) -> Vec<String> {
    let (mut parts, mut inside) = (vec![String::new()], false);
    for c in text.chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            ':' if !inside => parts.push(String::new()),
            c => {
                if let Some(part) = parts.last_mut() {
                    part.push(c);
                }
            }
        }
    }
    parts
}

/// Reports why a word has no counterpart, and the nearest thing.
type Note<'a> = dyn Fn(&str, &str) + 'a;

fn remote(note: &Note<'_>, written: &str, client: &mut Client) -> Option<()> {
    let (is_reverse, rest) = match written.strip_prefix("R:") {
        Some(rest) => (true, rest),
        None => (false, written),
    };
    let (rest, over) = match rest.strip_suffix("/udp") {
        Some(rest) => (rest, "udp"),
        None => (rest.strip_suffix("/tcp").unwrap_or(rest), "tcp"),
    };
    let mut parts = parts(rest);
    if parts.first().is_some_and(|part| part == "stdio") {
        let target = host_port(&parts.split_off(1).join(":"));
        let (host, port) = target?;
        client.rights.forward.push(reachable(&host, port));
        let near = format!("tunnel connect {}", at(&host, port));
        note("a connection of standard input is a command", &near);
        return Some(());
    }
    let is_socks = parts.last().is_some_and(|part| part == "socks");
    if is_socks {
        parts.pop();
        let (host, port) = match parts.as_slice() {
            [] => (String::new(), 1080),
            [port] => (String::new(), port.parse().ok()?),
            [host, port] => (host.clone(), port.parse().ok()?),
            _ => return None,
        };
        socks(note, is_reverse, &host, port, client);
        return Some(());
    }
    let port = |text: &String| text.parse::<u16>().ok();
    let (near_host, near, far_host, far) = match parts.as_slice() {
        [far] => (String::new(), port(far)?, String::new(), port(far)?),
        [one, far] => match port(one) {
            Some(near) => (String::new(), near, String::new(), port(far)?),
            None => (String::new(), port(far)?, one.clone(), port(far)?),
        },
        [one, host, far] => match port(one) {
            Some(near) => (String::new(), near, host.clone(), port(far)?),
            None => (one.clone(), port(host)?, String::new(), port(far)?),
        },
        [near_host, near, far_host, far] => {
            (near_host.clone(), port(near)?, far_host.clone(), port(far)?)
        }
        _ => return None,
    };
    let target = format!("{over}://{}", at(crate::address::local(&far_host), far));
    if is_reverse {
        let name = format!("{over}-{near}");
        client.publish(Service::new(name, target, public(over, &near_host, near)));
    } else {
        let host = if near_host.is_empty() { "0.0.0.0" } else { &near_host };
        let listen = format!("{over}://{}", at(bind(host), near));
        client.forwards.push(Forward { listen, target: Some(target), ..Forward::default() });
    }
    Some(())
}

fn reachable(host: &str, port: u16) -> String {
    at(crate::address::local(host), port)
}

fn socks(note: &Note<'_>, is_reverse: bool, host: &str, port: u16, client: &mut Client) {
    if is_reverse {
        let is_open = !host.is_empty() && !is_loopback(host);
        let public = format!("tcp://127.0.0.1:{port}");
        client.publish(Service::new("socks5", "socks5", public));
        if is_open {
            let why = "a proxy without a password is not published: programs on the server alone \
                       use it";
            note(why, "`basic_auth`, `allow_from`");
        }
        return;
    }
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    let listen = format!("socks5://{}", at(bind(host), port));
    let reaches = vec!["*:*".to_owned()];
    client.forwards.push(Forward { listen, reaches, ..Forward::default() });
}

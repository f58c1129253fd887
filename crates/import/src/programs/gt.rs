//! GT: `options` with `users` on the server and `services` on the client.

use config::edit::Value;

use crate::Options;
use crate::address::{at, bind, host_port, label, local, name, span, url};
use crate::plan::{Client, Keys, Path, Plan, Rights, Service, domain, rate, set, text};
use crate::section::{Book, Read, Section};
use crate::table::{Row, already, lacks, to};
use crate::tree::Node;

const SENTRY: &str = "the program reports nothing to anybody";
const WEB: &str = "the web console is a part of the admin API, without a password";
const P2P: &str = "direct paths are for private services of two clients";

pub(super) const ROWS: &[Row] = &[
    already("version", "it is that of the file"),
    already("type", "a file is known by its content"),
    // The server.
    to("options.addr", "`listen: mux://…`: carriers, HTTP and TLS by name on one port"),
    to("options.tlsAddr", "`listen: mux://…`"),
    to("options.sniAddr", "`tls_routes.listen`"),
    to("options.quicAddr", "`listen: quic://…`"),
    already("options.tlsVersion", "the link is TLS 1.3"),
    to("options.certFile", "`tls.cert`"),
    to("options.keyFile", "`tls.key`"),
    already("options.bbr", "`quic.congestion: bbr` is the default"),
    lacks(
        "options.users",
        "accounts are in the file of the server",
        "give that file's `users` as a part of this one",
    ),
    lacks("options.authAPI", "the answer has another form", "`auth.http`"),
    lacks(
        "options.allowAnyClient",
        "a server names its clients, unless `allow_any_client` is set",
        "`allow_any_client`, with `introduce: true` of the clients",
    ),
    to("options.tcpNumber", "`clients[].limits.ports`"),
    to("options.speed", "`clients[].limits.up` and `down` of all clients"),
    already("options.connections", "a client has as many links as it asks for"),
    already("options.reconnectTimes", "attempts of an address are slowed down"),
    already("options.reconnectDuration", "attempts of an address are slowed down"),
    to("options.hostNumber", "`clients[].limits.hosts`"),
    to("options.httpMUXHeader", "`http.route_header`"),
    already("options.maxHandShakeOptions", "messages are bounded"),
    already("options.timeout", "`keepalive` pings each link"),
    already("options.timeoutOnUnidirectionalTraffic", "`keepalive` pings each link"),
    to("options.apiAddr", "`admin.listen`"),
    lacks(
        "options.apiCertFile",
        "the admin API has no TLS of its own",
        "a reverse proxy in front of `admin.listen`",
    ),
    lacks(
        "options.apiKeyFile",
        "the admin API has no TLS of its own",
        "a reverse proxy in front of `admin.listen`",
    ),
    already("options.apiTLSVersion", "the admin API has no TLS of its own"),
    to("options.stunAddr", "`stun`"),
    already("options.stunLogLevel", "the log has one level"),
    to("users.*.secret", "`token`: a new one, as a hash on the server"),
    to("users.*.tcp[].range", "`clients[].allow.tcp`"),
    to("users.*.tcpNumber", "`clients[].limits.ports`"),
    to("users.*.speed", "`clients[].limits.up` and `down`"),
    already("users.*.connections", "a client has as many links as it asks for"),
    to("users.*.host.number", "`clients[].limits.hosts`"),
    to("users.*.host.regex", "`clients[].allow.http: /…/`"),
    lacks("users.*.host.withID", "a name is written as a whole", "`http://{name}.example.com`"),
    to("tcp[].range", "`clients[].allow.tcp` of all clients"),
    lacks("host.**", "hosts are rights of each client", "`clients[].allow.http`, `limits.hosts`"),
    // The client.
    to("options.id", "`name`"),
    to("options.secret", "`token`: a new one, as a hash on the server"),
    to("options.remote", "`servers`"),
    lacks(
        "options.remoteAPI",
        "its answer, `serverAddress`, is not the answer that `servers_from` reads",
        "`servers_from: URL`, where the answer is {\"servers\": [\"tls://HOST:PORT\"]}",
    ),
    to("options.remoteSTUN", "`p2p.stun`"),
    to("options.remoteCert", "`tls.ca`"),
    already("options.remoteCertInsecure", "the client pins the key of the server"),
    to("options.remoteConnections", "`connections`"),
    already("options.remoteIdleConnections", "links stay"),
    already("options.remoteTimeout", "`keepalive` pings each link"),
    to("options.reconnectDelay", "`retry.max`"),
    lacks("options.webrtcConnections", P2P, "`p2p`, private services"),
    lacks("options.webrtcConnectionIdleTimeout", P2P, "`p2p`, private services"),
    lacks("options.webrtcMinPort", P2P, "`p2p.ports`"),
    lacks("options.webrtcMaxPort", P2P, "`p2p.ports`"),
    lacks("options.webrtcLogLevel", P2P, ""),
    lacks("options.webrtcThreadMode", P2P, ""),
    lacks("options.tcpForwardAddr", P2P, "a forward to `service://CLIENT/SERVICE`"),
    lacks("options.tcpForwardHostPrefix", P2P, "a forward to `service://CLIENT/SERVICE`"),
    lacks("options.tcpForwardConnections", P2P, "a forward to `service://CLIENT/SERVICE`"),
    to("services[].local", "`services[].target`"),
    to("services[].hostPrefix", "`services[].public`, with --domain behind it"),
    to("services[].remoteTCPPort", "`services[].public: tcp://:PORT`"),
    to("services[].remoteTCPRandom", "`services[].public: tcp://:0`"),
    to("services[].localTimeout", "`services[].timeouts.idle`"),
    to("services[].useLocalAsHTTPHost", "`services[].host_rewrite`"),
    // Both.
    to("options.logLevel", "`log.level`"),
    to("options.logFile", "`log.file`"),
    lacks("options.logFileMaxSize", "the number is in bytes there", "`log.rotate.size`"),
    to("options.logFileMaxCount", "`log.rotate.keep`"),
    already("options.sentryDSN", SENTRY),
    already("options.sentryLevel", SENTRY),
    already("options.sentrySampleRate", SENTRY),
    already("options.sentryRelease", SENTRY),
    already("options.sentryEnvironment", SENTRY),
    already("options.sentryServerName", SENTRY),
    already("options.sentryDebug", SENTRY),
    lacks("options.webAddr", WEB, "`admin.listen`, `tunnel console`"),
    lacks("options.webCertFile", WEB, ""),
    lacks("options.webKeyFile", WEB, ""),
    lacks("options.admin", WEB, "`admin.token_file`"),
    lacks("options.password", WEB, "`admin.token_file`"),
    lacks("options.signingKey", WEB, ""),
    lacks("options.pprof", "there is no pprof", "`/metrics`"),
];

pub(super) fn fits(root: &Node) -> bool {
    let option = |key: &str| root.has(&format!("options.{key}"));
    let services = root.entry("services");
    let local = services.is_some_and(|entry| entry.node.items().any(|item| item.has("local")));
    local
        || (root.has("users") && (root.has("options") || root.has("version")))
        || ["remote", "addr", "tlsAddr", "sniAddr", "quicAddr"].iter().any(|key| option(key))
}

pub(super) fn map(sources: &[Read], options: &Options, book: &Book, plan: &mut Plan) {
    for source in sources {
        let section = source.section(book);
        let has = |key: &str| section.has(key);
        if has("services") || has("options.remote") || has("options.remoteAPI") {
            let id = section.text("options.id");
            let wanted = options.name.as_deref().filter(|_| plan.clients.is_empty()).or(id);
            let client = plan.client(wanted, &source.name);
            head(&section, client);
            let first = client.name.to_ascii_lowercase();
            for service in section.sections("services") {
                if let Some(service) = of_service(&service, &first, domain(options)) {
                    client.publish(service);
                }
            }
        } else {
            server(&section, plan);
        }
    }
}

/// `80`, `:80` or `0.0.0.0:80`.
fn place(section: &Section<'_>, key: &str) -> Option<String> {
    let (host, port) = section.text(key).and_then(host_port)?;
    Some(at(bind(&host), port))
}

fn server(section: &Section<'_>, plan: &mut Plan) {
    let server = &mut plan.server;
    server.sources.push(section.source.name.clone());
    for key in ["options.addr", "options.tlsAddr"] {
        let place = place(section, key);
        server.listen.extend(place.map(|place| format!("mux://{place}")));
    }
    server.listen.extend(place(section, "options.quicAddr").map(|place| format!("quic://{place}")));
    server.tls_routes.extend(place(section, "options.sniAddr"));
    let pair = (section.path("options.certFile"), section.path("options.keyFile"));
    if let (Some(cert), Some(key)) = pair {
        server.identity = Some((cert, key));
    }
    if let Some(header) = section.text("options.httpMUXHeader").filter(|header| *header != "Host") {
        set(&mut server.keys, "http.route_header", text(header));
    }
    server.admin = place(section, "options.apiAddr");
    if let Some((_, port)) = section.text("options.stunAddr").and_then(host_port) {
        set(&mut server.keys, "stun", Value::Number(port.to_string()));
    }
    for (theirs, ours) in [("options.tcpNumber", "ports"), ("options.hostNumber", "hosts")] {
        if let Some(most) = section.number::<u32>(theirs).filter(|most| *most > 0) {
            set(&mut server.limits, ours, Value::Number(most.to_string()));
        }
    }
    speed(section, "options.speed", &mut server.limits);
    log(section, &mut server.keys);
    let all: Vec<String> = section.sections("tcp").iter().filter_map(range).collect();
    for (id, user) in section.named("users") {
        user.text("secret");
        let mut rights = Rights::default();
        rights.tcp.extend(user.sections("tcp").iter().filter_map(range));
        rights.tcp.extend(all.iter().cloned());
        for regex in user.texts("host.regex") {
            rights.http.push(format!("/{}\\..*/", regex.trim_matches(['^', '$'])));
        }
        for (theirs, ours) in [("tcpNumber", "ports"), ("host.number", "hosts")] {
            if let Some(most) = user.number::<u32>(theirs).filter(|most| *most > 0) {
                set(&mut rights.limits, ours, Value::Number(most.to_string()));
            }
        }
        speed(&user, "speed", &mut rights.limits);
        plan.server.known.push((name(id), rights));
    }
}

/// A rate in bytes, which applies to each direction.
fn speed(section: &Section<'_>, key: &str, limits: &mut Keys) {
    if let Some(speed) = section.number::<u64>(key).and_then(rate) {
        set(limits, "up", speed.clone());
        set(limits, "down", speed);
    }
}

fn range(section: &Section<'_>) -> Option<String> {
    let range = section.text("range")?;
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    Some(if first == last { first.to_string() } else { format!("{first}-{last}") })
}

fn log(section: &Section<'_>, keys: &mut Keys) {
    if let Some(level) = section.text("options.logLevel") {
        let known = ["trace", "debug", "info", "warn", "error"];
        let found = known.into_iter().find(|known| level.eq_ignore_ascii_case(known));
        set(keys, "log.level", text(found.unwrap_or("error")));
    }
    if let Some(file) = section.path("options.logFile") {
        set(keys, "log.file", text(file));
        if let Some(count) = section.number::<u16>("options.logFileMaxCount")
            && count <= 1000
        {
            set(keys, "log.rotate.keep", Value::Number(count.to_string()));
        }
    }
}

fn head(section: &Section<'_>, client: &mut Client) {
    section.text("options.secret");
    for remote in section.texts("options.remote") {
        let Some(parts) = url(remote) else { continue };
        let (scheme, port) = match parts.scheme {
            "quic" => ("quic", 443),
            "tls" => ("tls", 443),
            _ => ("tls", 80),
        };
        client.servers.push(Path::new(scheme, parts.host, parts.port.unwrap_or(port)));
    }
    client.ca = section.path("options.remoteCert");
    if let Some(connections) = section.number::<u16>("options.remoteConnections")
        && (1..=1024).contains(&connections)
    {
        set(&mut client.keys, "connections", Value::Number(connections.to_string()));
    }
    if let Some(span) = section.text("options.reconnectDelay").and_then(span)
        && span != "0s"
    {
        set(&mut client.keys, "retry.max", text(span));
    }
    let stun: Vec<_> = section.texts("options.remoteSTUN");
    let stun: Vec<_> = stun.iter().map(|url| url.trim_start_matches("stun:")).collect();
    if !stun.is_empty() {
        set(&mut client.keys, "p2p.stun", Value::List(stun.iter().map(text).collect()));
    }
    log(section, &mut client.keys);
}

fn of_service(section: &Section<'_>, id: &str, domain: &str) -> Option<Service> {
    let parts = section.text("local").and_then(url);
    let Some(parts) = parts.filter(|parts| !parts.host.is_empty()) else {
        section.lacks_all("`local` is no target here, and no service is written", "`target`");
        return None;
    };
    let port = |default| parts.port.unwrap_or(default);
    let prefix = section.text("hostPrefix").unwrap_or(id).to_ascii_lowercase();
    let host = format!("{}.{domain}", label(&prefix, "home"));
    let mut service = match parts.scheme {
        "http" => {
            let target = format!("http://{}", at(local(&parts.host), port(80)));
            Service::new(&prefix, target, format!("http://{host}"))
        }
        "https" => {
            let target = format!("tcp://{}", at(local(&parts.host), port(443)));
            Service::new(&prefix, target, format!("tls://{host}"))
        }
        "tcp" => {
            let wanted = section.number::<u16>("remoteTCPPort").unwrap_or(0);
            let Some(local_port) = parts.port else {
                section.lacks_all("`local` has no port, and no service is written", "`target`");
                return None;
            };
            if section.flag("remoteTCPRandom") == Some(true) && wanted > 0 {
                let why = "a port that is taken is waited for; no other one is chosen";
                section.note_at("remoteTCPRandom", why, "`public: tcp://:0`");
            }
            let target = format!("tcp://{}", at(local(&parts.host), local_port));
            Service::new(format!("tcp-{wanted}"), target, format!("tcp://:{wanted}"))
        }
        _ => {
            section.lacks_all("the scheme of `local` is not known; no service is written", "");
            return None;
        }
    };
    if service.is_http() && section.flag("useLocalAsHTTPHost") == Some(true) {
        let rewritten = parts.port.map_or_else(|| parts.host.clone(), |port| at(&parts.host, port));
        service.set("host_rewrite", text(rewritten));
    }
    if let Some(span) = section.text("localTimeout").and_then(span) {
        service.set("timeouts.idle", text(span));
    }
    Some(service)
}

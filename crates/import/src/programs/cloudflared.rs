//! cloudflared: `config.yml` of a tunnel that is managed on its machine.

use config::edit::Value;

use crate::Options;
use crate::address::{at, bind, host_port, is_name, local, span, url};
use crate::plan::{Client, PORT, Path, Plan, Service, UNKNOWN, set, text};
use crate::section::{Book, Read, Section};
use crate::table::{Row, already, lacks, to};
use crate::tree::Node;

const VENDOR: &str = "it is about the vendor's network";
const WARP: &str = "there is no virtual network";

const CHOICE: &str = "a visitor does not choose the target of a name";
const PROXY: &str = "a `socks5` service";
const KEPT: &str = "connections to a target are kept as visitors need them";
const HANDSHAKE: &str = "the handshake is a part of `timeouts.dial`";
const PROTOCOL: &str = "an `https://` target chooses its protocol; `h2c://` is HTTP/2 without TLS";
const ACCESS: &str = "Access is the vendor's; nobody may visit until `allow_from: []` is changed";

/// `originRequest` is a key of the file, and of each rule.
macro_rules! origin {
    ($prefix:literal) => {
        [
            to(concat!($prefix, "connectTimeout"), "`services[].timeouts.dial`"),
            already(concat!($prefix, "tlsTimeout"), HANDSHAKE),
            to(concat!($prefix, "tcpKeepAlive"), "`services[].tcp_keepalive`"),
            already(concat!($prefix, "noHappyEyeballs"), "addresses of a name are tried in turn"),
            already(concat!($prefix, "keepAliveConnections"), KEPT),
            already(concat!($prefix, "keepAliveTimeout"), KEPT),
            to(concat!($prefix, "httpHostHeader"), "`services[].host_rewrite`"),
            to(concat!($prefix, "originServerName"), "`services[].target_tls.server_name`"),
            to(concat!($prefix, "caPool"), "`services[].target_tls.ca`"),
            to(concat!($prefix, "noTLSVerify"), "`services[].target_tls.insecure`"),
            already(concat!($prefix, "disableChunkedEncoding"), "a body passes as it comes"),
            already(concat!($prefix, "http2Origin"), PROTOCOL),
            lacks(
                concat!($prefix, "matchSNItoHost"),
                "the name is one of the service",
                "`target_tls.server_name`",
            ),
            lacks(concat!($prefix, "bastionMode"), CHOICE, PROXY),
            lacks(concat!($prefix, "proxyAddress"), CHOICE, PROXY),
            lacks(concat!($prefix, "proxyPort"), CHOICE, PROXY),
            lacks(concat!($prefix, "proxyType"), CHOICE, PROXY),
            lacks(concat!($prefix, "ipRules[].**"), CHOICE, "`allow_from`"),
            lacks(concat!($prefix, "access.**"), ACCESS, "`basic_auth`, `allow_from`"),
        ]
    };
}

const OF_ALL: [Row; 19] = origin!("originRequest.");
const OF_RULE: [Row; 19] = origin!("ingress[].originRequest.");

const OTHER: [Row; 37] = [
    already("tunnel", "the server is your own"),
    to("credentials-file", "`token`: a new one, as a hash on your server"),
    to("credentials-contents", "`token`: a new one, as a hash on your server"),
    already("origincert", VENDOR),
    to("ingress[].hostname", "`services[].public: https://HOST`"),
    to("ingress[].path", "`services[].path`"),
    to("ingress[].service", "`services[].target`"),
    to("url", "`services[].target`"),
    to("hostname", "`services[].public: https://HOST`"),
    to("protocol", "the order of `servers`: `quic`, `tls`"),
    to("loglevel", "`log.level`"),
    already("transport-loglevel", "`tunnel log` sets the level of each part"),
    to("logfile", "`log.file`"),
    lacks("log-directory", "the log is one file", "`log.file`"),
    already("log-format-output", "`log.format: json`"),
    to("metrics", "`admin.listen`, which has `/metrics`"),
    already("metrics-update-freq", "figures are those of the moment"),
    to("grace-period", "`drain_timeout`"),
    already("retries", "a client tries again until it is stopped"),
    already(
        "ha-connections",
        "`connections` decides how many links there are, and `servers` to how many servers",
    ),
    already("no-autoupdate", "the program never updates itself"),
    already("autoupdate-freq", "the program never updates itself"),
    already("region", VENDOR),
    already("edge", VENDOR),
    already("edge-ip-version", "addresses of a name are tried in turn"),
    lacks(
        "edge-bind-address",
        "it is a matter of the system's routing",
        "a route or a rule of the system",
    ),
    already("post-quantum", "hybrid key exchange is the default"),
    lacks(
        "pidfile",
        "there is no file with the number of the process",
        "the units of `tunnel install`",
    ),
    already("tag", VENDOR),
    already("label", VENDOR),
    already("no-tls-verify", "`originRequest.noTLSVerify`"),
    already("management-diagnostics", VENDOR),
    lacks("warp-routing.**", WARP, "`socks5://` forwards, private services"),
    lacks("dns-resolver.**", WARP, "`udp://` forwards"),
    lacks("proxy-dns", "there is no DNS proxy", "`udp://` forwards"),
    lacks("proxy-dns-upstream", "there is no DNS proxy", "`udp://` forwards"),
    lacks("icmpv4-src", WARP, ""),
];

const fn joined() -> [Row; 75] {
    let mut all = [OTHER[0]; 75];
    let mut n = 0;
    while n < all.len() {
        all[n] = match n {
            0..37 => OTHER[n],
            37..56 => OF_ALL[n - 37],
            _ => OF_RULE[n - 56],
        };
        n += 1;
    }
    all
}

pub(super) const ROWS: &[Row] = &joined();

pub(super) fn fits(root: &Node) -> bool {
    root.has("ingress") || (root.has("tunnel") && (root.has("credentials-file") || root.has("url")))
}

pub(super) fn map(sources: &[Read], options: &Options, book: &Book, plan: &mut Plan) {
    for source in sources {
        let section = source.section(book);
        let wanted = options.name.as_deref().filter(|_| plan.clients.is_empty());
        let client = plan.client(wanted, &source.name);
        head(&section, client);
        if section.has("url") {
            rule(&section, "url", &section, client);
        }
        for ingress in section.sections("ingress") {
            rule(&ingress, "service", &section, client);
        }
        if client.services.iter().any(|service| service.visitors.is_some()) {
            client.rights.invite = true;
        }
    }
}

fn head(section: &Section<'_>, client: &mut Client) {
    let why = "cloudflared keeps connections to two data centres, and a server of your own is in one \
               place";
    section.note(why, "a second server of your own in `servers`, with `use: failover`");
    section.text("credentials-file");
    section.text("credentials-contents");
    match section.text("protocol") {
        Some("quic") => ways(client, &["quic"]),
        Some("auto") => ways(client, &["quic", "tls"]),
        Some("http2") => ways(client, &["tls"]),
        _ => {}
    }
    let levels = ["debug", "info", "warn", "error", "fatal"];
    if let Some(level) = section.text("loglevel")
        && let Some(level) = levels.into_iter().find(|known| *known == level)
    {
        let level = if level == "fatal" { "error" } else { level };
        set(&mut client.keys, "log.level", text(level));
    }
    if let Some(file) = section.path("logfile") {
        set(&mut client.keys, "log.file", text(file));
    }
    if let Some((host, port)) = section.text("metrics").and_then(host_port) {
        let listen = at(bind(if host.is_empty() { "127.0.0.1" } else { &host }), port);
        set(&mut client.keys, "admin.listen", text(&listen));
        client.admin = Some(listen);
    }
    if let Some(span) = section.text("grace-period").and_then(span) {
        set(&mut client.keys, "drain_timeout", text(span));
    }
}

/// The paths to a server whose address is not known yet.
fn ways(client: &mut Client, schemes: &[&'static str]) {
    for scheme in schemes {
        client.servers.push(Path::new(scheme, UNKNOWN, PORT));
    }
}

/// A rule of `ingress`, or the single `url` of a file without rules.
fn rule(section: &Section<'_>, key: &str, top: &Section<'_>, client: &mut Client) {
    let Some(service) = section.text(key) else { return };
    let hostname = section.text("hostname").map(str::to_ascii_lowercase);
    if let Some(code) = service.strip_prefix("http_status:") {
        if code != "404" || hostname.is_some() {
            let why = "a name without a service is a page 404";
            section.note_at(key, why, "`http.pages.not_found`, `tunnel clients hold`");
        }
        return;
    }
    let host = match hostname {
        Some(host) if host == "*" || is_name(&host) => host,
        None => "*".to_owned(),
        Some(_) => {
            section.lacks_all("the hostname is no DNS name; no service is written", "`public`");
            return;
        }
    };
    let name = match host.as_str() {
        "*" => "any".to_owned(),
        host => host.replace('*', "any"),
    };
    if service == "hello_world" || service == "bastion" || service == "socks-proxy" {
        let why = "this service is a part of cloudflared, and no service is written";
        section.lacks_all(why, "a `file:///` target; a `socks5` service; `socks5://` forwards");
        return;
    }
    let Some((target, is_http)) = target(service) else {
        section.lacks_all("this is no target here, and no service is written", "`target`");
        return;
    };
    if !is_http {
        let visited =
            "visitors had `cloudflared access`: here they come by codes to a private service";
        section.note_at(key, visited, "`tunnel visit --new NAME` on this machine");
        section.text("hostname");
        let name = host.split('.').next().unwrap_or("service").replace('*', "any");
        client.publish(Service::private(&name, target, Vec::new()));
        return;
    }
    let public = vec![format!("http://{host}"), format!("https://{host}")];
    let mut one = Service { name, target, public, ..Service::default() };
    if let Some(written) = section.text("path") {
        let Some(path) = prefix(written) else {
            let why =
                "a path is compared by its begin, not as an expression; no service is written";
            section.lacks_all(why, "`path`");
            return;
        };
        if path != "/" {
            one.set("path", text(path));
        }
    }
    origin(top, section, &mut one);
    client.publish(one);
}

/// The target, and whether it speaks HTTP.
fn target(service: &str) -> Option<(String, bool)> {
    for (begin, over) in [("unix+tls:", "unix"), ("unix:", "unix")] {
        if let Some(path) = service.strip_prefix(begin) {
            let path = path.trim_start_matches("//");
            return path.starts_with('/').then(|| (format!("{over}://{path}"), begin == "unix:"));
        }
    }
    let parts = url(service)?;
    let (over, port, is_http) = match parts.scheme {
        "http" | "ws" => ("http", 80, true),
        "https" | "wss" => ("https", 443, true),
        "ssh" => ("tcp", 22, false),
        "rdp" => ("tcp", 3389, false),
        "smb" => ("tcp", 445, false),
        "tcp" => ("tcp", 7864, false),
        _ => return None,
    };
    let place = at(local(&parts.host), parts.port.unwrap_or(port));
    Some((format!("{over}://{place}"), is_http))
}

/// The path prefix of a regular expression that consists only of a prefix.
fn prefix(written: &str) -> Option<String> {
    let path = written.trim_start_matches('^');
    let path = path.strip_suffix('$').unwrap_or(path);
    let path = path.strip_suffix(".*").unwrap_or(path).replace("\\.", "\u{1}");
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '~' | '\u{1}');
    let path = path.trim_end_matches('/').replace("\\-", "-");
    (path.chars().all(plain) && (path.starts_with('/') || path.is_empty())).then(|| {
        let path = path.replace('\u{1}', ".");
        if path.is_empty() { "/".to_owned() } else { path }
    })
}

/// `originRequest` of a rule, merged with that of all rules.
fn origin(top: &Section<'_>, rule: &Section<'_>, service: &mut Service) {
    let both = [top.section("originRequest"), rule.section("originRequest")];
    let with_tls = service.target.starts_with("https://");
    for origin in both.into_iter().flatten() {
        if let Some(span) = origin.text("connectTimeout").and_then(span) {
            service.set("timeouts.dial", text(span));
        }
        if let Some(span) = origin.text("tcpKeepAlive").and_then(span)
            && !span.ends_with("ms")
        {
            service.set("tcp_keepalive", text(span));
        }
        if let Some(host) = origin.text("httpHostHeader") {
            service.set("host_rewrite", text(host));
        }
        if with_tls && let Some(name) = origin.text("originServerName") {
            service.set("target_tls.server_name", text(name));
        }
        if with_tls && let Some(ca) = origin.path("caPool") {
            service.set("target_tls.ca", text(ca));
        }
        if with_tls && origin.flag("noTLSVerify") == Some(true) {
            service.set("target_tls.insecure", Value::Bool(true));
        }
        origin.flag("noTLSVerify");
        if origin.has("access") {
            service.close();
        }
    }
}

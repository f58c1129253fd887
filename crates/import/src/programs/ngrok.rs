//! ngrok's agent: `tunnels` of version 2, `endpoints` of version 3. The server was operated by the
//! vendor.

use config::edit::Value;

use crate::Options;
use crate::address::{at, bind, host_port, is_name, label, local, span, url};
use crate::plan::{Client, Plan, Service, Visitor, domain, set, text, texts_by_name};
use crate::section::{Book, Read, Section, fields};
use crate::table::{Row, already, lacks, to};
use crate::tree::Node;

const INSPECTOR: &str = "the console and `tunnel requests` show the kept requests";
const VENDOR: &str = "it is about the vendor's service";
const CLOSED: &str =
    "it restricts visitors in another way; nobody may visit until `allow_from: []` is changed";
const NEAR: &str = "`basic_auth`, `allow_from`";

pub(super) const ROWS: &[Row] = &[
    already("version", "both versions are read"),
    to("authtoken", "`token`: a new one, as a hash on your server"),
    already("api_key", VENDOR),
    already("region", "the server is your own"),
    already("server_addr", "the server is your own: `servers`"),
    to("proxy_url", "`proxy`"),
    lacks("root_cas", "the server is your own", "`tls.pin`, `tls.ca`"),
    to("log", "`log.file`"),
    to("log_level", "`log.level`"),
    to("log_format", "`log.format`"),
    to("heartbeat_interval", "`keepalive`"),
    already(
        "heartbeat_tolerance",
        "a link that is silent for longer than its pings allow is replaced",
    ),
    to("web_addr", "`admin.listen`: the page *Requests* of the console"),
    already("console_ui", "`tunnel status --watch` is a command of its own"),
    already("console_ui_color", "`tunnel status --watch` is a command of its own"),
    already("inspect_db_size", INSPECTOR),
    already("metadata", VENDOR),
    already("update", "packages update the program"),
    already("update_channel", "packages update the program"),
    already("update_check", "packages update the program"),
    already("remote_management", "nobody but the owner manages a client"),
    already("crl_noverify", "the server is known by its pin"),
    lacks("dns_resolver_ips", "names are looked up as the system does", "/etc/resolv.conf"),
    to("agent.authtoken", "`token`: a new one, as a hash on your server"),
    already("agent.api_key", VENDOR),
    already("agent.connect_url", "the server is your own: `servers`"),
    lacks("agent.connect_cas", "the server is your own", "`tls.pin`, `tls.ca`"),
    to("agent.proxy_url", "`proxy`"),
    to("agent.log", "`log.file`"),
    to("agent.log_level", "`log.level`"),
    to("agent.log_format", "`log.format`"),
    to("agent.heartbeat_interval", "`keepalive`"),
    already(
        "agent.heartbeat_tolerance",
        "a link that is silent for longer than its pings allow is replaced",
    ),
    to("agent.web_addr", "`admin.listen`: the page *Requests* of the console"),
    lacks("agent.web_allow_hosts", "the console has hosts of its own", "`admin.hosts`"),
    already("agent.console_ui", "`tunnel status --watch` is a command of its own"),
    already("agent.console_ui_color", "`tunnel status --watch` is a command of its own"),
    already("agent.inspect_db_size", INSPECTOR),
    already("agent.metadata", VENDOR),
    already("agent.update_channel", "packages update the program"),
    already("agent.update_check", "packages update the program"),
    already("agent.remote_management", "nobody but the owner manages a client"),
    already("agent.crl_noverify", "the server is known by its pin"),
    lacks("agent.dns_resolver_ips", "names are looked up as the system does", "/etc/resolv.conf"),
    // Version 2, and `tunnels` of version 3.
    to("tunnels.*.proto", "the scheme of `services[].public`"),
    to("tunnels.*.addr", "`services[].target`"),
    to("tunnels.*.hostname", "`services[].public`"),
    to("tunnels.*.domain", "`services[].public`"),
    to("tunnels.*.subdomain", "`services[].public`, with --domain behind it"),
    to("tunnels.*.schemes", "`services[].public`: `http://`, `https://`"),
    to("tunnels.*.bind_tls", "`services[].public`: `http://`, `https://`"),
    to("tunnels.*.remote_addr", "`services[].public: tcp://:PORT`"),
    to("tunnels.*.basic_auth", "`services[].basic_auth`"),
    to("tunnels.*.auth", "`services[].basic_auth`"),
    to("tunnels.*.host_header", "`services[].host_rewrite`"),
    to("tunnels.*.request_header.add", "`services[].headers.set`"),
    to("tunnels.*.request_header.remove", "`services[].headers.remove`"),
    to("tunnels.*.response_header.add", "`services[].response_headers.set`"),
    to("tunnels.*.response_header.remove", "`services[].response_headers.remove`"),
    to("tunnels.*.ip_restriction.allow_cidrs", "`services[].allow_from`"),
    to("tunnels.*.ip_restriction.deny_cidrs", "`services[].deny_from`"),
    to("tunnels.*.proxy_proto", "`services[].proxy_protocol`"),
    to("tunnels.*.compression", "`services[].compress`"),
    to("tunnels.*.inspect", "`services[].requests`"),
    already("tunnels.*.metadata", VENDOR),
    already("tunnels.*.websocket_tcp_converter", "a WebSocket passes as it is"),
    lacks(
        "tunnels.*.circuit_breaker",
        "a target that fails is found out by its checks",
        "`health`",
    ),
    lacks("tunnels.*.oauth.**", CLOSED, NEAR),
    lacks("tunnels.*.oidc.**", CLOSED, NEAR),
    lacks("tunnels.*.webhook_verification.**", CLOSED, NEAR),
    lacks("tunnels.*.verify_webhook.**", CLOSED, NEAR),
    lacks("tunnels.*.mutual_tls_cas", CLOSED, "a target with TLS at a `tls://` name"),
    lacks("tunnels.*.user_agent_filter.**", CLOSED, NEAR),
    lacks("tunnels.*.policy.**", CLOSED, NEAR),
    lacks("tunnels.*.traffic_policy.**", CLOSED, NEAR),
    lacks("tunnels.*.policy_file", CLOSED, NEAR),
    lacks("tunnels.*.traffic_policy_file", CLOSED, NEAR),
    lacks(
        "tunnels.*.crt",
        "the target or the server ends TLS",
        "`https://`, with `tls_routes.certificates` on the server",
    ),
    lacks(
        "tunnels.*.key",
        "the target or the server ends TLS",
        "`https://`, with `tls_routes.certificates` on the server",
    ),
    lacks("tunnels.*.terminate_at", "the target or the server ends TLS", "`https://`, `tls://`"),
    lacks("tunnels.*.labels", "edges are the vendor's, and no service is written", "`public`"),
    // Version 3.
    to("endpoints[].name", "`services[].name`"),
    to("endpoints[].url", "`services[].public`"),
    to("endpoints[].upstream.url", "`services[].target`"),
    to("endpoints[].upstream.protocol", "`services[].target: h2c://…`"),
    to("endpoints[].upstream.proxy_protocol", "`services[].proxy_protocol`"),
    already("endpoints[].description", VENDOR),
    already("endpoints[].metadata", VENDOR),
    to("endpoints[].bindings", "`public: private` for `internal`"),
    to("endpoints[].pooling_enabled", "`services[].shared`"),
    lacks("endpoints[].traffic_policy.**", CLOSED, NEAR),
    lacks("endpoints[].traffic_policy_file", CLOSED, NEAR),
    lacks(
        "endpoints[].agent_tls_termination.**",
        "the target or the server ends TLS",
        "`https://`, `tls://`",
    ),
];

/// Keys that restrict visitors, and have no counterpart.
const CLOSING: [&str; 10] = [
    "oauth",
    "oidc",
    "webhook_verification",
    "verify_webhook",
    "mutual_tls_cas",
    "user_agent_filter",
    "policy",
    "traffic_policy",
    "policy_file",
    "traffic_policy_file",
];

pub(super) fn fits(root: &Node) -> bool {
    let agent = root.has("authtoken") || root.has("agent");
    let tunnels = root.has("tunnels") && !root.has("ingress");
    root.has("endpoints") || tunnels || (agent && root.has("version"))
}

pub(super) fn map(sources: &[Read], options: &Options, book: &Book, plan: &mut Plan) {
    for source in sources {
        let section = source.section(book);
        let wanted = options.name.as_deref().filter(|_| plan.clients.is_empty());
        let mut services = Vec::new();
        for (name, tunnel) in section.named("tunnels") {
            services.extend(of_tunnel(name, &tunnel, domain(options)));
        }
        for endpoint in section.sections("endpoints") {
            services.extend(of_endpoint(&endpoint, domain(options)));
        }
        let client = plan.client(wanted, &source.name);
        if services.iter().any(|service| service.visitors.is_some()) {
            client.rights.invite = true;
        }
        head(&section, client);
        head(&section.section("agent").unwrap_or_else(|| section.clone()), client);
        services.into_iter().for_each(|service| client.publish(service));
    }
}

fn head(section: &Section<'_>, client: &mut Client) {
    section.text("authtoken");
    if let Some(proxy) = section.text("proxy_url") {
        set(&mut client.keys, "proxy", text(proxy));
    }
    if let Some(span) = section.text("heartbeat_interval").and_then(span) {
        set(&mut client.keys, "keepalive", text(span));
    }
    let levels = [
        ("debug", "debug"),
        ("info", "info"),
        ("warn", "warn"),
        ("error", "error"),
        ("crit", "error"),
    ];
    if let Some(level) = section.text("log_level")
        && let Some((_, level)) = levels.into_iter().find(|(theirs, _)| *theirs == level)
    {
        set(&mut client.keys, "log.level", text(level));
    }
    if let Some(format) = section.text("log_format") {
        set(&mut client.keys, "log.format", text(if format == "json" { "json" } else { "text" }));
    }
    if let Some((host, port)) = section.text("web_addr").and_then(host_port) {
        let listen = at(bind(&host), port);
        set(&mut client.keys, "admin.listen", text(&listen));
        client.admin = Some(listen);
    }
    match section.text("log") {
        Some("stdout" | "stderr" | "false") | None => {}
        Some(file) => set(&mut client.keys, "log.file", text(section.source.path(file))),
    }
}

/// A tunnel of version 2.
fn of_tunnel(name: &str, section: &Section<'_>, domain: &str) -> Option<Service> {
    if section.has("labels") {
        section.note("edges are the vendor's, and no service is written", "`public`");
        section.node.mark_all();
        return None;
    }
    let proto = section.text("proto").unwrap_or("http");
    let Some(target) = section.text("addr").and_then(|addr| upstream(addr, proto, None)) else {
        section.lacks_all("`addr` is no target here, and no service is written", "`target`");
        return None;
    };
    let public = match proto {
        "http" => http_names(name, section, domain),
        "tcp" => {
            let port = section.text("remote_addr").and_then(host_port).map_or(0, |(_, port)| port);
            vec![format!("tcp://:{port}")]
        }
        "tls" => vec![format!("tls://{}", tunnel_host(name, section, domain))],
        _ => {
            section.lacks_all("the kind of this tunnel is not known; no service is written", "");
            return None;
        }
    };
    let mut service = Service { name: name.to_owned(), target, public, ..Service::default() };
    terms(section, &mut service);
    Some(service)
}

/// The zones of the vendor, whose names lead only to the vendor.
const ZONES: [&str; 7] = [
    ".ngrok.app",
    ".ngrok.dev",
    ".ngrok.io",
    ".ngrok.pizza",
    ".ngrok-free.app",
    ".ngrok-free.dev",
    ".ngrok-free.pizza",
];

/// The name of a service. A name of the vendor is replaced by its first label, or else the given
/// label, below the domain.
fn host(section: &Section<'_>, given: Option<&str>, wanted: &str, domain: &str) -> String {
    let given = given.map(str::to_ascii_lowercase);
    let is_own = |host: &String| is_name(host) && !ZONES.iter().any(|zone| host.ends_with(zone));
    match given {
        Some(host) if is_own(&host) => host,
        given => {
            let first = given.as_deref().filter(|host| is_name(host));
            let first = first.and_then(|host| host.split('.').next());
            section.note("the name is the vendor's; your own is needed", "`public`, or --domain");
            format!("{}.{domain}", label(first.unwrap_or(wanted), "app"))
        }
    }
}

/// The name of a tunnel of version 2.
fn tunnel_host(name: &str, section: &Section<'_>, domain: &str) -> String {
    let given = section.text("hostname").or_else(|| section.text("domain"));
    host(section, given, section.text("subdomain").unwrap_or(name), domain)
}

fn http_names(name: &str, section: &Section<'_>, domain: &str) -> Vec<String> {
    let host = tunnel_host(name, section, domain);
    let mut schemes = section.texts("schemes");
    if schemes.is_empty() {
        schemes = match section.text("bind_tls") {
            Some("false") => vec!["http"],
            Some("both") => vec!["http", "https"],
            _ => vec!["https"],
        };
    }
    let known = schemes.into_iter().filter(|scheme| matches!(*scheme, "http" | "https"));
    let public: Vec<_> = known.map(|scheme| format!("{scheme}://{host}")).collect();
    if public.is_empty() { vec![format!("https://{host}")] } else { public }
}

fn terms(section: &Section<'_>, service: &mut Service) {
    let users: Vec<&str> = [section.texts("basic_auth"), section.texts("auth")].concat();
    if !users.is_empty() {
        if service.is_http() {
            service.set("basic_auth", Value::List(users.iter().map(text).collect()));
        } else {
            service.close();
            section.note_at("basic_auth", CLOSED, "an `http://` name");
        }
    }
    for (theirs, ours) in
        [("ip_restriction.allow_cidrs", "allow_from"), ("ip_restriction.deny_cidrs", "deny_from")]
    {
        let nets = section.texts(theirs);
        if !nets.is_empty() {
            service.set(ours, Value::List(nets.iter().map(text).collect()));
        }
    }
    match section.text("proxy_proto") {
        Some("1") => service.set("proxy_protocol", text("v1")),
        Some("2") => service.set("proxy_protocol", text("v2")),
        _ => {}
    }
    if service.is_http() {
        requests(section, service);
    }
    if CLOSING.iter().any(|key| section.has(key)) {
        service.close();
    }
}

fn requests(section: &Section<'_>, service: &mut Service) {
    match section.text("host_header") {
        None | Some("preserve") => {}
        Some("rewrite") => {
            // A target without a host means `localhost` there, and the field Host has this value.
            let addr = section.text("addr").and_then(host_port);
            let is_local = addr.is_some_and(|(host, _)| host.is_empty());
            if let Some(parts) = url(&service.target) {
                let host = if is_local { "localhost" } else { &parts.host };
                let rewritten = parts.port.map_or_else(|| host.to_owned(), |port| at(host, port));
                service.set("host_rewrite", text(rewritten));
            }
        }
        Some(host) => service.set("host_rewrite", text(host)),
    }
    for (theirs, ours) in [("request_header", "headers"), ("response_header", "response_headers")] {
        let pairs = fields(&section.texts(&format!("{theirs}.add")));
        if !pairs.is_empty() {
            service.set(&format!("{ours}.set"), texts_by_name(&pairs));
        }
        let names = section.texts(&format!("{theirs}.remove"));
        if !names.is_empty() {
            service.set(&format!("{ours}.remove"), Value::List(names.iter().map(text).collect()));
        }
    }
    if section.flag("inspect") != Some(false) {
        service.set("requests", Value::Bool(true));
    }
    if section.flag("compression") == Some(true) {
        service.set("compress", Value::Bool(true));
    }
}

/// `80`, `host:80`, `http://host`, `https://host` as a target of ours.
fn upstream(addr: &str, proto: &str, protocol: Option<&str>) -> Option<String> {
    if let Some(path) = addr.strip_prefix("file://") {
        return path.starts_with('/').then(|| format!("file://{path}"));
    }
    let over = match (proto, protocol) {
        ("http", Some("http2")) => "h2c",
        ("http", _) => "http",
        _ => "tcp",
    };
    if let Some((host, port)) = host_port(addr) {
        return Some(format!("{over}://{}", at(local(&host), port)));
    }
    let parts = url(addr)?;
    let over = if parts.scheme == "https" && proto == "http" { "https" } else { over };
    let port = parts.port.unwrap_or(if parts.scheme == "https" { 443 } else { 80 });
    let fits = matches!(parts.scheme, "" | "http" | "https" | "tcp" | "tls");
    fits.then(|| format!("{over}://{}", at(local(&parts.host), port)))
}

/// An endpoint of version 3.
fn of_endpoint(section: &Section<'_>, domain: &str) -> Option<Service> {
    let name = section.text("name").unwrap_or("endpoint");
    let url_text = section.text("url").unwrap_or_default();
    let parts = url(url_text)?;
    let (proto, scheme) = match parts.scheme {
        "tcp" => ("tcp", "tcp"),
        "tls" => ("tls", "tls"),
        "http" => ("http", "http"),
        _ => ("http", "https"),
    };
    let addr = section.text("upstream.url");
    let protocol = section.text("upstream.protocol");
    let Some(target) = addr.and_then(|addr| upstream(addr, proto, protocol)) else {
        section.lacks_all("`upstream` is no target here, and no service is written", "`target`");
        return None;
    };
    let is_internal =
        parts.host.ends_with(".internal") || section.texts("bindings").contains(&"internal");
    if is_internal {
        let plain = url(&target).map(|parts| at(&parts.host, parts.port.unwrap_or(80)));
        let target = format!("tcp://{}", plain?);
        let why = "an internal endpoint is a private service: visitors come by codes";
        section.note_at("url", why, "`tunnel visit --new NAME` on this machine");
        return Some(Service::private(name, target, Vec::<Visitor>::new()));
    }
    let public = if proto == "tcp" {
        format!("tcp://:{}", parts.port.unwrap_or(0))
    } else {
        let host = host(section, Some(&parts.host), name, domain);
        format!("{scheme}://{host}")
    };
    let mut service = Service::new(name, target, public);
    match section.text("upstream.proxy_protocol") {
        Some("1") => service.set("proxy_protocol", text("v1")),
        Some("2") => service.set("proxy_protocol", text("v2")),
        _ => {}
    }
    if section.has("traffic_policy") || section.has("traffic_policy_file") {
        service.close();
    }
    if section.flag("pooling_enabled") == Some(true) {
        service.share();
    }
    if service.is_http() {
        service.set("requests", Value::Bool(true));
    }
    Some(service)
}

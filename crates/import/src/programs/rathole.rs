//! rathole: one file with `[server]`, `[client]` or both. A service has two halves with one name.

use crate::Options;
use crate::address::{at, bind, host_port, local, public, span, url};
use crate::plan::{Client, Path, Plan, Service, add, set, text};
use crate::section::{Book, Read, Section};
use crate::table::{Row, already, lacks, to};
use crate::tree::Node;

const NOISE: &str = "the link is TLS 1.3, and the client pins the key of the server";

pub(super) const ROWS: &[Row] = &[
    to("server.bind_addr", "`listen`"),
    to("server.default_token", "`token` of each client: a new one, as a hash on the server"),
    already("server.heartbeat_interval", "`keepalive` pings each link"),
    to("server.transport.type", "the scheme of `listen`: `tls`, or `wss` for `websocket`"),
    lacks(
        "server.transport.tls.pkcs12",
        "certificates are PEM files",
        "`openssl pkcs12 -in FILE -nodes`, then `tls.cert` and `tls.key`",
    ),
    lacks(
        "server.transport.tls.pkcs12_password",
        "certificates are PEM files",
        "`openssl pkcs12 -in FILE -nodes`",
    ),
    already("server.transport.noise.**", NOISE),
    already("server.transport.websocket.tls", "`wss://` is TLS"),
    already("server.transport.tcp.**", "the server sets the options of its sockets"),
    to("server.services.*.type", "the scheme of `services[].public`"),
    to("server.services.*.token", "`token` of the client, which has all of its services"),
    to("server.services.*.bind_addr", "`services[].public`, `clients[].allow`"),
    already("server.services.*.nodelay", "small writes are sent at once"),
    to("client.remote_addr", "`servers`"),
    to("client.default_token", "`token`: a new one"),
    already("client.heartbeat_timeout", "`keepalive` pings each link"),
    to("client.retry_interval", "`retry.max`"),
    to("client.transport.type", "the scheme of `servers`: `tls`, or `wss` for `websocket`"),
    to("client.transport.tls.trusted_root", "`tls.ca`"),
    to("client.transport.tls.hostname", "`servers[].sni`"),
    already("client.transport.noise.**", NOISE),
    already("client.transport.websocket.tls", "`wss://` is TLS"),
    to("client.transport.tcp.proxy", "`proxy`"),
    already("client.transport.tcp.nodelay", "small writes are sent at once"),
    already("client.transport.tcp.keepalive_secs", "`keepalive` pings each link"),
    already("client.transport.tcp.keepalive_interval", "`keepalive` pings each link"),
    to("client.services.*.type", "the scheme of `services[].public`"),
    to("client.services.*.token", "`token` of the client, which has all of its services"),
    to("client.services.*.local_addr", "`services[].target`"),
    already("client.services.*.nodelay", "small writes are sent at once"),
    to("client.services.*.retry_interval", "`retry.max` of the client"),
    already("client.services.*.prefer_ipv6", "IPv6 and IPv4 addresses of a name are tried in turn"),
];

pub(super) fn fits(root: &Node) -> bool {
    root.has("client.remote_addr")
        || root.has("client.services")
        || root.has("server.services")
        || (root.has("server.bind_addr") && !root.has("server.servers"))
}

/// The server's half of a service.
struct Half<'a> {
    name: &'a str,
    is_udp: bool,
    host: String,
    port: u16,
    section: Section<'a>,
}

impl Half<'_> {
    fn public(&self) -> String {
        public(if self.is_udp { "udp" } else { "tcp" }, &self.host, self.port)
    }
}

pub(super) fn map(sources: &[Read], options: &Options, book: &Book, plan: &mut Plan) {
    let mut halves: Vec<Half<'_>> = Vec::new();
    for source in sources {
        if let Some(section) = source.section(book).section("server") {
            plan.server.sources.push(source.name.clone());
            server(&section, plan, &mut halves);
        }
    }
    let mut met: Vec<&str> = Vec::new();
    for source in sources {
        let Some(section) = source.section(book).section("client") else { continue };
        let wanted = options.name.as_deref().filter(|_| plan.clients.is_empty());
        let client = plan.client(wanted, &source.name);
        head(&section, client);
        for (name, service) in section.named("services") {
            met.push(name);
            let half = halves.iter().find(|half| half.name == name);
            publish(name, &service, half, client);
        }
    }
    for half in halves.iter().filter(|half| !met.contains(&half.name)) {
        let rights = &mut plan.server.to_come;
        let list = if half.is_udp { &mut rights.udp } else { &mut rights.tcp };
        add(list, half.port.to_string());
        if !plan.clients.is_empty() {
            let over = if half.is_udp { "udp" } else { "tcp" };
            let near = format!("`tunnel enroll NAME --allow-{over} {}` for its client", half.port);
            half.section.note("no client among the files has this service", &near);
        }
    }
}

fn scheme(section: &Section<'_>) -> &'static str {
    match section.text("transport.type") {
        Some("websocket") => "wss",
        _ => "tls",
    }
}

fn server<'a>(section: &Section<'a>, plan: &mut Plan, halves: &mut Vec<Half<'a>>) {
    let scheme = scheme(section);
    if let Some((host, port)) = section.text("bind_addr").and_then(host_port) {
        plan.server.listen.push(format!("{scheme}://{}", at(bind(&host), port)));
    }
    section.text("default_token");
    for (name, service) in section.named("services") {
        service.text("token");
        let is_udp = service.text("type") == Some("udp");
        let Some((host, port)) = service.text("bind_addr").and_then(host_port) else {
            service.lacks_all("`bind_addr` is missing or no address", "`public`");
            continue;
        };
        halves.push(Half { name, is_udp, host, port, section: service });
    }
}

fn head(section: &Section<'_>, client: &mut Client) {
    let scheme = scheme(section);
    if let Some(parts) = section.text("remote_addr").and_then(url)
        && let Some(port) = parts.port
    {
        let mut path = Path::new(scheme, parts.host, port);
        path.sni = section.text("transport.tls.hostname").map(str::to_owned);
        client.servers.push(path);
    }
    section.text("default_token");
    client.ca = section.path("transport.tls.trusted_root");
    if let Some(proxy) = section.text("transport.tcp.proxy") {
        set(&mut client.keys, "proxy", text(proxy.replace("socks5h://", "socks5://")));
    }
    if let Some(retry) = section.text("retry_interval").and_then(span)
        && retry != "0s"
    {
        set(&mut client.keys, "retry.max", text(retry));
    }
}

fn publish(name: &str, section: &Section<'_>, half: Option<&Half<'_>>, client: &mut Client) {
    section.text("token");
    let is_udp = section.text("type") == Some("udp");
    let over = if is_udp { "udp" } else { "tcp" };
    let Some((host, port)) = section.text("local_addr").and_then(host_port) else {
        section
            .lacks_all("`local_addr` is missing or no address; no service is written", "`target`");
        return;
    };
    let target = format!("{over}://{}", at(local(&host), port));
    let public = match half {
        Some(half) => half.public(),
        None => {
            let why = "the public port is in the file of the server, which is not among the \
                       files: the server chooses a port";
            section.note(why, "import both files together, or edit `public`");
            format!("{over}://:0")
        }
    };
    client.publish(Service::new(name, target, public));
}

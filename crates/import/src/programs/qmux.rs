//! QMux: a server with pairs of ports, and clients with one target each.

use crate::Options;
use crate::address::{at, bind, host_port, local, public};
use crate::plan::{Client, Path, Plan, Service, add, text};
use crate::section::{Book, Read, Section};
use crate::table::{Row, already, lacks, to};
use crate::tree::Node;

const QUIC: &str = "windows and limits follow the path";
const UDP: &str = "a datagram that is too large for the path is cut and joined";

pub(super) const ROWS: &[Row] = &[
    to("listeners[].quic_addr", "`listen: quic://…`"),
    to("listeners[].traffic_addr", "`services[].public` of the client, `clients[].allow`"),
    to("listeners[].protocol", "`services[].public`: `tcp://`, `udp://`"),
    already("listeners[].quic.**", QUIC),
    already("listeners[].udp.**", UDP),
    to("auth.method", "`tls.client_ca`, `token`"),
    to("auth.ca_cert_file", "`tls.client_ca`"),
    to("auth.token", "`token` of each client: a new one, as a hash on the server"),
    to("tls.server_cert_file", "`tls.cert`"),
    to("tls.server_key_file", "`tls.key`"),
    already(
        "tls.session_ticket_encryption_key_rotation_interval",
        "keys of tickets change by themselves",
    ),
    already(
        "tls.session_ticket_encryption_key_rotation_overlap",
        "keys of tickets change by themselves",
    ),
    lacks(
        "load_balancer",
        "each service says whether other clients share its address",
        "`services[].shared`, with the right `allow.shared`",
    ),
    already("heartbeat_interval", "`keepalive` pings each link"),
    already("health_timeout", "a link that is silent for longer than its pings allow is replaced"),
    lacks("metrics.**", "figures are a part of the admin API", "`admin.listen`"),
    lacks("admin.**", "the admin API has another form", "`admin.listen`"),
    to("client_id", "`name`"),
    to("server.servers[].address", "`servers`"),
    to("server.servers[].server_name", "`servers[].sni`"),
    to("local.host", "`services[].target`"),
    to("local.port", "`services[].target`"),
    to("tls.ca_cert_file", "`tls.ca`"),
    to("tls.client_cert_file", "`tls.cert`"),
    to("tls.client_key_file", "`tls.key`"),
    already("quic.**", QUIC),
    already("udp.**", UDP),
];

pub(super) fn fits(root: &Node) -> bool {
    let listeners = root.entry("listeners");
    listeners.is_some_and(|entry| entry.node.items().any(|item| item.has("quic_addr")))
        || root.has("server.servers")
        || (root.has("client_id") && root.has("local"))
}

/// A pair of ports of the server.
struct Pair<'a> {
    quic: u16,
    publics: Vec<String>,
    section: Section<'a>,
}

pub(super) fn map(sources: &[Read], options: &Options, book: &Book, plan: &mut Plan) {
    let mut pairs = Vec::new();
    let is_client = |section: &Section<'_>| section.has("server.servers") || section.has("local");
    for source in sources {
        let section = source.section(book);
        if !is_client(&section) {
            server(&section, plan, &mut pairs);
        }
    }
    let mut met = Vec::new();
    for source in sources {
        let section = source.section(book);
        if is_client(&section) {
            let id = section.text("client_id");
            let wanted = options.name.as_deref().filter(|_| plan.clients.is_empty()).or(id);
            client(&section, &pairs, &mut met, plan.client(wanted, &source.name));
        }
    }
    for pair in pairs.iter().filter(|pair| !met.contains(&pair.quic)) {
        for public in &pair.publics {
            let place = public.rsplit(':').next().unwrap_or_default();
            let rights = &mut plan.server.to_come;
            let list = if public.starts_with("udp") { &mut rights.udp } else { &mut rights.tcp };
            add(list, place);
        }
        if !plan.clients.is_empty() {
            let near = "`tunnel enroll NAME` with `--allow-tcp`, `--allow-udp` for its client";
            pair.section.note("no client among the files connects to it", near);
        }
    }
}

fn server<'a>(section: &Section<'a>, plan: &mut Plan, pairs: &mut Vec<Pair<'a>>) {
    let server = &mut plan.server;
    server.sources.push(section.source.name.clone());
    for listener in section.sections("listeners") {
        let quic = listener.text("quic_addr").and_then(host_port);
        let traffic = listener.text("traffic_addr").and_then(host_port);
        let (Some((host, port)), Some((public_host, public_port))) = (quic, traffic) else {
            listener.lacks_all("an address is missing or wrong", "`listen`, `public`");
            continue;
        };
        server.listen.push(format!("quic://{}", at(bind(&host), port)));
        let schemes: &[&str] = match listener.text("protocol") {
            Some("udp") => &["udp"],
            Some("both") => &["tcp", "udp"],
            _ => &["tcp"],
        };
        let of = |scheme: &&str| public(scheme, &public_host, public_port);
        let publics = schemes.iter().map(of).collect();
        pairs.push(Pair { quic: port, publics, section: listener });
    }
    let pair = (section.path("tls.server_cert_file"), section.path("tls.server_key_file"));
    if let (Some(cert), Some(key)) = pair {
        server.identity = Some((cert, key));
    }
    section.text("auth.token");
    if section.text("auth.method") != Some("token")
        && let Some(ca) = section.path("auth.ca_cert_file")
    {
        crate::plan::set(&mut server.keys, "tls.client_ca", text(ca));
        let why = "the name in a client's certificate has to be the `name` of the client here";
        section.note_at("auth.ca_cert_file", why, "`name` in both files");
    }
}

fn client(section: &Section<'_>, pairs: &[Pair<'_>], met: &mut Vec<u16>, client: &mut Client) {
    let mut first = None;
    for server in section.sections("server.servers") {
        let Some((host, port)) = server.text("address").and_then(host_port) else { continue };
        let mut path = Path::new("quic", host.clone(), port);
        path.sni = server.text("server_name").filter(|name| *name != host).map(str::to_owned);
        client.servers.push(path);
        first.get_or_insert(port);
    }
    client.several = true;
    client.ca = section.path("tls.ca_cert_file");
    let pair = (section.path("tls.client_cert_file"), section.path("tls.client_key_file"));
    if let (Some(cert), Some(key)) = pair {
        client.identity = Some((cert, key));
    }
    section.text("auth.token");
    section.text("auth.method");
    let Some(port) = section.number::<u16>("local.port") else {
        section.note("`local.port` is missing, and no service is written", "`target`");
        return;
    };
    let host = section.text("local.host").unwrap_or("127.0.0.1");
    let pair = pairs.iter().find(|pair| first == Some(pair.quic));
    met.extend(pair.map(|pair| pair.quic));
    let public = match pair {
        Some(pair) => pair.publics.clone(),
        None => {
            let why = "the public port is in the file of the server, which is not among the \
                       files: the server chooses a port";
            section.note_at("local", why, "import both files together, or edit `public`");
            vec!["tcp://:0".to_owned()]
        }
    };
    let over = if public.iter().all(|public| public.starts_with("udp")) { "udp" } else { "tcp" };
    let target = format!("{over}://{}", at(local(host), port));
    let name = format!("{over}-{port}");
    client.publish(Service { name, target, public, ..Service::default() });
}

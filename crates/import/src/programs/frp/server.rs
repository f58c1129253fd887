//! `frps`.

use config::edit::Value;

use crate::address::{at, bind, ip, is_everywhere};
use crate::plan::{Plan, Rights, set, text};
use crate::section::Section;

/// The port of a server without `bindPort`.
const PORT: u16 = 7000;

/// Maps a server's file. Returns `subDomainHost`.
pub(super) fn map<'a>(section: &Section<'a>, plan: &mut Plan) -> Option<&'a str> {
    let server = &mut plan.server;
    let host = section.text("bindAddr").unwrap_or_default();
    let mut listen = |scheme: &str, port: u16| {
        if port > 0 {
            server.listen.push(format!("{scheme}://{}", at(bind(host), port)));
        }
    };
    listen("tls", section.number("bindPort").unwrap_or(PORT));
    for (key, scheme) in [("quicBindPort", "quic"), ("kcpBindPort", "kcp")] {
        if let Some(port) = section.number(key) {
            listen(scheme, port);
        }
    }
    let proxies = section.text("proxyBindAddr").unwrap_or(host);
    let proxies = if is_everywhere(proxies) || ip(bind(proxies)).is_some() {
        proxies
    } else {
        let key = if section.has("proxyBindAddr") { "proxyBindAddr" } else { "bindAddr" };
        let why = "a listener has a literal address; services are at 127.0.0.1 until \
                   `public_bind` is changed";
        section.note_at(key, why, "`public_bind`, `http.listen`");
        "127.0.0.1"
    };
    if !is_everywhere(proxies) {
        set(&mut server.keys, "public_bind", text(bind(proxies)));
    }
    let door = |key| {
        let port: u16 = section.number(key)?;
        (port > 0).then(|| at(bind(proxies), port))
    };
    server.http.extend(door("vhostHTTPPort"));
    server.tls_routes.extend(door("vhostHTTPSPort"));
    if !server.http.is_empty()
        && let Some(page) = section.path("custom404Page")
    {
        set(&mut server.keys, "http.pages.not_found", text(page));
    }
    ports(section, plan);
    tls(section, plan);
    if let Some(port) = section.number::<u16>("webServer.port").filter(|port| *port > 0) {
        let host = section.text("webServer.addr").unwrap_or("127.0.0.1");
        plan.server.admin = Some(at(bind(host), port));
    }
    super::client::log(section, &mut plan.server.keys);
    section.text("auth.token");
    section.text("subDomainHost")
}

/// The ports that clients may use: each client gets the ports that it publishes.
fn ports(section: &Section<'_>, plan: &mut Plan) {
    let mut rights = Rights::default();
    for range in section.sections("allowPorts") {
        let number = |key| range.number::<u16>(key).map(|port| port.to_string());
        let ports = match (number("start"), number("end"), number("single")) {
            (Some(start), Some(end), _) => format!("{start}-{end}"),
            (_, _, Some(single)) => single,
            _ => continue,
        };
        rights.tcp.push(ports);
    }
    rights.udp.clone_from(&rights.tcp);
    if !rights.tcp.is_empty() {
        plan.server.to_come = rights;
    }
    if let Some(most) = section.number::<u32>("maxPortsPerClient").filter(|most| *most > 0) {
        set(&mut plan.server.limits, "ports", Value::Number(most.to_string()));
    }
}

fn tls(section: &Section<'_>, plan: &mut Plan) {
    let pair = (section.path("transport.tls.certFile"), section.path("transport.tls.keyFile"));
    if let (Some(cert), Some(key)) = pair {
        plan.server.identity = Some((cert, key));
    }
    if let Some(ca) = section.path("transport.tls.trustedCaFile") {
        set(&mut plan.server.keys, "tls.client_ca", text(ca));
        section.note_at(
            "transport.tls.trustedCaFile",
            "the name in a client's certificate has to be the `name` of the client here",
            "`name` in both files",
        );
    }
}

//! The general part of a file of `frpc`.

use config::edit::Value;

use crate::address::{at, bind, span};
use crate::plan::{Client, Keys, Path, set, text};
use crate::section::Section;

pub(super) fn map(section: &Section<'_>, client: &mut Client) {
    let host = section.text("serverAddr").unwrap_or("127.0.0.1");
    let port = section.number("serverPort").unwrap_or(7000);
    let scheme = match section.text("transport.protocol").unwrap_or("tcp") {
        "kcp" => "kcp",
        "quic" => "quic",
        "websocket" | "wss" => "wss",
        _ => "tls",
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut path = Path::new(scheme, host, port);
    path.sni = section.text("transport.tls.serverName").map(str::to_owned);
    client.servers.push(path);
    client.ca = section.path("transport.tls.trustedCaFile");
    let pair = (section.path("transport.tls.certFile"), section.path("transport.tls.keyFile"));
    if let (Some(cert), Some(key)) = pair {
        client.identity = Some((cert, key));
    }
    section.text("auth.token");
    if let Some(proxy) = section.text("transport.proxyURL") {
        if matches!(scheme, "quic" | "kcp") {
            let why = "a proxy carries TCP alone, and frp does not use it for this protocol either";
            section.lacks("transport.proxyURL", why, "`servers: tls://…` or `wss://…`");
        } else if proxy.starts_with("http://") || proxy.starts_with("socks5://") {
            set(&mut client.keys, "proxy", text(proxy));
        } else {
            let why = "this kind of proxy is not spoken";
            section.lacks("transport.proxyURL", why, "`proxy` with http:// or socks5://");
        }
    }
    if let Some(interval) = section.number::<i64>("transport.heartbeatInterval")
        && let Ok(seconds) = u32::try_from(interval)
        && seconds > 0
        && let Some(span) = span(&seconds.to_string())
    {
        set(&mut client.keys, "keepalive", text(span));
    }
    if let Some(stun) = section.text("natHoleStunServer") {
        set(&mut client.keys, "p2p.stun", Value::List(vec![text(stun)]));
    }
    if let Some(port) = section.number::<u16>("webServer.port").filter(|port| *port > 0) {
        let host = section.text("webServer.addr").unwrap_or("127.0.0.1");
        let listen = at(bind(host), port);
        set(&mut client.keys, "admin.listen", text(&listen));
        client.admin = Some(listen);
    }
    log(section, &mut client.keys);
}

/// `log` of both sides.
pub(super) fn log(section: &Section<'_>, keys: &mut Keys) {
    if let Some(level) = section.text("log.level") {
        let known = ["trace", "debug", "info", "warn", "error"];
        if let Some(level) = known.into_iter().find(|known| level.eq_ignore_ascii_case(known)) {
            set(keys, "log.level", text(level));
        } else {
            section.lacks("log.level", "there is no such level", "`log.level: info`");
        }
    }
    if let Some(file) = section.text("log.to").filter(|to| *to != "console") {
        set(keys, "log.file", text(section.source.path(file)));
    }
}

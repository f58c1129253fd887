//! The plugins of proxies, which serve visitors instead of a local port.

use crate::address::{at, host_port, local};
use crate::plan::{Service, text, texts_by_name};
use crate::section::Section;

const NO_SERVICE: &str = "no service is written";

/// The service with the target that its plugin implies. `None`: it has no counterpart.
pub(super) fn map(section: &Section<'_>, mut service: Service) -> Option<Service> {
    let kind = section.text("plugin.type").unwrap_or_default();
    let is_port = service.public.iter().all(|public| public.starts_with("tcp://"));
    match kind {
        "unix_domain_socket" => {
            let path = section.text("plugin.unixPath").filter(|path| path.starts_with('/'));
            let Some(path) = path else {
                section
                    .lacks_all("the path of the socket is not absolute; no service is written", "");
                return None;
            };
            service.target = format!("unix://{path}");
        }
        "socks5" | "http_proxy" if is_port => exit(section, kind, &mut service),
        "static_file" => files(section, &mut service)?,
        "http2https" | "https2http" | "https2https" | "http2http" => {
            bridge(section, kind, is_port, &mut service)?;
        }
        "tls2raw" => {
            let why = format!("TLS of a port does not end here; {NO_SERVICE}");
            section.lacks_all(&why, "an `https://` name, or a target with TLS at a `tls://` name");
            return None;
        }
        "virtual_net" => {
            let why = format!("there is no virtual network; {NO_SERVICE}");
            section.lacks_all(&why, "a private service for each port, `socks5://` forwards");
            return None;
        }
        _ => {
            section.lacks_all(&format!("this plugin is not known here; {NO_SERVICE}"), "`target`");
            return None;
        }
    }
    Some(service)
}

/// A proxy into the network of the client. Without a password it is reserved for the server.
fn exit(section: &Section<'_>, kind: &str, service: &mut Service) {
    service.target = if kind == "socks5" { "socks5" } else { "http-proxy" }.to_owned();
    let keys = match kind {
        "socks5" => ("plugin.username", "plugin.password"),
        _ => ("plugin.httpUser", "plugin.httpPassword"),
    };
    if !service.public.is_empty() && !password(section, keys, service) {
        for public in &mut service.public {
            *public = public.replace("tcp://:", "tcp://127.0.0.1:");
        }
        let why =
            "a proxy without a password is not published: programs on the server alone use it";
        section.note_at("plugin", why, "`basic_auth`, `allow_from`");
    }
}

fn files(section: &Section<'_>, service: &mut Service) -> Option<()> {
    let folder = section.path("plugin.localPath");
    let Some(folder) = folder.filter(|folder| folder.starts_with('/')) else {
        section.lacks_all("the directory is not absolute; no service is written", "`file:///path`");
        return None;
    };
    service.target = format!("file://{folder}");
    service.set("list", config::edit::Value::Bool(true));
    let has_user = section.has("plugin.httpUser") || section.has("plugin.httpPassword");
    if has_user && service.is_http() {
        password(section, ("plugin.httpUser", "plugin.httpPassword"), service);
    } else if has_user {
        section.text("plugin.httpUser");
        section.text("plugin.httpPassword");
        service.close();
        let why = "a port asks for no password; nobody may visit until `allow_from: []` is changed";
        section.note_at("plugin", why, "`public: http://HOST` with `basic_auth`");
    }
    Some(())
}

/// The plugins that speak HTTP to their target.
fn bridge(section: &Section<'_>, kind: &str, is_port: bool, service: &mut Service) -> Option<()> {
    let place = section.text("plugin.localAddr").and_then(host_port);
    let Some((host, port)) = place else {
        section.lacks_all("`localAddr` is missing; no service is written", "`target`");
        return None;
    };
    let with_tls = kind.ends_with("https");
    let over = if with_tls { "https" } else { "http" };
    if is_port && with_tls {
        let why = "a service at a port speaks no TLS to its target; no service is written";
        section.lacks_all(why, "`public: http://HOST`");
        return None;
    }
    let over = if is_port { "tcp" } else { over };
    service.target = format!("{over}://{}", at(local(&host), port));
    for public in &mut service.public {
        // TLS of the visitor ends before the request is changed.
        *public = public.replace("tls://", "https://");
    }
    if with_tls {
        service.set("target_tls.insecure", config::edit::Value::Bool(true));
        let why = "frp verifies no certificate of the target, and nothing does here so far";
        section.note_at("plugin.localAddr", why, "`target_tls: { pin: … }`");
    }
    if service.is_http() {
        if let Some(host) = section.text("plugin.hostHeaderRewrite") {
            service.set("host_rewrite", text(host));
        }
        let pairs = section.pairs("plugin.requestHeaders.set");
        if !pairs.is_empty() {
            service.set("headers.set", texts_by_name(&pairs));
        }
    }
    Some(())
}

/// `basic_auth` of two keys. Whether there is a password.
pub(super) fn password(
    section: &Section<'_>,
    (user, word): (&str, &str),
    service: &mut Service,
) -> bool {
    let (user, word) = (section.text(user), section.text(word));
    match (user, word) {
        (Some(user), Some(word)) if !user.contains(':') => {
            service.set("basic_auth", text(format!("{user}:{word}")));
            true
        }
        (None, None) => false,
        _ => {
            let why = "a user and a password belong together; nobody may visit until `allow_from: \
                       []` is changed";
            section.note(why, "`basic_auth`");
            service.close();
            false
        }
    }
}

//! The proxies of `frpc`.

use super::{Secret, plugin};
use crate::address::{at, local};
use crate::plan::{DOMAIN, Plan, Service, rate, text, texts_by_name};
use crate::section::Section;

/// The context of a proxy.
pub(super) struct Place<'a> {
    pub(super) domain: Option<&'a str>,
    pub(super) client: usize,
    pub(super) user: &'a str,
}

/// Maps a proxy. A secret proxy is returned, because its visitors are in other files.
pub(super) fn map<'a>(
    section: Section<'a>,
    named: &'a str,
    place: &Place<'a>,
    plan: &mut Plan,
) -> Option<Secret<'a>> {
    let kind = section.text("type").unwrap_or("tcp");
    let service = match kind {
        "tcp" | "udp" => ports(&section, named, kind),
        "http" | "https" => names(&section, named, kind, place.domain),
        "stcp" | "xtcp" | "sudp" => return secret(section, named, kind, place, plan),
        "tcpmux" => {
            let why = "a name by HTTP CONNECT has no counterpart, and no service is written";
            let near = "a private service, or `tls://` where the target speaks TLS";
            section.lacks_all(why, near);
            return None;
        }
        _ => {
            section.lacks_all("the kind of this proxy is not known, and no service is written", "");
            return None;
        }
    };
    let mut service = service?;
    terms(&section, &mut service);
    limit(&section, &mut service);
    service.group = group(&section).map(str::to_owned);
    let client = &mut plan.clients[place.client];
    for mut service in by_locations(&section, service) {
        // Proxies of other clients may share the group, at a port that all of them know.
        let is_chosen = service.public.iter().any(|public| public.ends_with("://:0"));
        if service.group.is_some() && !is_chosen {
            service.share();
        }
        if !client.join(&service) {
            client.publish(service);
        }
    }
    None
}

/// The rate of a proxy, which applies to each direction: `1MB` is 1024 * 1024 bytes.
fn limit(section: &Section<'_>, service: &mut Service) {
    let Some(written) = section.text("transport.bandwidthLimit").filter(|text| !text.is_empty())
    else {
        return;
    };
    let units = [("MB", 20_u32), ("KB", 10)];
    let read = units.into_iter().find_map(|(unit, bits)| {
        let number: f64 = written.trim().strip_suffix(unit)?.trim().parse().ok()?;
        let bytes = number * f64::from(1_u32 << bits);
        (1.0..1e15).contains(&bytes).then_some(bytes)
    });
    // Our rates are whole bytes.
    let value = read.and_then(|bytes| rate(format!("{bytes:.0}").parse().ok()?));
    match value {
        Some(value) => {
            service.set("limits.up", value.clone());
            service.set("limits.down", value);
        }
        None => section.note_at("transport.bandwidthLimit", "it is no rate", "`limits.up`, `down`"),
    }
}

/// The group of a proxy.
fn group<'a>(section: &Section<'a>) -> Option<&'a str> {
    section.text("loadBalancer.group").filter(|group| !group.is_empty())
}

/// The target of a proxy, which a plugin may replace.
fn target(section: &Section<'_>, over: &str) -> Option<String> {
    let port: u16 = section.number("localPort")?;
    let host = section.text("localIP").unwrap_or("127.0.0.1");
    Some(format!("{over}://{}", at(local(host), port)))
}

fn ports(section: &Section<'_>, named: &str, kind: &str) -> Option<Service> {
    if section.has("localPorts") {
        return range(section, named, kind);
    }
    let port: u16 = section.number("remotePort").unwrap_or(0);
    let mut service = Service::new(named, "", format!("{kind}://:{port}"));
    if section.has("plugin") {
        return plugin::map(section, service);
    }
    match target(section, kind) {
        Some(target) => service.target = target,
        None => {
            section
                .lacks_all("`localPort` is missing or no port; no service is written", "`target`");
            return None;
        }
    }
    Some(service)
}

/// Ranges of the INI format: `6000-6006,6007` on both sides.
fn range(section: &Section<'_>, named: &str, kind: &str) -> Option<Service> {
    let (near, far) = (section.texts("localPorts"), section.texts("remotePorts"));
    let host = section.text("localIP").unwrap_or("127.0.0.1");
    let width = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        last.checked_sub(first)
    };
    match (near.as_slice(), far.as_slice()) {
        ([near], [far]) if width(near).is_some() && width(near) == width(far) => {
            let target = format!("{kind}://{}:{near}", bracketed(local(host)));
            Some(Service::new(named, target, format!("{kind}://:{far}")))
        }
        _ => {
            let why = "a service has one range on each side, of one width; none is written";
            section.lacks_all(why, "a service for each range");
            None
        }
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn names(section: &Section<'_>, named: &str, kind: &str, domain: Option<&str>) -> Option<Service> {
    let mut hosts: Vec<String> = Vec::new();
    for host in section.texts("customDomains") {
        hosts.push(host.to_ascii_lowercase());
    }
    if let Some(label) = section.text("subdomain") {
        hosts.push(format!("{}.{}", label.to_ascii_lowercase(), domain.unwrap_or(DOMAIN)));
        if domain.is_none() {
            let why = "`subDomainHost` is in the file of frps; the name ends in example.com here";
            section.note_at("subdomain", why, "import frps.toml as well, or use --domain");
        }
    }
    hosts.retain(|host| host == "*" || crate::address::is_name(host));
    if hosts.is_empty() {
        section.lacks_all("no host name of ours is in it, and no service is written", "`public`");
        return None;
    }
    let scheme = if kind == "http" { "http" } else { "tls" };
    let public = hosts.iter().map(|host| format!("{scheme}://{host}")).collect();
    let mut service = Service { name: named.to_owned(), public, ..Service::default() };
    if section.has("plugin") {
        return plugin::map(section, service);
    }
    let over = if kind == "http" { "http" } else { "tcp" };
    match target(section, over) {
        Some(target) => service.target = target,
        None => {
            section
                .lacks_all("`localPort` is missing or no port; no service is written", "`target`");
            return None;
        }
    }
    Some(service)
}

/// The terms that all kinds share.
fn terms(section: &Section<'_>, service: &mut Service) {
    if service.is_http() {
        plugin::password(section, ("httpUser", "httpPassword"), service);
        if let Some(host) = section.text("hostHeaderRewrite") {
            service.set("host_rewrite", text(host));
        }
        for (from, ours) in
            [("requestHeaders.set", "headers.set"), ("responseHeaders.set", "response_headers.set")]
        {
            let pairs = section.pairs(from);
            if !pairs.is_empty() {
                service.set(ours, texts_by_name(&pairs));
            }
        }
    }
    if section.has("routeByHTTPUser") {
        service.close();
    }
    let is_udp = service.public.iter().any(|public| public.starts_with("udp://"));
    if !is_udp && let Some(version @ ("v1" | "v2")) = section.text("transport.proxyProtocolVersion")
    {
        service.set("proxy_protocol", text(version));
    }
    if section.text("healthCheck.type").is_some() {
        let seconds = |key, least: u32| {
            let number: Option<u32> = section.number(key);
            number.filter(|n| *n > 0).map(|n| n.clamp(least, 86_400))
        };
        let interval = seconds("healthCheck.intervalSeconds", 1).unwrap_or(10);
        let timeout = seconds("healthCheck.timeoutSeconds", 1).unwrap_or(3).min(interval);
        if is_udp || service.target.contains("unix://") || !service.target.contains("://") {
            section.note_at("healthCheck", "only targets of TCP are checked", "`health`");
        } else {
            service.set("health.interval", text(format!("{interval}s")));
            service.set("health.timeout", text(format!("{timeout}s")));
            if section.text("healthCheck.type") == Some("http")
                && let Some(path) = section.text("healthCheck.path")
            {
                service.set("health.path", text(format!("/{}", path.trim_start_matches('/'))));
            }
        }
    }
}

/// A service for each of `locations`.
fn by_locations(section: &Section<'_>, service: Service) -> Vec<Service> {
    let paths = if service.is_http() { section.texts("locations") } else { Vec::new() };
    let mut all = Vec::new();
    for path in paths.iter().filter(|path| !path.trim_end_matches('/').is_empty()) {
        let mut one = service.clone();
        one.set("path", text(path.trim_end_matches('/')));
        all.push(one);
    }
    // `/` covers every path.
    if all.len() < paths.len() {
        all.clear();
    }
    if all.is_empty() { vec![service] } else { all }
}

fn secret<'a>(
    section: Section<'a>,
    named: &'a str,
    kind: &str,
    place: &Place<'a>,
    plan: &mut Plan,
) -> Option<Secret<'a>> {
    let is_udp = kind == "sudp";
    let mut service = Service::private(named, String::new(), Vec::new());
    if section.has("plugin") {
        service = plugin::map(&section, service)?;
    } else {
        match target(&section, if is_udp { "udp" } else { "tcp" }) {
            Some(target) => service.target = target,
            None => {
                section.lacks_all(
                    "`localPort` is missing or no port; no service is written",
                    "`target`",
                );
                return None;
            }
        }
    }
    let key = section.text("secretKey").unwrap_or_default();
    let users = section.texts("allowUsers");
    let client = &mut plan.clients[place.client];
    client.publish(service);
    let name = client.services.last().map(|service| service.name.clone()).unwrap_or_default();
    let (client, user) = (place.client, place.user);
    Some(Secret { client, user, wanted: named, name, key, users, section, is_udp })
}

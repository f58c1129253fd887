//! `target`: what a service or a forward dials, possibly a range of ports.

use std::net::Ipv6Addr;

use proto::{Redirect, ScopedAddr, TargetProtocol};

use super::spread::{Listed, listed};
use crate::address::{HTTP_PROXY, Kind, Ports, Role, SOCKS5, directory, unix};
use crate::endpoint::split;
use crate::model::Public;
use crate::section::Section;
use crate::{BadValue, Host, Over, Target, yaml};

/// The value of `target`.
#[derive(Debug)]
pub(super) enum Targets {
    /// Protocol, host, first and last port. Without a scheme the protocol of the visitors applies.
    Ports(Option<Over>, Host, u16, u16),
    /// A target without ports, which serves every port of a range.
    One(Target),
}

impl Targets {
    /// The name of a service of this target that has neither a name nor a public port of its own.
    /// `over` is the protocol of the visitors.
    pub(super) fn name(&self, over: Over) -> String {
        let plain = |text: &str| {
            let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
            text.chars().take(32).map(plain).collect::<String>()
        };
        let last = |path: &str| plain(path.rsplit('/').next().unwrap_or_default());
        match self {
            Self::Ports(_, _, port, _) => format!("{over}-{port}"),
            Self::One(Target::Unix(address)) => {
                let place = address.place();
                format!("unix-{}", last(place.strip_suffix(".sock").unwrap_or(place)))
            }
            Self::One(Target::Files(path)) => format!("files-{}", last(&path.to_string_lossy())),
            Self::One(Target::Socks5) => SOCKS5.to_owned(),
            Self::One(Target::HttpProxy) => HTTP_PROXY.to_owned(),
            Self::One(Target::Https { port, .. }) => format!("https-{port}"),
            Self::One(Target::H2c { port, .. }) => format!("h2c-{port}"),
            Self::One(Target::Tls { port, .. }) => format!("tls-{port}"),
            Self::One(Target::Redirect(_)) => "redirect".to_owned(),
            Self::One(Target::Private(service)) => plain(service.service.as_str()),
            Self::One(Target::Tcp { port, .. } | Target::Udp { port, .. }) => {
                format!("{over}-{port}")
            }
        }
    }

    /// The target of the nth port of a range for visitors of this protocol. A single target serves
    /// all ports.
    pub(super) fn nth(&self, n: u16, over: Over) -> Target {
        match self {
            Self::Ports(_, host, first, last) => {
                let port = if last > first { first.saturating_add(n) } else { *first };
                Target::at(over, host.clone(), port)
            }
            Self::One(target) => target.clone(),
        }
    }

    /// The protocol of the target.
    pub(super) const fn protocol(&self) -> TargetProtocol {
        match self {
            Self::Ports(..) => TargetProtocol::Http,
            Self::One(target) => target.protocol(),
        }
    }

    /// Whether visitors choose what the client dials.
    pub(super) const fn is_exit(&self) -> bool {
        match self {
            Self::Ports(..) => false,
            Self::One(target) => target.is_exit(),
        }
    }

    /// The protocol of the target of a service with these addresses: the protocol of the visitors,
    /// or the protocol in the file where visitors come over both.
    pub(super) fn over(&self, public: &[Public]) -> Over {
        let is = |over| public.iter().any(|public| public.over() == over);
        match (is(Over::Tcp), is(Over::Udp), self) {
            (true, false, _) => Over::Tcp,
            (false, true, _) => Over::Udp,
            (_, _, Self::Ports(Some(over), ..)) => *over,
            (_, _, Self::Ports(None, ..) | Self::One(_)) => Over::Tcp,
        }
    }

    /// The number of ports after the first.
    pub(super) const fn width(&self) -> u16 {
        match self {
            Self::Ports(_, _, first, last) => *last - *first,
            Self::One(_) => 0,
        }
    }

    /// The target, unless it is a range of ports. Without a scheme it gets the protocol `over`.
    pub(super) fn one(&self, over: Over) -> Option<Target> {
        let over = match self {
            Self::Ports(Some(of), ..) => *of,
            Self::Ports(None, ..) | Self::One(_) => over,
        };
        (self.width() == 0).then(|| self.nth(0, over))
    }
}

/// Decodes `target`. `None` after a problem. `redirect`: the service has a redirect address instead
/// of a target.
pub(super) fn target(s: &Section<'_>, redirect: Option<&Redirect>) -> Option<Listed> {
    target_by(s, redirect, parse_target)
}

/// A function that reads the text of a target.
pub(super) type Parse = fn(&str) -> Result<Targets, BadValue>;

/// Decodes `target` as [`target()`] does, each address with `parse`.
pub(super) fn target_by(
    s: &Section<'_>,
    redirect: Option<&Redirect>,
    parse: Parse,
) -> Option<Listed> {
    if let Some(to) = redirect {
        if s.has("target") {
            let bad =
                BadValue::new(format!("a service that redirects to {} has no target", to.as_str()));
            s.bad("target", bad.hint("remove `target` or `redirect`"));
            return None;
        }
        return Some(Targets::One(Target::Redirect(to.clone())).into());
    }
    let Some(item) = s.key("target") else {
        s.missing("target", "for example tcp://127.0.0.1:22");
        return None;
    };
    if matches!(item.node.kind, yaml::Kind::List(_)) {
        return listed(s, &item, parse);
    }
    s.cx.value(&item, parse).map(Listed::from)
}

/// Parses a target, which may be a range of ports.
pub(super) fn parse_target(text: &str) -> Result<Targets, BadValue> {
    let word = text.strip_suffix("://").unwrap_or(text);
    if word == SOCKS5 {
        return Ok(Targets::One(Target::Socks5));
    }
    if word == HTTP_PROXY {
        return Ok(Targets::One(Target::HttpProxy));
    }
    if let Some(path) = directory(text) {
        return path.map(|path| Targets::One(Target::Files(path)));
    }
    if let Some(service) = text.strip_prefix("service://") {
        return service.parse().map(|service| Targets::One(Target::Private(service)));
    }
    match unix(text) {
        Some(address) => address.map(|address| Targets::One(Target::Unix(address))),
        None => of_ports(text),
    }
}

/// Parses a target of a proxy: a dialled address, with or without TLS.
pub(super) fn parse_of_proxy(text: &str) -> Result<Targets, BadValue> {
    if let Some(rest) = text.strip_prefix("tls://") {
        return match of_ports(&http_target(text, rest, 443)?)? {
            Targets::Ports(_, host, first, last) if first == last => {
                Ok(Targets::One(Target::Tls { host, port: first }))
            }
            Targets::Ports(..) | Targets::One(_) => {
                Err(BadValue::new(format!("`{text}` is a range of ports")).hint(ONE_PORT))
            }
        };
    }
    match parse_target(text)? {
        Targets::Ports(_, _, first, last) if first != last => {
            Err(BadValue::new(format!("`{text}` is a range of ports")).hint(ONE_PORT))
        }
        targets @ (Targets::Ports(..) | Targets::One(Target::Unix(_))) => Ok(targets),
        Targets::One(target) => {
            Err(BadValue::new(format!("{target} is for a service: a proxy dials an address"))
                .hint("tcp://host:port, tls://host:port, udp://host:port or unix:///path"))
        }
    }
}

/// The hint for a range of ports as a target of a proxy.
const ONE_PORT: &str = "an entry of `proxies` has one port: write an entry for each";

/// Reads a target for one connection: on the server's side `host:port`, `tcp://host:port` or
/// `unix:///path`, or a private service of another client, `service://CLIENT/SERVICE`. The port is
/// always given, so an IPv6 address needs no brackets: `::1:22`.
///
/// # Errors
/// The text is an address of another kind, or no address.
pub fn connect_target(text: &str) -> Result<Target, BadValue> {
    let bare = text.rsplit_once(':').and_then(|(host, port)| {
        let is_v6 = host.parse::<Ipv6Addr>().is_ok() || host.parse::<ScopedAddr>().is_ok();
        is_v6.then(|| format!("[{host}]:{port}"))
    });
    let bad = |why: &str| {
        BadValue::new(format!("`{text}` {why}"))
            .hint("host:port, tcp://host:port, unix:///path or service://CLIENT/SERVICE")
    };
    match parse_target(bare.as_deref().unwrap_or(text))?.one(Over::Tcp) {
        None => Err(bad("is a range of ports")),
        Some(target @ (Target::Tcp { .. } | Target::Unix(_) | Target::Private(_))) => Ok(target),
        Some(Target::Udp { .. }) => Err(bad("takes datagrams, and this is a byte stream")),
        Some(
            Target::Socks5
            | Target::HttpProxy
            | Target::Files(_)
            | Target::Https { .. }
            | Target::H2c { .. }
            | Target::Tls { .. }
            | Target::Redirect(_),
        ) => Err(bad("is for a service")),
    }
}

fn of_ports(text: &str) -> Result<Targets, BadValue> {
    let of_http;
    let text = match text.split_once("://") {
        Some(("http", rest)) => {
            of_http = http_target(text, rest, 80)?;
            of_http.as_str()
        }
        Some((scheme @ ("https" | "h2c"), rest)) => return of_site(scheme, text, rest),
        Some(("tls", rest)) => {
            let at = if rest.contains(':') { rest.to_owned() } else { format!("{rest}:443") };
            return Err(BadValue::new("a target of tls:// is not supported").hint(format!(
                "https://{at} for a web site; tcp://{at} with `public: tls://NAME` carries TLS \
                 unchanged"
            )));
        }
        Some(_) | None => text,
    };
    let Ports { kind, host, first, last } = Ports::parse(text, Role::Target)?;
    let over = match kind {
        None => None,
        Some(Kind::Udp) => Some(Over::Udp),
        // Only listeners have the other kinds.
        Some(Kind::Tcp | Kind::Socks5 | Kind::HttpProxy) => Some(Over::Tcp),
    };
    match (host, first) {
        (None, _) => Err(BadValue::new(format!("`{text}` has no host"))
            .hint(format!("for example {}://127.0.0.1:22", over.unwrap_or(Over::Tcp)))),
        (_, 0) => Err(BadValue::new("port 0 cannot be dialled")),
        (Some(host), first) => Ok(Targets::Ports(over, host, first, last)),
    }
}

/// The TCP address of `http://host[:port]`. `port` is the default port of the scheme.
fn http_target(text: &str, rest: &str, port: u16) -> Result<String, BadValue> {
    if rest.contains(['/', '?', '#']) {
        return Err(BadValue::new(format!("`{text}`: a target has no path"))
            .hint("for example http://127.0.0.1:3000"));
    }
    match split(rest)? {
        (_, Some(_)) => Ok(format!("tcp://{rest}")),
        (host, None) => Ok(format!("tcp://{host}:{port}")),
    }
}

/// Reads `https://host[:port]` and `h2c://host[:port]`.
fn of_site(scheme: &str, text: &str, rest: &str) -> Result<Targets, BadValue> {
    let usual = if scheme == "https" { 443 } else { 80 };
    match of_ports(&http_target(text, rest, usual)?)? {
        Targets::Ports(_, host, first, last) if first == last => {
            Ok(Targets::One(if scheme == "https" {
                Target::Https { host, port: first }
            } else {
                Target::H2c { host, port: first }
            }))
        }
        Targets::Ports(..) | Targets::One(_) => {
            Err(BadValue::new(format!("`{text}` is a range of ports"))
                .hint("a web site has one target"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_one_target_of_streams() {
        let shown = |text: &str| connect_target(text).map(|target| target.to_string());
        for (text, long) in [
            ("db.internal:5432", "tcp://db.internal:5432"),
            ("tcp://10.0.0.5:22", "tcp://10.0.0.5:22"),
            ("::1:22", "tcp://[::1]:22"),
            ("2001:db8::5:22", "tcp://[2001:db8::5]:22"),
            ("[2001:db8::5]:22", "tcp://[2001:db8::5]:22"),
            ("fe80::5%eth0:22", "tcp://[fe80::5%eth0]:22"),
            ("22", "tcp://localhost:22"),
            ("unix:///run/app.sock", "unix:///run/app.sock"),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(long), "{text}");
        }
        for bad in ["", "a", "a:0", "a:1-2", "udp://a:1", "socks5", "file:///srv", "::1", "a:b:1"] {
            assert!(shown(bad).is_err(), "{bad}");
        }
    }
}

//! The addresses of services and forwards as users write them: `tcp://[::1]:22`, `udp://:5353`,
//! `unix:///run/app.sock`, `socks5://127.0.0.1:1080`, `file:///srv/www`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use proto::{Redirect, ScopedAddr, TargetProtocol, UnixAddr, UnixAddrError};

use crate::endpoint::{ports, split};
use crate::{BadValue, Host, Over, PrivateService};

/// What a service or a forward dials: `tcp://host:port`, `udp://host:port`, `unix:///path`. Only
/// services have web sites over TLS or HTTP/2, `https://host:port` and `h2c://host:port`, and the
/// client itself as the target: `socks5`, `http-proxy` and `file:///path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A TCP address. For a service with ports of both protocols, datagrams go to the UDP port of
    /// the same number.
    Tcp {
        /// Name or address.
        host: Host,
        /// At least 1.
        port: u16,
    },
    /// A UDP address. For a service with ports of both protocols, streams go to the TCP port of the
    /// same number.
    Udp {
        /// Name or address.
        host: Host,
        /// At least 1.
        port: u16,
    },
    /// A TCP address whose service speaks HTTP over TLS. The side that dials starts TLS.
    Https {
        /// Name or address.
        host: Host,
        /// At least 1.
        port: u16,
    },
    /// A TCP address whose service speaks HTTP/2 without TLS and expects its preface (RFC 9113
    /// section 3.3).
    H2c {
        /// Name or address.
        host: Host,
        /// At least 1.
        port: u16,
    },
    /// A Unix socket on the machine that dials.
    Unix(UnixAddr),
    /// The client is a SOCKS5 proxy for visitors (RFC 1928) and dials the destinations that they
    /// request.
    Socks5,
    /// The client is an HTTP proxy for visitors (CONNECT of RFC 9110 section 9.3.6, absolute-form
    /// of RFC 9112 section 3.2.2).
    HttpProxy,
    /// The client serves the files of this directory over HTTP. The path is absolute.
    Files(PathBuf),
    /// Nothing: the server sends the visitors to this address.
    Redirect(Redirect),
    /// An address `host:port` that this machine dials with TLS. Only targets of a proxy have this
    /// form.
    Tls {
        /// Host to dial.
        host: Host,
        /// Port to dial.
        port: u16,
    },
    /// A private service of another client, `service://CLIENT/SERVICE`. Only forwards have this
    /// form.
    Private(PrivateService),
}

impl Target {
    /// Whether the visitors choose the destinations that the client dials.
    #[must_use]
    pub const fn is_exit(&self) -> bool {
        match self {
            Self::Socks5 | Self::HttpProxy => true,
            Self::Tcp { .. }
            | Self::Udp { .. }
            | Self::Https { .. }
            | Self::H2c { .. }
            | Self::Tls { .. }
            | Self::Unix(_)
            | Self::Files(_)
            | Self::Redirect(_)
            | Self::Private(_) => false,
        }
    }

    /// The protocol that a server which reads requests speaks to the target.
    #[must_use]
    pub const fn protocol(&self) -> TargetProtocol {
        match self {
            Self::Https { .. } => TargetProtocol::Https,
            Self::H2c { .. } => TargetProtocol::H2c,
            Self::Tcp { .. }
            | Self::Udp { .. }
            | Self::Tls { .. }
            | Self::Unix(_)
            | Self::Socks5
            | Self::HttpProxy
            | Self::Files(_)
            | Self::Redirect(_)
            | Self::Private(_) => TargetProtocol::Http,
        }
    }

    /// The host and the port, whatever the protocol.
    #[must_use]
    pub const fn port(&self) -> Option<(&Host, u16)> {
        match self {
            Self::Tcp { host, port }
            | Self::Udp { host, port }
            | Self::Https { host, port }
            | Self::H2c { host, port }
            | Self::Tls { host, port } => Some((host, *port)),
            Self::Unix(_)
            | Self::Socks5
            | Self::HttpProxy
            | Self::Files(_)
            | Self::Redirect(_)
            | Self::Private(_) => None,
        }
    }

    /// The address with this protocol and host.
    pub(crate) const fn at(over: Over, host: Host, port: u16) -> Self {
        match over {
            Over::Tcp => Self::Tcp { host, port },
            Over::Udp => Self::Udp { host, port },
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Self::Udp { host, port } => write!(f, "udp://{host}:{port}"),
            Self::Https { host, port } => write!(f, "https://{host}:{port}"),
            Self::H2c { host, port } => write!(f, "h2c://{host}:{port}"),
            Self::Tls { host, port } => write!(f, "tls://{host}:{port}"),
            Self::Unix(address) => address.fmt(f),
            Self::Socks5 => f.write_str(SOCKS5),
            Self::HttpProxy => f.write_str(HTTP_PROXY),
            Self::Files(path) => write!(f, "file://{}", path.display()),
            Self::Redirect(to) => f.write_str(to.as_str()),
            Self::Private(service) => write!(f, "{SERVICE}://{service}"),
        }
    }
}

/// Scheme of the services of other clients.
pub(crate) const SERVICE: &str = "service";

/// Scheme and target word of SOCKS5.
pub(crate) const SOCKS5: &str = "socks5";

/// Scheme and target word of HTTP proxies.
pub(crate) const HTTP_PROXY: &str = "http-proxy";

/// An address of this machine and a port. A link-local address may name its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddr {
    ip: LocalIp,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LocalIp {
    Plain(IpAddr),
    Scoped(ScopedAddr),
}

impl LocalAddr {
    /// Parses the address in a text; `None` for a name.
    pub(crate) fn of(host: Host, port: u16) -> Option<Self> {
        match host {
            Host::Name(_) => None,
            Host::Ip(ip) => Some(Self { ip: LocalIp::Plain(ip), port }),
            Host::Scoped(at) => Some(Self { ip: LocalIp::Scoped(at), port }),
        }
    }

    /// The address without its interface.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        match &self.ip {
            LocalIp::Plain(ip) => *ip,
            LocalIp::Scoped(at) => at.ip().into(),
        }
    }

    /// The address with its interface, if it names an interface.
    #[must_use]
    pub const fn link(&self) -> Option<&ScopedAddr> {
        match &self.ip {
            LocalIp::Plain(_) => None,
            LocalIp::Scoped(at) => Some(at),
        }
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The same address with another port.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Self {
        Self { port, ..self.clone() }
    }
}

impl fmt::Display for LocalAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.ip {
            LocalIp::Plain(ip) => SocketAddr::new(*ip, self.port).fmt(f),
            LocalIp::Scoped(at) => write!(f, "[{at}]:{}", self.port),
        }
    }
}

/// The address on which a forward listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// A TCP address; port 0 lets the system choose.
    Tcp(LocalAddr),
    /// A UDP address; port 0 lets the system choose.
    Udp(LocalAddr),
    /// A Unix socket.
    Unix {
        /// The address of the socket.
        address: UnixAddr,
        /// The permission bits of the socket file, such as `0o600`. They decide which programs may
        /// connect (unix(7)).
        mode: u32,
    },
    /// The TCP address of a SOCKS5 proxy, whose destinations the server dials.
    Socks5(LocalAddr),
    /// The TCP address of an HTTP proxy, whose destinations the server dials.
    HttpProxy(LocalAddr),
}

impl Local {
    /// Whether the connecting programs name their destination themselves. Such a forward has no
    /// target.
    #[must_use]
    pub const fn is_proxy(&self) -> bool {
        match self {
            Self::Socks5(_) | Self::HttpProxy(_) => true,
            Self::Tcp(_) | Self::Udp(_) | Self::Unix { .. } => false,
        }
    }

    /// The protocol and the address of the socket; `None` for a Unix socket.
    #[must_use]
    pub const fn socket(&self) -> Option<(Over, &LocalAddr)> {
        match self {
            Self::Tcp(at) | Self::Socks5(at) | Self::HttpProxy(at) => Some((Over::Tcp, at)),
            Self::Udp(at) => Some((Over::Udp, at)),
            Self::Unix { .. } => None,
        }
    }
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::Udp(address) => write!(f, "udp://{address}"),
            Self::Unix { address, .. } => address.fmt(f),
            Self::Socks5(address) => write!(f, "{SOCKS5}://{address}"),
            Self::HttpProxy(address) => write!(f, "{HTTP_PROXY}://{address}"),
        }
    }
}

/// Parses a Unix socket; `None` for another scheme.
pub(crate) fn unix(text: &str) -> Option<Result<UnixAddr, BadValue>> {
    match text.parse() {
        Ok(address) => Some(Ok(address)),
        Err(UnixAddrError::Scheme) => None,
        Err(rule) => {
            let bad = BadValue::new(format!("`{text}` is not a Unix socket"));
            Some(Err(bad.hint(rule.to_string())))
        }
    }
}

/// The host of a target that is only a port: this machine over IPv4 and IPv6. Development servers
/// listen at `[::1]` alone where the system resolves `localhost` to `::1` first.
const LOCALHOST: &str = "localhost";

/// The address of a listener that is only a port.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The position of an address in a file, which decides which schemes are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// `public` of a service. A text of ports alone names no host.
    Public,
    /// `target` of a service or a forward. A text of ports alone means `localhost`.
    Target,
    /// `listen` of a forward. A text of ports alone means 127.0.0.1.
    Listen,
}

/// The scheme of an address with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp,
    Udp,
    Socks5,
    HttpProxy,
}

/// Ports as services and forwards write them: `tcp://[host]:a[-b]`, or a short form without the
/// scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    /// `None`: the text names no scheme.
    pub(crate) kind: Option<Kind>,
    pub(crate) host: Option<Host>,
    pub(crate) first: u16,
    pub(crate) last: u16,
}

impl Ports {
    /// Parses the address at a position of the file. If a Unix socket is permitted, the caller
    /// tries [`unix`] first.
    pub(crate) fn parse(text: &str, role: Role) -> Result<Self, BadValue> {
        if text.starts_with('/') {
            let bad = BadValue::new(format!("`{text}` has no scheme"));
            return Err(bad.hint(format!("a Unix socket is written unix://{text}")));
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (Some(scheme), rest),
            None => (None, text),
        };
        let kind = scheme.map(|scheme| kind(scheme, role)).transpose()?;
        if has_user(rest) {
            return Err(BadValue::new(USER).hint(role.passwords()));
        }
        let is_ports = rest.starts_with(|c: char| c.is_ascii_digit())
            && rest.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        if is_ports {
            let (first, last) = ports(rest)?;
            let host = match role {
                Role::Public => None,
                Role::Target => Some(Host::Name(LOCALHOST.to_owned())),
                Role::Listen => Some(Host::Ip(HERE)),
            };
            return Ok(Self { kind, host, first, last });
        }
        let (host, port) = split(rest)?;
        let Some(port) = port else {
            let hint = match kind {
                Some(Kind::Udp) => role.example().replace("tcp", "udp"),
                None | Some(Kind::Tcp | Kind::Socks5 | Kind::HttpProxy) => {
                    role.example().to_owned()
                }
            };
            return Err(BadValue::new(format!("`{text}` has no port")).hint(hint));
        };
        if !host.is_empty() && host.bytes().all(|b| b.is_ascii_digit()) {
            let bad = BadValue::new(format!("`{host}` is a number and no host"));
            return Err(bad.hint(format!("two ports are written {host}={port}")));
        }
        let host = if host.is_empty() { None } else { Some(host.parse()?) };
        let (first, last) = ports(port)?;
        Ok(Self { kind, host, first, last })
    }
}

/// The error for an address with a user name or a password. The error repeats neither.
pub(crate) const USER: &str = "an address has no user and no password";

/// Whether the text after a scheme has a user name or a password before its host.
pub(crate) fn has_user(rest: &str) -> bool {
    rest.split(['/', '?', '#']).next().is_some_and(|place| place.contains('@'))
}

impl Role {
    /// Where user names and passwords belong.
    const fn passwords(self) -> &'static str {
        match self {
            Self::Public => {
                "visitors of a port log in at the target; those of http:// and https:// names are \
                 asked by `basic_auth: [\"user:password\"]` of the service"
            }
            Self::Target => {
                "visitors log in at the target themselves; those of http:// and https:// names are \
                 asked by `basic_auth: [\"user:password\"]` of the service"
            }
            Self::Listen => {
                "the programs that use a proxy are asked by `basic_auth: [\"user:password\"]` of \
                 the forward in the configuration file"
            }
        }
    }

    const fn example(self) -> &'static str {
        match self {
            Self::Public => "for example tcp://:10022 or udp://:5353",
            Self::Target => "for example tcp://127.0.0.1:22",
            Self::Listen => "for example tcp://127.0.0.1:5203",
        }
    }
}

fn kind(scheme: &str, role: Role) -> Result<Kind, BadValue> {
    match (scheme, role) {
        ("tcp", _) => Ok(Kind::Tcp),
        ("udp", _) => Ok(Kind::Udp),
        (SOCKS5, Role::Listen) => Ok(Kind::Socks5),
        (HTTP_PROXY, Role::Listen) => Ok(Kind::HttpProxy),
        (SOCKS5 | HTTP_PROXY, Role::Public) => {
            let bad = BadValue::new(format!("{scheme}:// is no public address"));
            Err(bad.hint(format!("write `public: tcp://:1080` and `target: {scheme}`")))
        }
        (SOCKS5 | HTTP_PROXY, Role::Target) => {
            let bad = BadValue::new(format!("{scheme}:// with an address is no target"));
            Err(bad.hint(format!(
                "`{scheme}` alone makes this client the proxy; tcp://host:port leads to another \
                 one"
            )))
        }
        ("http" | "https" | "tls", _) => {
            let bad = BadValue::new(format!("{scheme}:// is for the `public` of a service"));
            Err(bad.hint("write tcp://host:port, which carries HTTP and TLS unchanged"))
        }
        ("http-connect" | "socks" | "socks4" | "socks5h", Role::Listen) => {
            let bad = BadValue::new(format!("unknown scheme `{scheme}`"));
            Err(bad.hint("proxies are socks5://127.0.0.1:1080 and http-proxy://127.0.0.1:3128"))
        }
        ("file", _) => {
            let bad = BadValue::new("file:// is for the `target` of a service");
            Err(bad.hint(role.example()))
        }
        (SERVICE, _) => {
            let bad = BadValue::new("service:// is for the `target` of a forward");
            Err(bad.hint(role.example()))
        }
        ("stdio" | "tun", _) => {
            let bad = BadValue::new(format!("this version does not support {scheme}://"));
            Err(bad.hint("tcp://host:port, udp://host:port and unix:///path are possible"))
        }
        _ => Err(BadValue::new(format!("unknown scheme `{scheme}`")).hint(role.example())),
    }
}

/// Parses the directory of `file:///path`. The path is taken unchanged.
pub(crate) fn directory(text: &str) -> Option<Result<PathBuf, BadValue>> {
    let path = text.strip_prefix("file://")?;
    let bad = |why: &str| BadValue::new(format!("`{text}` {why}"));
    let Some(inner) = path.strip_prefix('/') else {
        return Some(Err(bad("is no absolute path").hint("for example file:///srv/www")));
    };
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if inner.is_empty() {
        return Some(Err(bad("would publish every file of the machine").hint("name a directory")));
    }
    if inner.contains(char::is_control) {
        return Some(Err(BadValue::new("a path with control characters")));
    }
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    if !inner.split('/').all(is_plain) {
        return Some(Err(bad("has empty parts, `.` or `..`").hint("for example file:///srv/www")));
    }
    Some(Ok(PathBuf::from(format!("/{inner}"))))
}

/// Parses the address of a forward's listener. `mode` is the mode of the socket file.
pub(crate) fn local(text: &str, mode: u32) -> Result<Local, BadValue> {
    if let Some(address) = unix(text) {
        return address.map(|address| Local::Unix { address, mode });
    }
    let Ports { kind, host, first, last } = Ports::parse(text, Role::Listen)?;
    if first != last {
        let bad = BadValue::new("a forward has one port, not a range");
        return Err(bad.hint("one forward per port"));
    }
    let Some(at) = host.and_then(|host| LocalAddr::of(host, first)) else {
        let bad = BadValue::new(format!("`{text}` has no address"));
        return Err(bad.hint(Role::Listen.example()));
    };
    Ok(match kind {
        None | Some(Kind::Tcp) => Local::Tcp(at),
        Some(Kind::Udp) => Local::Udp(at),
        Some(Kind::Socks5) => Local::Socks5(at),
        Some(Kind::HttpProxy) => Local::HttpProxy(at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            for role in [Role::Public, Role::Target, Role::Listen] {
                let _ = Ports::parse(&text, role);
            }
            let _ = (directory(&text), local(&text, 0));
        }

        #[test]
        fn a_shown_listener_reads_back(ip: IpAddr, port: u16, is_of_link: bool, kind in 0..4) {
            let host = if is_of_link { "[fe80::1%eth0]".parse().unwrap() } else { Host::Ip(ip) };
            let at = LocalAddr::of(host, port).unwrap();
            let listener = match kind {
                0 => Local::Tcp(at),
                1 => Local::Udp(at),
                2 => Local::Socks5(at),
                _ => Local::HttpProxy(at),
            };
            prop_assert_eq!(local(&listener.to_string(), 0), Ok(listener));
        }
    }

    #[test]
    fn a_short_form_means_its_long_form() {
        let read = |text: &str, role| {
            let Ports { kind, host, first, last } = Ports::parse(text, role)?;
            let host = host.map(|host| host.to_string()).unwrap_or_default();
            Ok::<_, BadValue>((kind, host, first, last))
        };
        let cases = [
            ("3000", Role::Target, "localhost", 3000, 3000),
            ("3000", Role::Public, "", 3000, 3000),
            ("3000-3010", Role::Listen, "127.0.0.1", 3000, 3010),
            ("192.168.1.5:22", Role::Target, "192.168.1.5", 22, 22),
            ("nas.lan:22-24", Role::Target, "nas.lan", 22, 24),
            ("[::1]:22", Role::Public, "[::1]", 22, 22),
            (":10022", Role::Public, "", 10_022, 10_022),
        ];
        for (text, role, host, first, last) in cases {
            let all = |kind| Ok((kind, host.to_owned(), first, last));
            assert_eq!(read(text, role), all(None), "{text}");
            for (scheme, kind) in [("tcp", Kind::Tcp), ("udp", Kind::Udp)] {
                let ports = text.rsplit_once(':').map_or(text, |(_, ports)| ports);
                let long = format!("{scheme}://{host}:{ports}");
                assert_eq!(read(&long, role), all(Some(kind)), "{long}");
                let short = format!("{scheme}://{text}");
                assert_eq!(read(&short, role), all(Some(kind)), "{short}");
            }
        }
        for bad in ["", "nas", "nas.lan", "70000", "3-1", "-3", "1-", "::1", "1.2.3.4", "/run/a"] {
            assert!(Ports::parse(bad, Role::Target).is_err(), "{bad}");
        }
        let hint = Ports::parse("/run/a.sock", Role::Listen).unwrap_err().hint.unwrap();
        assert!(hint.ends_with("unix:///run/a.sock"), "{hint}");
    }

    #[test]
    fn a_password_in_an_address_is_led_to_its_key_and_not_repeated() {
        for (text, role) in [
            ("tcp://ann:secret@:10022", Role::Public),
            ("ann:secret@10022", Role::Public),
            ("tcp://ann:secret@127.0.0.1:22", Role::Target),
            ("ann@127.0.0.1:22", Role::Target),
            ("socks5://ann:secret@127.0.0.1:1080", Role::Listen),
        ] {
            let bad = Ports::parse(text, role).unwrap_err();
            assert!(!bad.message.contains("secret"), "{text}: {bad:?}");
            assert!(bad.hint.is_some_and(|hint| hint.contains("basic_auth")), "{text}");
        }
    }

    #[test]
    fn a_directory_is_an_absolute_path_below_the_root() {
        let read = |text: &str| directory(text).unwrap().map(|path| path.display().to_string());
        assert_eq!(read("file:///srv/www").as_deref(), Ok("/srv/www"));
        assert_eq!(read("file:///srv/my www/").as_deref(), Ok("/srv/my www"));
        for bad in ["file://", "file://srv", "file:///", "file:///a/../b", "file:///a//b"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(directory("/srv/www").is_none());
    }
}

//! What a dial is like: `dscp`, `interface` and `source`. A path to a server, a service and an
//! entry of a proxy have the keys.

use std::net::IpAddr;

use proto::{Dscp, ScopedAddr};

use crate::key_table::KeyTable;
use crate::section::Section;
use crate::{BadValue, values};

/// The largest number of bytes in the name of an interface (`IFNAMSIZ` without the zero byte).
const INTERFACE_MAX: usize = 15;

/// What a dial is like.
#[derive(Clone, Debug, Default, PartialEq, Eq, KeyTable)]
#[keys(check = on_a_link)]
pub struct DialOptions {
    /// The DSCP mark of packets to visitors and targets {of}.
    ///
    /// Packets of a path go to the server, or to the proxy on the way.
    #[key("number 0-63, or a name such as `EF`, `AF41`, `CS1`, `LE`", default = "0",
        note = "best effort", read = values::dscp, only(Service, Balancer))]
    #[row(dscp: "number 0-63, or a name such as `EF`, `AF41`, `CS1`, `LE`", default = "0",
        note = "best effort", only(Path),
        text = "The DSCP mark of packets to the server on this path.")]
    pub dscp: Dscp,
    /// The network interface by which packets to targets {of} leave.
    ///
    /// At most 15 bytes.
    #[key("name of an interface, such as `eth1`", none = "the routes of the system decide",
        read = interface, only(Service, Balancer))]
    #[row(interface: "name of an interface, such as `eth1`",
        none = "the routes of the system decide", only(Path),
        text = "The network interface by which packets to the server on this path leave.")]
    pub interface: Option<String>,
    /// The source address of packets to targets {of}.
    #[key("IP address of this machine", none = "the system chooses", read = source,
        only(Service, Balancer))]
    #[row(source: "IP address of this machine", none = "the system chooses", only(Path),
        text = "The source address of packets to the server on this path.")]
    pub source: Option<IpAddr>,
}

impl DialOptions {
    /// The settings for people: `, dscp EF, interface eth1`. Empty without one.
    pub(crate) fn extras(&self) -> String {
        let Self { dscp, interface, source } = self;
        let dscp = (!dscp.is_default()).then(|| format!(", dscp {dscp}"));
        let interface = interface.as_ref().map(|name| format!(", interface {name}"));
        let source = source.map(|source| format!(", source {source}"));
        [dscp, interface, source].into_iter().flatten().collect()
    }
}

/// Parses the name of an interface by the rules of Linux (`dev_valid_name`).
fn interface(text: &str) -> Result<String, BadValue> {
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':');
    if text.is_empty() || matches!(text, "." | "..") || text.contains(is_bad) {
        let bad = BadValue::new(format!("`{text}` is no name of an interface"));
        return Err(bad.hint("`ip link` lists the interfaces: eth1, wg0; an address is a `source`"));
    }
    if text.len() > INTERFACE_MAX {
        let bad = BadValue::new(format!("`{text}` is too long for the name of an interface"));
        return Err(bad.hint(format!("at most {INTERFACE_MAX} bytes, as `ip link` shows it")));
    }
    Ok(text.to_owned())
}

/// Parses the address from which packets are sent.
fn source(text: &str) -> Result<IpAddr, BadValue> {
    let hint = "an address of this machine, such as 192.0.2.7 or 2001:db8::7; the name of an \
                interface is an `interface`";
    let ip = text.parse::<IpAddr>().map(|ip| ip.to_canonical());
    match ip {
        Ok(IpAddr::V4(ip)) if ip.is_broadcast() => {}
        Ok(ip) if !ip.is_unspecified() && !ip.is_multicast() => return Ok(ip),
        Ok(_) | Err(_) => {}
    }
    Err(BadValue::new(format!("`{text}` is no source address")).hint(hint))
}

/// A link-local address is on each interface, so the interface has to be named.
fn on_a_link(s: &Section<'_>, dial: DialOptions) -> Option<DialOptions> {
    if let Some(IpAddr::V6(ip)) = dial.source
        && ScopedAddr::needs_zone(ip)
        && dial.interface.is_none()
    {
        let bad = BadValue::new(format!("{ip} is on every link"));
        s.bad("source", bad.hint("name the interface beside it: `interface: eth1`"));
    }
    Some(dial)
}

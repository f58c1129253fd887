//! The encoding of requests to the kernel about interfaces, addresses and routes, and of the
//! replies: rtnetlink(7), `struct ifinfomsg`, `ifaddrmsg` and `rtmsg` after a netlink header, each
//! with attributes. Integers are in host byte order, addresses in network byte order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The length of a netlink message header (netlink(7)): length, type, flags, sequence, port.
const HEAD: usize = 16;
/// The length of an attribute header: length and type.
const ATTRIBUTE: usize = 4;

/// Message types.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;

/// `NLM_F_REQUEST`, alone and combined with `NLM_F_DUMP` for a list.
const ONE: u16 = 1;
const LIST: u16 = 0x301;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Interface flags (netdevice(7)): up, loopback, point-to-point, has a carrier.
const UP: u32 = 1;
const LOOPBACK: u32 = 8;
const POINT_TO_POINT: u32 = 0x10;
const RUNNING: u32 = 0x40;

/// Address flags: a duplicate was detected, deprecated, not verified yet.
const DAD_FAILED: u32 = 8;
const DEPRECATED: u32 = 0x20;
const TENTATIVE: u32 = 0x40;

/// Interface attributes: name, master, driver information, and the filter of requested parts.
const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_EXT_MASK: u16 = 29;
/// `RTEXT_FILTER_SKIP_STATS`: statistics are most of a reply.
const WITHOUT_FIGURES: u32 = 8;

/// Address attributes. On a point-to-point interface, `IFA_ADDRESS` is the address of the far end.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;

/// Route attributes.
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_VIA: u16 = 18;
/// `RTN_UNICAST`: a route to a destination.
const UNICAST: u8 = 1;

/// The mask of an attribute type without its flags.
const KIND: u16 = 0x3fff;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) name: String,
    /// The kind reported by the driver; a network card driver reports none.
    pub(super) kind: Option<String>,
    /// The bridge or bond to which it belongs.
    pub(super) master: Option<u32>,
    /// Whether it is up and has a carrier.
    pub(super) is_live: bool,
    pub(super) is_loopback: bool,
    pub(super) is_between_two: bool,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) ip: IpAddr,
    pub(super) network: IpAddr,
    pub(super) prefix: u8,
    pub(super) interface: u32,
    /// Whether it is deprecated or not usable yet.
    pub(super) is_old: bool,
}

/// A part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AnswerPart {
    Interface(u32, Interface),
    Address(Address),
    /// The route has a gateway behind this interface.
    Gateway(u32),
    /// Any other message, such as a route without a gateway.
    Other,
    /// The end of a list.
    End,
    /// The kernel refuses, with this `errno`.
    Refused(i32),
}

/// A request without its sequence number.
#[derive(Debug)]
pub(super) struct KernelRequest {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl KernelRequest {
    pub(super) const fn is_list(&self) -> bool {
        self.flags == LIST
    }

    pub(super) fn bytes(&self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(HEAD + self.body.len()).unwrap_or(u32::MAX);
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend(self.flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(&self.body);
        bytes
    }
}

/// A request for all interfaces.
pub(super) fn interfaces() -> KernelRequest {
    let mut body = vec![0; 16];
    attribute(&mut body, IFLA_EXT_MASK, &WITHOUT_FIGURES.to_ne_bytes());
    KernelRequest { kind: GET_LINK, flags: LIST, body }
}

/// A request for all addresses.
pub(super) fn addresses() -> KernelRequest {
    KernelRequest { kind: GET_ADDRESS, flags: LIST, body: vec![0; 8] }
}

/// A request for the route to `to` through an interface.
pub(super) fn route(to: IpAddr, interface: u32) -> KernelRequest {
    let mut body = vec![0; 12];
    let (family, octets) = match to {
        IpAddr::V4(ip) => (AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (AF_INET6, ip.octets().to_vec()),
    };
    body[0] = family;
    body[1] = u8::try_from(octets.len() * 8).unwrap_or(u8::MAX);
    attribute(&mut body, RTA_DST, &octets);
    attribute(&mut body, RTA_OIF, &interface.to_ne_bytes());
    KernelRequest { kind: GET_ROUTE, flags: ONE, body }
}

/// Appends an attribute. The attributes used here need no padding.
fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend(u16::try_from(ATTRIBUTE + value.len()).unwrap_or(u16::MAX).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
}

/// The parts of a reply to the request with this sequence number. Any input is safe: a truncated
/// part ends the iteration.
pub(super) fn parts(bytes: &[u8], sequence: u32) -> impl Iterator<Item = AnswerPart> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        loop {
            let length = usize::try_from(u32_at(rest, 0)?).ok()?;
            let message = rest.get(..length).filter(|message| message.len() >= HEAD)?;
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            // Others are replies to an abandoned request.
            if u32_at(message, 8) == Some(sequence) {
                return part(u16_at(message, 4)?, message.get(HEAD..)?);
            }
        }
    })
}

fn part(kind: u16, body: &[u8]) -> Option<AnswerPart> {
    Some(match kind {
        DONE => AnswerPart::End,
        ERROR => match i32::from_ne_bytes(body.get(..4)?.try_into().ok()?) {
            0 => AnswerPart::End,
            errno => AnswerPart::Refused(errno.checked_neg()?),
        },
        NEW_LINK => interface(body).unwrap_or(AnswerPart::Other),
        NEW_ADDRESS => address(body).map_or(AnswerPart::Other, AnswerPart::Address),
        NEW_ROUTE => gateway(body).map_or(AnswerPart::Other, AnswerPart::Gateway),
        _ => AnswerPart::Other,
    })
}

fn interface(body: &[u8]) -> Option<AnswerPart> {
    let (index, flags) = (u32_at(body, 4)?, u32_at(body, 8)?);
    let mut found = Interface {
        name: String::new(),
        kind: None,
        master: None,
        is_live: flags & (UP | RUNNING) == UP | RUNNING,
        is_loopback: flags & LOOPBACK != 0,
        is_between_two: flags & POINT_TO_POINT != 0,
    };
    for (kind, value) in attributes(body.get(16..)?) {
        match kind {
            IFLA_IFNAME => found.name = text(value),
            IFLA_MASTER => found.master = u32_at(value, 0),
            IFLA_LINKINFO => {
                let driver = attributes(value).find(|(kind, _)| *kind == IFLA_INFO_KIND);
                found.kind = driver.map(|(_, value)| text(value));
            }
            _ => {}
        }
    }
    Some(AnswerPart::Interface(index, found))
}

fn address(body: &[u8]) -> Option<Address> {
    let (family, prefix, interface) = (*body.first()?, *body.get(1)?, u32_at(body, 4)?);
    let mut flags = u32::from(*body.get(2)?);
    let (mut own, mut network) = (None, None);
    for (kind, value) in attributes(body.get(8..)?) {
        match kind {
            IFA_ADDRESS => network = ip(family, value),
            IFA_LOCAL => own = ip(family, value),
            IFA_FLAGS => flags = u32_at(value, 0)?,
            _ => {}
        }
    }
    let ip = own.or(network)?;
    let is_old = flags & (DEPRECATED | DAD_FAILED | TENTATIVE) != 0;
    Some(Address { ip, network: network.unwrap_or(ip), prefix, interface, is_old })
}

fn gateway(body: &[u8]) -> Option<u32> {
    let is_unicast = body.get(7) == Some(&UNICAST);
    let attributes = || attributes(body.get(12..).unwrap_or_default());
    let has_gateway = attributes().any(|(kind, _)| matches!(kind, RTA_GATEWAY | RTA_VIA));
    let (_, interface) = attributes().find(|(kind, _)| *kind == RTA_OIF)?;
    u32_at(interface, 0).filter(|_| is_unicast && has_gateway)
}

fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let attribute = rest.get(..length).filter(|attribute| attribute.len() >= ATTRIBUTE)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16_at(attribute, 2)? & KIND, &attribute[ATTRIBUTE..]))
    })
}

/// A NUL-terminated text.
fn text(value: &[u8]) -> String {
    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

fn ip(family: u8, value: &[u8]) -> Option<IpAddr> {
    Some(match family {
        AF_INET => Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).into(),
        AF_INET6 => Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into(),
        _ => return None,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

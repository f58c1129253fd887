//! Messages to bytes.

use std::borrow::Cow;
use std::net::IpAddr;

use bytes::{BufMut, Bytes, BytesMut};

use super::message::{self, field, service};
use super::{ADDRESSES_MAX, ControlMessage, MESSAGE_MAX, SERVICES_MAX, TEXT_MAX};
use super::{FlowOpen, FlowTimes, ServiceError, ServiceResult, ServiceSpec, TCP_KEEPALIVE};
use crate::frame::put_request;
use crate::greeting::Name;
use crate::text::{escaped, is_forbidden};
use crate::wire::{TLV_HEAD, put_tlv};
use crate::{HttpOptionError, NETWORKS_MAX, Network, Visitors};

/// A message that no peer would take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// Too many services.
    #[error("{0} services are more than {SERVICES_MAX}")]
    Services(usize),
    /// Too many addresses of one service.
    #[error("service {name}: {count} addresses are more than {ADDRESSES_MAX}")]
    Addresses {
        /// Whose.
        name: Name,
        /// How many.
        count: usize,
    },
    /// An empty address, an address that is too long, or an address with a control character.
    #[error("service {0}: an address has 1 to {TEXT_MAX} bytes and no control character")]
    Address(Name),
    /// Too many networks in a list of one service.
    #[error("service {name}: {count} networks are more than {NETWORKS_MAX}")]
    Networks {
        /// Whose.
        name: Name,
        /// How many.
        count: usize,
    },
    /// An option of HTTP that no server takes.
    #[error("service {name}: {why}")]
    Http {
        /// Whose.
        name: Name,
        /// Which.
        why: HttpOptionError,
    },
    /// The target of a flow that no peer would take.
    #[error("the target of the flow is too long, or has a control character")]
    Target,
    /// Within all other limits, and too long all the same.
    #[error("{0} bytes of services are more than {MESSAGE_MAX}")]
    Long(usize),
}

impl ControlMessage {
    /// The message as it goes into the control stream. An explanation that is too long is cut, all
    /// else that is beyond the limits is an error.
    pub fn encode(&self) -> Result<Bytes, EncodeError> {
        self.check()?;
        let mut out = BytesMut::new();
        match self {
            Self::Register(register) => put_tlv(&mut out, message::REGISTER, |out| {
                put_tlv(out, field::GENERATION, |out| out.put_u64(register.generation));
                for spec in &register.services {
                    put_tlv(out, field::SERVICE, |out| put_spec(spec, out));
                }
            }),
            Self::Registered(registered) => put_tlv(&mut out, message::REGISTERED, |out| {
                put_tlv(out, field::GENERATION, |out| out.put_u64(registered.generation));
                for result in &registered.results {
                    put_tlv(out, field::SERVICE, |out| put_result(result, out));
                }
            }),
            Self::Strained(strained) => put_tlv(&mut out, message::STRAINED, |out| {
                put_tlv(out, field::RATE, |out| out.put_u64(strained.rate));
            }),
            Self::FlowOpen(open) => return encode_flow_open(open),
            Self::FlowClose(close) => {
                put_tlv(&mut out, message::FLOW_CLOSE, |out| {
                    out.put_u32(close.flow.raw());
                    out.put_u16(close.code.raw());
                });
                return Ok(out.freeze());
            }
        }
        debug_assert_eq!(out.len() - TLV_HEAD, self.body_length());
        Ok(out.freeze())
    }

    /// Every limit, before a byte is written.
    fn check(&self) -> Result<(), EncodeError> {
        let count = match self {
            Self::Register(register) => register.services.len(),
            Self::Registered(registered) => registered.results.len(),
            Self::Strained(_) | Self::FlowOpen(_) | Self::FlowClose(_) => 0,
        };
        if count > SERVICES_MAX {
            return Err(EncodeError::Services(count));
        }
        for (name, addresses) in self.addresses() {
            if addresses.len() > ADDRESSES_MAX {
                let count = addresses.len();
                return Err(EncodeError::Addresses { name: name.clone(), count });
            }
            let is_bad =
                |a: &String| !(1..=TEXT_MAX).contains(&a.len()) || a.contains(is_forbidden);
            if addresses.iter().any(is_bad) {
                return Err(EncodeError::Address(name.clone()));
            }
        }
        for spec in self.specs() {
            let long = lists(&spec.visitors).find(|(_, list)| list.len() > NETWORKS_MAX);
            if let Some((_, list)) = long {
                return Err(EncodeError::Networks { name: spec.name.clone(), count: list.len() });
            }
            let name = || spec.name.clone();
            spec.http.check().map_err(|why| EncodeError::Http { name: name(), why })?;
        }
        match self.body_length() {
            length if length > MESSAGE_MAX => Err(EncodeError::Long(length)),
            _ => Ok(()),
        }
    }

    /// The services of a Register.
    fn specs(&self) -> &[ServiceSpec] {
        match self {
            Self::Register(register) => &register.services,
            Self::Registered(_) | Self::Strained(_) | Self::FlowOpen(_) | Self::FlowClose(_) => &[],
        }
    }

    fn addresses(&self) -> Vec<(&Name, &[String])> {
        match self {
            Self::Register(register) => {
                register.services.iter().map(|s| (&s.name, s.public.as_slice())).collect()
            }
            Self::Registered(registered) => registered
                .results
                .iter()
                .map(|r| (&r.name, r.outcome.as_ref().map_or(&[][..], Vec::as_slice)))
                .collect(),
            Self::Strained(_) | Self::FlowOpen(_) | Self::FlowClose(_) => Vec::new(),
        }
    }

    fn body_length(&self) -> usize {
        let tlv = |value: usize| TLV_HEAD + value;
        let common: usize = self
            .addresses()
            .into_iter()
            .map(|(name, addresses)| {
                let addresses: usize = addresses.iter().map(|a| tlv(a.len())).sum();
                tlv(tlv(name.as_str().len()) + addresses)
            })
            .sum();
        let own: usize = match self {
            Self::Register(register) => {
                let lists = register.services.iter().flat_map(|spec| lists(&spec.visitors));
                let lists: usize =
                    lists.map(|(_, list)| tlv(list.iter().map(network_length).sum())).sum();
                let http: usize = register.services.iter().map(|s| s.http.encoded_len()).sum();
                let times = register.services.iter().filter(|s| s.flows != FlowTimes::default());
                let flows = times.count() * tlv(8);
                let probed = register.services.iter().filter(|s| s.keepalive != TCP_KEEPALIVE);
                let keepalive = probed.count() * tlv(4);
                register.services.len() * 2 * tlv(1) + lists + http + flows + keepalive
            }
            Self::Registered(registered) => registered
                .results
                .iter()
                .filter_map(|result| result.outcome.as_ref().err())
                .map(|error| tlv(2 + explanation(error).len()))
                .sum(),
            Self::Strained(_) | Self::FlowOpen(_) | Self::FlowClose(_) => 0,
        };
        tlv(8) + common + own
    }
}

fn put_spec(spec: &ServiceSpec, out: &mut BytesMut) {
    put_text(service::NAME, spec.name.as_str(), out);
    for address in &spec.public {
        put_text(service::ADDRESS, address, out);
    }
    put_tlv(out, service::PRIORITY, |out| out.put_u8(message::priority_raw(spec.priority)));
    let shared = if spec.shared { service::FLAG_SHARED } else { 0 };
    let resume = if spec.resume { service::FLAG_RESUME } else { 0 };
    put_tlv(out, service::FLAGS, |out| out.put_u8(shared | resume));
    for (kind, list) in lists(&spec.visitors) {
        put_tlv(out, kind, |out| list.iter().for_each(|network| put_network(network, out)));
    }
    spec.http.put(out);
    if spec.flows != FlowTimes::default() {
        put_tlv(out, service::FLOWS, |out| {
            out.put_u32(spec.flows.unanswered);
            out.put_u32(spec.flows.answered);
        });
    }
    if spec.keepalive != TCP_KEEPALIVE {
        put_tlv(out, service::KEEPALIVE, |out| out.put_u32(spec.keepalive));
    }
}

fn encode_flow_open(open: &FlowOpen) -> Result<Bytes, EncodeError> {
    let mut out = BytesMut::new();
    let mut is_fit = None;
    put_tlv(&mut out, message::FLOW_OPEN, |out| {
        out.put_u32(open.flow.raw());
        is_fit = put_request(out, &open.open);
    });
    is_fit.map(|()| out.freeze()).ok_or(EncodeError::Target)
}

/// The lists that are sent, with the kinds of their fields. An absent `allow_from` lets everybody
/// visit, and an empty one nobody; an absent and an empty `deny_from` are the same.
fn lists(visitors: &Visitors) -> impl Iterator<Item = (u8, &[Network])> {
    let allow = visitors.allow_from.as_deref().map(|list| (service::ALLOW_FROM, list));
    let deny = (!visitors.deny_from.is_empty())
        .then_some((service::DENY_FROM, visitors.deny_from.as_ref()));
    allow.into_iter().chain(deny)
}

fn put_network(network: &Network, out: &mut BytesMut) {
    out.put_u8(message::ip_version(network.ip()));
    out.put_u8(network.prefix());
    match network.ip() {
        IpAddr::V4(ip) => out.put_slice(&ip.octets()),
        IpAddr::V6(ip) => out.put_slice(&ip.octets()),
    }
}

fn network_length(network: &Network) -> usize {
    2 + if network.ip().is_ipv4() { 4 } else { 16 }
}

fn put_result(result: &ServiceResult, out: &mut BytesMut) {
    put_text(service::NAME, result.name.as_str(), out);
    match &result.outcome {
        Ok(addresses) => {
            for address in addresses {
                put_text(service::ADDRESS, address, out);
            }
        }
        Err(error) => put_tlv(out, service::ERROR, |out| {
            out.put_u16(error.code.raw());
            out.put_slice(explanation(error).as_bytes());
        }),
    }
}

fn put_text(kind: u8, text: &str, out: &mut BytesMut) {
    put_tlv(out, kind, |out| out.put_slice(text.as_bytes()));
}

/// The explanation as the peer accepts it: no control character, and at most [`TEXT_MAX`] bytes.
fn explanation(error: &ServiceError) -> Cow<'_, str> {
    let cut = |text: &str| text.floor_char_boundary(TEXT_MAX);
    match escaped(&error.text) {
        Cow::Borrowed(text) => Cow::Borrowed(&text[..cut(text)]),
        Cow::Owned(mut text) => {
            text.truncate(cut(&text));
            Cow::Owned(text)
        }
    }
}

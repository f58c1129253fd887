//! Encodes messages.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};

use super::message::{self, field, service};
use super::{
    ADDRESSES_MAX, ControlMessage, MESSAGE_MAX, NODE_MAX, SERVICES_MAX, SIGNAL_MAX, STUN_PORTS_MAX,
    TEXT_MAX, VISITORS_MAX,
};
use super::{
    FlowOpen, RefusedAddress, Register, Registered, ServiceError, ServiceResult, ServiceSpec,
    StunPorts,
};
use crate::frame::put_request;
use crate::greeting::Name;
use crate::text::{escaped, is_forbidden};
use crate::wire::{TLV_HEAD, put_tlv};
use crate::{HttpOptionError, NETWORKS_MAX};

/// Maximum lengths of the explanation of a refused address, in bytes; the first that fits the
/// message applies. With 256 bytes, 3,000 refused ports fit.
const EXPLANATIONS: [usize; 3] = [TEXT_MAX, 256, 0];

/// A message that every peer would reject.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// Too many services.
    #[error("{0} services are more than {SERVICES_MAX}")]
    Services(usize),
    /// Too many addresses of one service.
    #[error("service {name}: {count} addresses are more than {ADDRESSES_MAX}")]
    Addresses {
        /// The service.
        name: Name,
        /// The number of entries.
        count: usize,
    },
    /// An empty address, an address that is too long, or an address with a control character.
    #[error("service {0}: an address has 1 to {TEXT_MAX} bytes and no control character")]
    Address(Name),
    /// Too many networks in a list of one service.
    #[error("service {name}: {count} networks are more than {NETWORKS_MAX}")]
    Networks {
        /// The service.
        name: Name,
        /// The number of entries.
        count: usize,
    },
    /// An HTTP option that every server rejects.
    #[error("service {name}: {why}")]
    Http {
        /// The service.
        name: Name,
        /// The reason.
        why: HttpOptionError,
    },
    /// The target of a flow that every peer would reject.
    #[error("the target of the flow is too long, or has a control character")]
    Target,
    /// Too many patterns of visitors of one service.
    #[error("service {name}: {count} visitors are more than {VISITORS_MAX}")]
    Visitors {
        /// The service.
        name: Name,
        /// The number of entries.
        count: usize,
    },
    /// A signal that is too long.
    #[error("a signal of {0} bytes is longer than {SIGNAL_MAX}")]
    Signal(usize),
    /// A message between two nodes that is too long.
    #[error("a message of {0} bytes between two nodes is longer than {NODE_MAX}")]
    Node(usize),
    /// The message is too long although it keeps all other limits.
    #[error("{0} bytes of services are more than {MESSAGE_MAX}")]
    Long(usize),
}

impl ControlMessage {
    /// Encodes the message for the control stream. An explanation that is too long is truncated;
    /// anything else beyond the limits is an error. If the explanations of refused addresses do not
    /// fit the message, they are truncated further: their codes still give the reason.
    pub fn encode(&self) -> Result<Bytes, EncodeError> {
        let most = self.check()?;
        let mut out = BytesMut::new();
        match self {
            Self::Register(register) => put_tlv(&mut out, message::REGISTER, |out| {
                put_tlv(out, field::GENERATION, |out| out.put_u64(register.generation));
                for spec in &register.services {
                    put_tlv(out, field::SERVICE, |out| put_spec(spec, out));
                }
                if register.leaving {
                    put_tlv(out, field::LEAVING, |out| out.put_u8(1));
                }
                if register.standby {
                    put_tlv(out, field::STANDBY, |out| out.put_u8(1));
                }
            }),
            Self::Registered(registered) => put_tlv(&mut out, message::REGISTERED, |out| {
                put_tlv(out, field::GENERATION, |out| out.put_u64(registered.generation));
                for result in &registered.results {
                    put_tlv(out, field::SERVICE, |out| put_result(result, most, out));
                }
            }),
            Self::Strained(strained) => put_tlv(&mut out, message::STRAINED, |out| {
                put_tlv(out, field::RATE, |out| out.put_u64(strained.rate));
            }),
            Self::Stun(StunPorts(ports)) => {
                put_tlv(&mut out, message::STUN, |out| {
                    let ports = ports.iter().take(STUN_PORTS_MAX);
                    put_tlv(out, field::PORTS, |out| ports.for_each(|port| out.put_u16(*port)));
                });
                return Ok(out.freeze());
            }
            Self::Homes(homes) => return Ok(homes.encode()),
            Self::FlowOpen(open) => return encode_flow_open(open),
            Self::FlowClose(close) => {
                put_tlv(&mut out, message::FLOW_CLOSE, |out| {
                    out.put_u32(close.flow.raw());
                    out.put_u16(close.code.raw());
                });
                return Ok(out.freeze());
            }
            Self::Signal(signal) => {
                put_tlv(&mut out, message::SIGNAL, |out| out.put_slice(signal));
                return Ok(out.freeze());
            }
            Self::Node(bytes) => {
                put_tlv(&mut out, message::NODE, |out| out.put_slice(bytes));
                return Ok(out.freeze());
            }
            Self::Invite(invite) => return Ok(invite.encode()),
            Self::Invited(invited) => return Ok(invited.encode()),
        }
        debug_assert_eq!(out.len() - TLV_HEAD, self.body_length(most));
        Ok(out.freeze())
    }

    /// Checks every limit before a byte is written. Returns the maximum length of the explanation
    /// of a refused address, in bytes.
    fn check(&self) -> Result<usize, EncodeError> {
        if let Self::Signal(signal) = self
            && signal.len() > SIGNAL_MAX
        {
            return Err(EncodeError::Signal(signal.len()));
        }
        if let Self::Node(bytes) = self
            && bytes.len() > NODE_MAX
        {
            return Err(EncodeError::Node(bytes.len()));
        }
        let count = self.specs().len() + self.results().len();
        if count > SERVICES_MAX {
            return Err(EncodeError::Services(count));
        }
        for (name, addresses) in self.addresses() {
            if addresses.len() > ADDRESSES_MAX {
                let count = addresses.len();
                return Err(EncodeError::Addresses { name: name.clone(), count });
            }
            if addresses.iter().any(|address| is_bad(address)) {
                return Err(EncodeError::Address(name.clone()));
            }
        }
        for ServiceResult { name, refused, .. } in self.results() {
            if refused.len() > ADDRESSES_MAX {
                let count = refused.len();
                return Err(EncodeError::Addresses { name: name.clone(), count });
            }
            if refused.iter().any(|one| is_bad(&one.address)) {
                return Err(EncodeError::Address(name.clone()));
            }
        }
        for spec in self.specs() {
            spec.terms.check(&spec.name)?;
        }
        EXPLANATIONS
            .into_iter()
            .find(|most| self.body_length(*most) <= MESSAGE_MAX)
            .ok_or_else(|| EncodeError::Long(self.body_length(0)))
    }

    /// The message as a list of services or of results.
    fn listing(&self) -> Listing<'_> {
        match self {
            Self::Register(register) => Listing::Asked(register),
            Self::Registered(registered) => Listing::Answered(registered),
            Self::Strained(_)
            | Self::FlowOpen(_)
            | Self::FlowClose(_)
            | Self::Signal(_)
            | Self::Node(_)
            | Self::Invite(_)
            | Self::Invited(_)
            | Self::Stun(_)
            | Self::Homes(_) => Listing::None,
        }
    }

    /// The services of a Register.
    fn specs(&self) -> &[ServiceSpec] {
        match self.listing() {
            Listing::Asked(register) => &register.services,
            Listing::Answered(_) | Listing::None => &[],
        }
    }

    /// The results of a Registered.
    fn results(&self) -> &[ServiceResult] {
        match self.listing() {
            Listing::Answered(registered) => &registered.results,
            Listing::Asked(_) | Listing::None => &[],
        }
    }

    fn addresses(&self) -> Vec<(&Name, &[String])> {
        match self.listing() {
            Listing::Asked(register) => {
                register.services.iter().map(|s| (&s.name, s.public.as_slice())).collect()
            }
            Listing::Answered(registered) => registered
                .results
                .iter()
                .map(|r| (&r.name, r.outcome.as_ref().map_or(&[][..], Vec::as_slice)))
                .collect(),
            Listing::None => Vec::new(),
        }
    }

    fn body_length(&self, most: usize) -> usize {
        let tlv = |value: usize| TLV_HEAD + value;
        let common: usize = self
            .addresses()
            .into_iter()
            .map(|(name, addresses)| {
                let addresses: usize = addresses.iter().map(|a| tlv(a.len())).sum();
                tlv(tlv(name.as_str().len()) + addresses)
            })
            .sum();
        let own: usize = match self.listing() {
            Listing::Asked(register) => {
                let flags = [register.leaving, register.standby];
                let flags = flags.map(|is_set| if is_set { tlv(1) } else { 0 });
                let terms = register.services.iter().map(|spec| spec.terms.encoded_len());
                flags.iter().sum::<usize>() + terms.sum::<usize>()
            }
            Listing::Answered(registered) => {
                let refused = registered.results.iter().flat_map(|result| &result.refused);
                let refused = refused.map(|RefusedAddress { address, error }| {
                    tlv(4 + address.len() + explanation(error, most).len())
                });
                let whole = registered.results.iter();
                let whole = whole.filter_map(|result| result.outcome.as_ref().err());
                let whole = whole.map(|error| tlv(2 + explanation(error, TEXT_MAX).len()));
                whole.chain(refused).sum()
            }
            Listing::None => 0,
        };
        tlv(8) + common + own
    }
}

/// The services or results of a message; most messages have neither.
enum Listing<'a> {
    Asked(&'a Register),
    Answered(&'a Registered),
    None,
}

/// Whether every peer would reject the text of an address.
fn is_bad(address: &str) -> bool {
    !(1..=TEXT_MAX).contains(&address.len()) || address.contains(is_forbidden)
}

fn put_spec(spec: &ServiceSpec, out: &mut BytesMut) {
    put_text(service::NAME, spec.name.as_str(), out);
    for address in &spec.public {
        put_text(service::ADDRESS, address, out);
    }
    spec.terms.put(out);
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

/// `most`: the maximum length of the explanation of a refused address, in bytes.
fn put_result(result: &ServiceResult, most: usize, out: &mut BytesMut) {
    put_text(service::NAME, result.name.as_str(), out);
    match &result.outcome {
        Ok(addresses) => {
            for address in addresses {
                put_text(service::ADDRESS, address, out);
            }
        }
        Err(error) => put_tlv(out, service::ERROR, |out| put_error(error, TEXT_MAX, out)),
    }
    for RefusedAddress { address, error } in &result.refused {
        put_tlv(out, service::REFUSED, |out| {
            // `check` bounds the address.
            out.put_u16(u16::try_from(address.len()).unwrap_or(u16::MAX));
            out.put_slice(address.as_bytes());
            put_error(error, most, out);
        });
    }
}

fn put_error(error: &ServiceError, most: usize, out: &mut BytesMut) {
    out.put_u16(error.code.raw());
    out.put_slice(explanation(error, most).as_bytes());
}

fn put_text(kind: u8, text: &str, out: &mut BytesMut) {
    put_tlv(out, kind, |out| out.put_slice(text.as_bytes()));
}

/// The explanation in a form that the peer accepts: no control character, and at most `most` bytes.
fn explanation(error: &ServiceError, most: usize) -> Cow<'_, str> {
    let cut = |text: &str| text.floor_char_boundary(most);
    match escaped(&error.text) {
        Cow::Borrowed(text) => Cow::Borrowed(&text[..cut(text)]),
        Cow::Owned(mut text) => {
            text.truncate(cut(&text));
            Cow::Owned(text)
        }
    }
}

//! Frame bodies: fixed layouts, big endian. Decoders return `None` for an invalid body.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Buf, BufMut, BytesMut};

use super::{FLAG_ACK_END, FLAG_MORE, HEAD, Head, Kind, MAX_OPEN, OFFSET_LENGTH};
use crate::offset::Offset;
use crate::wire::{Reader, put_tlv};
use crate::{
    Hop, LinkId, NodeQuestion, Open, Priority, ResetCode, StreamId, Target, VisitorFields,
};

/// Body of RESET, STOP and GOAWAY: a code.
pub(crate) const END_LENGTH: usize = 2;
/// Body of PING and PONG: a value that PONG echoes.
pub(crate) const PING_LENGTH: usize = 8;
/// Body of CREDIT: limit and consumed.
pub(crate) const CREDIT_LENGTH: usize = 16;
/// Start of RESUME: the highest id seen from the peer.
pub(crate) const RESUME_FIXED: usize = 4;
/// One stream in RESUME: id, flags, received, consumed, limit.
pub(crate) const RESUME_ENTRY: usize = 29;

/// RESUME entry flag: the peer's FIN or RESET was seen.
const ENTRY_END_SEEN: u8 = 1;

/// The TLV of an OPEN with the fields of a visitor.
const FIELDS: u8 = 1;

/// Longest target text: a host name of 253 bytes, scheme and port.
const MAX_TARGET: usize = 300;

/// A decoded CREDIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credit {
    pub(crate) limit: Offset,
    pub(crate) consumed: Offset,
    pub(crate) ack_end: bool,
}

impl Credit {
    /// `body` has [`CREDIT_LENGTH`] bytes.
    pub(crate) fn decode(flags: u8, mut body: &[u8]) -> Option<Self> {
        Some(Self {
            limit: Offset::new(body.try_get_u64().ok()?),
            consumed: Offset::new(body.try_get_u64().ok()?),
            ack_end: flags & FLAG_ACK_END != 0,
        })
    }
}

pub(crate) fn encode_credit(out: &mut BytesMut, stream: StreamId, credit: Credit) {
    let flags = if credit.ack_end { FLAG_ACK_END } else { 0 };
    out.put_slice(&Head::new(Kind::Credit, flags, CREDIT_LENGTH, stream).encode());
    out.put_u64(credit.limit.raw());
    out.put_u64(credit.consumed.raw());
}

pub(crate) fn encode_fin(out: &mut BytesMut, stream: StreamId, end: Offset) {
    out.put_slice(&Head::new(Kind::Fin, 0, OFFSET_LENGTH, stream).encode());
    out.put_u32(end.low());
}

/// RESET, STOP or GOAWAY.
pub(crate) fn encode_code(out: &mut BytesMut, kind: Kind, stream: StreamId, code: u16) {
    out.put_slice(&Head::new(kind, 0, END_LENGTH, stream).encode());
    out.put_u16(code);
}

/// PING or PONG.
pub(crate) fn encode_ping(out: &mut BytesMut, kind: Kind, value: u64) {
    out.put_slice(&Head::new(kind, 0, PING_LENGTH, StreamId::CONTROL).encode());
    out.put_u64(value);
}

/// One stream in a RESUME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) stream: StreamId,
    pub(crate) received: Offset,
    pub(crate) consumed: Offset,
    pub(crate) limit: Offset,
    pub(crate) end_seen: bool,
}

impl Entry {
    pub(crate) fn encode(self, out: &mut BytesMut) {
        out.put_u32(self.stream.raw());
        out.put_u8(if self.end_seen { ENTRY_END_SEEN } else { 0 });
        out.put_u64(self.received.raw());
        out.put_u64(self.consumed.raw());
        out.put_u64(self.limit.raw());
    }

    /// Takes one entry from the front of `body`.
    pub(crate) fn decode(body: &mut &[u8]) -> Option<Self> {
        let stream = StreamId::new(body.try_get_u32().ok()?);
        let flags = body.try_get_u8().ok()?;
        Some(Self {
            stream,
            end_seen: flags & ENTRY_END_SEEN != 0,
            received: Offset::new(body.try_get_u64().ok()?),
            consumed: Offset::new(body.try_get_u64().ok()?),
            limit: Offset::new(body.try_get_u64().ok()?),
        })
    }
}

/// Header and highest id of a RESUME frame with `entries` entries after it.
pub(crate) fn encode_resume_head(
    out: &mut BytesMut,
    highest: StreamId,
    entries: usize,
    more: bool,
) {
    let flags = if more { FLAG_MORE } else { 0 };
    let length = RESUME_FIXED + entries * RESUME_ENTRY;
    out.put_slice(&Head::new(Kind::Resume, flags, length, StreamId::CONTROL).encode());
    out.put_u32(highest.raw());
}

/// An OPEN frame; `limit` is the opener's first grant to the acceptor. `None` when the target is
/// too long to be sent, or has a control character.
pub(crate) fn encode_open(stream: StreamId, open: &Open, limit: Offset) -> Option<BytesMut> {
    let mut out = BytesMut::with_capacity(HEAD + 80);
    out.put_bytes(0, HEAD);
    out.put_u64(limit.raw());
    put_request(&mut out, open)?;
    let head = Head::new(Kind::Open, 0, out.len() - HEAD, stream).encode();
    for (to, from) in out.iter_mut().zip(head) {
        *to = from;
    }
    debug_assert!(out.len() <= HEAD + MAX_OPEN, "target and fields of an OPEN are bounded");
    Some(out)
}

/// The request of an OPEN: priority, target, visitor, TLVs. `None` as for [`encode_open`].
pub(crate) fn put_request(out: &mut BytesMut, open: &Open) -> Option<()> {
    let (kind, text) = match &open.target {
        Target::Service(name) => (0u8, Cow::from(name)),
        Target::Forward(target) => (1u8, Cow::from(target)),
        Target::Measure(measure) => (2u8, Cow::from(measure.to_string())),
        Target::Reported(target) => (3u8, Cow::from(target)),
        Target::Marked { service, mark } => (5u8, Cow::from(format!("{service}/{mark:016x}"))),
        Target::Private { client, service } => (4u8, Cow::from(format!("{client}/{service}"))),
        Target::Detour(target) => (6u8, Cow::from(target)),
        Target::Hop(hop) => (7u8, Cow::from(hop_text(hop))),
        Target::Ask(question) => (8u8, Cow::from(question_text(question))),
    };
    if text.contains(crate::text::is_forbidden) {
        return None;
    }
    let text_length = u16::try_from(text.len()).ok().filter(|n| usize::from(*n) <= MAX_TARGET)?;
    out.put_u8(match open.priority {
        Priority::Interactive => 0,
        Priority::Normal => 1,
        Priority::Bulk => 2,
    });
    out.put_u8(kind);
    out.put_u16(text_length);
    out.put_slice(text.as_bytes());
    match open.visitor {
        None => out.put_u8(0),
        Some(address) => {
            match address.ip() {
                IpAddr::V4(ip) => {
                    out.put_u8(4);
                    out.put_slice(&ip.octets());
                }
                IpAddr::V6(ip) => {
                    out.put_u8(6);
                    out.put_slice(&ip.octets());
                }
            }
            out.put_u16(address.port());
        }
    }
    if let Some(fields) = &open.fields {
        put_tlv(out, FIELDS, |out| out.put_slice(fields.bytes()));
    }
    Some(())
}

/// The text of a target of kind 7.
fn hop_text(hop: &Hop) -> String {
    let Hop { client, instance, generation, service, claim, mark, visitor } = hop;
    let mark = mark.map(|mark| format!("/{mark:016x}")).unwrap_or_default();
    let visitor = visitor.as_ref().map(|visitor| format!("/@{visitor}")).unwrap_or_default();
    format!("{client}/{instance:016x}/{generation:016x}/{service}/{claim:016x}{mark}{visitor}")
}

/// Reads the text of a target of kind 7.
fn read_hop(text: &str) -> Option<Hop> {
    let mut parts = text.split('/');
    let client = parts.next()?.parse().ok()?;
    let instance = sixteen_digits(parts.next()?)?;
    let generation = sixteen_digits(parts.next()?)?;
    let service = parts.next()?.parse().ok()?;
    let claim = sixteen_digits(parts.next()?)?;
    let mut hop = Hop { client, instance, generation, service, claim, mark: None, visitor: None };
    // A private service has no targets that a visitor could choose from.
    if let Some(part) = parts.next() {
        match part.strip_prefix('@') {
            Some(visitor) => hop.visitor = Some(visitor.parse().ok()?),
            None => hop.mark = Some(sixteen_digits(part)?),
        }
    }
    parts.next().is_none().then_some(hop)
}

/// The text of a target of kind 8.
fn question_text(question: &NodeQuestion) -> String {
    match question {
        NodeQuestion::Terms { client, claim } => format!("terms/{client}/{claim:016x}"),
        NodeQuestion::Changed(client) => format!("changed/{client}"),
        NodeQuestion::Carrier { client, link } => {
            format!("carrier/{client}/{:032x}", u128::from_be_bytes(link.0))
        }
    }
}

/// Reads the text of a target of kind 8.
fn read_question(text: &str) -> Option<NodeQuestion> {
    if let Some(client) = text.strip_prefix("changed/") {
        return Some(NodeQuestion::Changed(client.parse().ok()?));
    }
    if let Some(carrier) = text.strip_prefix("carrier/") {
        let (client, link) = carrier.split_once('/')?;
        let (high, low) = link.split_at_checked(16)?;
        let number = u128::from(sixteen_digits(high)?) << 64 | u128::from(sixteen_digits(low)?);
        let link = LinkId(number.to_be_bytes());
        return Some(NodeQuestion::Carrier { client: client.parse().ok()?, link });
    }
    let (client, claim) = text.strip_prefix("terms/")?.split_once('/')?;
    Some(NodeQuestion::Terms { client: client.parse().ok()?, claim: sixteen_digits(claim)? })
}

/// A number of 16 hexadecimal digits.
fn sixteen_digits(text: &str) -> Option<u64> {
    let is_number = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| is_number)
}

/// The body of an OPEN: the request and the first grant.
pub(crate) fn decode_open(mut body: &[u8]) -> Option<(Open, Offset)> {
    let limit = Offset::new(body.try_get_u64().ok()?);
    Some((decode_request(body)?, limit))
}

/// The request of an OPEN. Unknown TLVs belong to a newer version and are skipped.
pub(crate) fn decode_request(mut body: &[u8]) -> Option<Open> {
    let priority = match body.try_get_u8().ok()? {
        0 => Priority::Interactive,
        2 => Priority::Bulk,
        _ => Priority::Normal,
    };
    let kind = body.try_get_u8().ok()?;
    let length = usize::from(body.try_get_u16().ok()?);
    let (text, mut rest) = body.split_at_checked(length)?;
    let text = crate::wire::text(text).ok()?;
    let target = match kind {
        0 => Target::Service(text.to_owned()),
        1 => Target::Forward(text.to_owned()),
        2 => Target::Measure(text.parse().ok()?),
        3 => Target::Reported(text.to_owned()),
        4 => {
            let (client, service) = text.split_once('/')?;
            Target::Private { client: client.parse().ok()?, service: service.parse().ok()? }
        }
        5 => {
            let (service, mark) = text.rsplit_once('/')?;
            Target::Marked { service: service.to_owned(), mark: sixteen_digits(mark)? }
        }
        6 => Target::Detour(text.to_owned()),
        7 => Target::Hop(read_hop(text)?),
        8 => Target::Ask(read_question(text)?),
        _ => return None,
    };
    let ip = match rest.try_get_u8().ok()? {
        0 => None,
        4 => Some(IpAddr::V4(Ipv4Addr::from_bits(rest.try_get_u32().ok()?))),
        6 => Some(IpAddr::V6(Ipv6Addr::from_bits(rest.try_get_u128().ok()?))),
        _ => return None,
    };
    let visitor = match ip {
        Some(ip) => Some(SocketAddr::new(ip, rest.try_get_u16().ok()?)),
        None => None,
    };
    let (mut tlvs, mut fields) = (Reader::new(rest), None);
    while let Some((kind, value)) = tlvs.tlv().ok()? {
        if kind == FIELDS {
            fields = VisitorFields::new(value.rest());
        }
    }
    Some(Open { target, visitor, priority, fields })
}

/// A code of RESET or STOP.
impl ResetCode {
    pub(crate) fn decode(mut body: &[u8]) -> Option<Self> {
        body.try_get_u16().ok().map(Self::from_raw)
    }
}

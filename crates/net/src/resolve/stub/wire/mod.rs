//! The encoding of DNS queries and replies (RFC 1035; SRV records: RFC 2782), with the crate
//! `domain`.

use std::net::IpAddr;
use std::time::Duration;

use domain::base::iana::{Class, Opcode, Rcode, Rtype};
use domain::base::name::ToName as _;
use domain::base::{Message, MessageBuilder, Name, ParsedName, Question as Asked};
use domain::dep::octseq::array::Array;
use domain::rdata::{A, Aaaa, Cname, Soa, Srv};

use crate::resolve::services::ServiceRecord;

/// The maximum number of addresses of a name per family. A dial tries fewer.
pub(super) const ADDRESSES: usize = 32;

/// The maximum number of SRV records of a name. A client has fewer servers.
pub(super) const SERVICES: usize = 64;

/// The maximum number of aliases followed within a reply. Unbound follows 11.
const ALIASES: usize = 16;

type Owner = Name<Array<256>>;

/// The type of the records that a query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::resolve) enum RecordKind {
    A,
    Aaaa,
    Srv,
}

/// A record of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::resolve) enum Record {
    Address(IpAddr),
    Service(ServiceRecord),
}

/// A query without its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::resolve) struct Question {
    /// The complete name, without a trailing dot.
    pub(super) name: String,
    pub(super) kind: RecordKind,
}

/// The answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::resolve) struct DnsReply {
    /// The records; empty: there is no record of the type.
    pub(super) found: Vec<Record>,
    /// Whether the name exists, possibly with other records only.
    pub(super) exists: bool,
    /// The TTL; `None`: the server does not specify it.
    pub(super) ttl: Option<Duration>,
}

/// The content of a reply packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The answer, complete or truncated to a datagram.
    Reply { reply: DnsReply, is_whole: bool },
    /// The server does not answer the query, for this reason.
    Refusal(Rcode),
    /// The server is neither authoritative for the name nor recursive.
    Lame,
}

/// Whether this text is a valid DNS name.
pub(super) fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'*'))
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

impl Question {
    /// The query packet. `None`: the name is not a valid DNS name.
    pub(super) fn packet(&self, id: u16) -> Option<Vec<u8>> {
        let target = Array::<512>::default();
        let mut builder = MessageBuilder::from_target(target).ok()?.question();
        let header = builder.header_mut();
        header.set_id(id);
        header.set_rd(true);
        builder.push((&self.owner()?, self.rtype())).ok()?;
        Some(builder.finish().as_ref().to_vec())
    }

    /// Parses a packet. `None`: it is not a reply to this query, or not DNS.
    pub(super) fn read(&self, id: u16, packet: &[u8]) -> Option<Said> {
        let message = Message::from_octets(packet).ok()?;
        let header = message.header();
        if header.id() != id || !header.qr() || header.opcode() != Opcode::QUERY {
            return None;
        }
        let owner = self.owner()?;
        let code = header.rcode();
        let is_asked = |asked: Asked<ParsedName<&[u8]>>| {
            asked.qtype() == self.rtype()
                && asked.qclass() == Class::IN
                && asked.qname().name_eq(&owner)
        };
        match message.sole_question() {
            Ok(asked) if is_asked(asked) => {}
            // A server that did not parse the question may omit it.
            Err(_)
                if message.header_counts().qdcount() == 0
                    && !matches!(code, Rcode::NOERROR | Rcode::NXDOMAIN) =>
            {
                return Some(Said::Refusal(code));
            }
            Ok(_) | Err(_) => return None,
        }
        if !matches!(code, Rcode::NOERROR | Rcode::NXDOMAIN) {
            return Some(Said::Refusal(code));
        }
        let counts = message.header_counts();
        let is_empty = counts.ancount() == 0 && counts.arcount() == 0;
        if code == Rcode::NOERROR && is_empty && !header.aa() && !header.ra() {
            return Some(Said::Lame);
        }
        let (found, ttl) = self.records(&message, owner, header.tc())?;
        // Some servers report NXDOMAIN for a name that only lacks the record.
        let exists = code == Rcode::NOERROR || !found.is_empty();
        let ttl = if found.is_empty() { bound(&message) } else { ttl };
        Some(Said::Reply { reply: DnsReply { found, exists, ttl }, is_whole: !header.tc() })
    }

    /// The records at the end of the alias chain of `owner`, and the TTL of the whole chain.
    /// Records of other names are ignored. A truncated packet may end anywhere.
    fn records(
        &self,
        message: &Message<&[u8]>,
        owner: Owner,
        is_cut: bool,
    ) -> Option<(Vec<Record>, Option<Duration>)> {
        let mut name = owner;
        let mut ttl: Option<Duration> = None;
        for _ in 0..=ALIASES {
            let mut found = Vec::new();
            let mut alias = None;
            let mut ttl_here = ttl;
            for record in message.answer().ok()? {
                let record = match record {
                    Ok(record) => record,
                    Err(_) if is_cut => break,
                    Err(_) => return None,
                };
                if record.class() != Class::IN || !record.owner().name_eq(&name) {
                    continue;
                }
                let lasts = record.ttl().into_duration();
                let one = match (self.kind, record.rtype()) {
                    (RecordKind::A, Rtype::A) => record
                        .to_record::<A>()
                        .ok()?
                        .map(|record| Record::Address(record.data().addr().into())),
                    (RecordKind::Aaaa, Rtype::AAAA) => record
                        .to_record::<Aaaa>()
                        .ok()?
                        .map(|record| Record::Address(record.data().addr().into())),
                    (RecordKind::Srv, Rtype::SRV) => {
                        let record = record.to_record::<Srv<ParsedName<&[u8]>>>().ok()??;
                        service(record.data())
                    }
                    (_, Rtype::CNAME) if alias.is_none() => {
                        let record = record.to_record::<Cname<ParsedName<&[u8]>>>().ok()??;
                        alias = Some((record.data().cname().try_to_name().ok()?, lasts));
                        None
                    }
                    _ => None,
                };
                if let Some(one) = one
                    && found.len() < self.most()
                    && !found.contains(&one)
                {
                    found.push(one);
                    ttl_here = Some(ttl_here.map_or(lasts, |ttl| ttl.min(lasts)));
                }
            }
            if !found.is_empty() {
                return Some((found, ttl_here));
            }
            let Some((next, lasts)) = alias else { break };
            name = next;
            ttl = Some(ttl.map_or(lasts, |ttl| ttl.min(lasts)));
        }
        Some((Vec::new(), None))
    }

    /// Whether the query asks for SRV records.
    pub(super) fn is_of_services(&self) -> bool {
        self.kind == RecordKind::Srv
    }

    fn owner(&self) -> Option<Owner> {
        if !is_name(&self.name) {
            return None;
        }
        Name::from_chars(self.name.chars()).ok()
    }

    fn rtype(&self) -> Rtype {
        match self.kind {
            RecordKind::A => Rtype::A,
            RecordKind::Aaaa => Rtype::AAAA,
            RecordKind::Srv => Rtype::SRV,
        }
    }

    /// The maximum number of records of an answer.
    fn most(&self) -> usize {
        match self.kind {
            RecordKind::A | RecordKind::Aaaa => ADDRESSES,
            RecordKind::Srv => SERVICES,
        }
    }
}

/// The content of an SRV record. `None`: its target is not a host name, so nobody can dial it.
fn service(data: &Srv<ParsedName<&[u8]>>) -> Option<Record> {
    // The root is shown as a dot.
    let target = data.target().to_string().to_ascii_lowercase();
    let target = target.strip_suffix('.').unwrap_or(&target);
    if !target.is_empty() && !is_name(target) {
        tracing::debug!("an SRV record is ignored, because its target is no host name");
        return None;
    }
    Some(Record::Service(ServiceRecord {
        priority: data.priority(),
        weight: data.weight(),
        port: data.port(),
        target: target.to_owned(),
    }))
}

/// The negative TTL (RFC 2308 section 5).
fn bound(message: &Message<&[u8]>) -> Option<Duration> {
    let records = message.authority().ok()?;
    let soa = records.limit_to::<Soa<ParsedName<&[u8]>>>().next()?.ok()?;
    Some(soa.ttl().min(soa.data().minimum()).into_duration())
}

#[cfg(test)]
mod tests;

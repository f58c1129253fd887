//! DNS packets for tests, built byte by byte so that tests do not rely on the code under test.

/// A record of a reply.
pub(super) struct PacketRecord<'a> {
    pub(super) owner: &'a str,
    pub(super) kind: u16,
    pub(super) ttl: u32,
    pub(super) data: Vec<u8>,
}

pub(super) const A: u16 = 1;
pub(super) const CNAME: u16 = 5;
pub(super) const SOA: u16 = 6;
pub(super) const AAAA: u16 = 28;
pub(super) const SRV: u16 = 33;

/// Flags and code of a normal reply, and of NXDOMAIN.
pub(super) const ANSWER: u16 = 0x8180;
pub(super) const NO_NAME: u16 = 0x8183;

pub(super) fn name(text: &str) -> Vec<u8> {
    let labels = text.split('.').filter(|label| !label.is_empty());
    let mut bytes: Vec<u8> = labels
        .flat_map(|label| [&[u8::try_from(label.len()).unwrap()], label.as_bytes()].concat())
        .collect();
    bytes.push(0);
    bytes
}

pub(super) fn a<'a>(owner: &'a str, ttl: u32, ip: [u8; 4]) -> PacketRecord<'a> {
    PacketRecord { owner, kind: A, ttl, data: ip.into() }
}

pub(super) fn cname<'a>(owner: &'a str, ttl: u32, to: &str) -> PacketRecord<'a> {
    PacketRecord { owner, kind: CNAME, ttl, data: name(to) }
}

/// An SRV record with priority, weight and port.
pub(super) fn srv<'a>(
    owner: &'a str,
    ttl: u32,
    numbers: [u16; 3],
    target: &str,
) -> PacketRecord<'a> {
    let mut data: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    data.extend(name(target));
    PacketRecord { owner, kind: SRV, ttl, data }
}

/// A SOA record whose last number, the negative TTL, is `minimum`.
pub(super) fn soa(owner: &str, ttl: u32, minimum: u32) -> PacketRecord<'_> {
    let mut data = [name("ns.test"), name("admin.test")].concat();
    data.extend([0; 16]);
    data.extend(minimum.to_be_bytes());
    PacketRecord { owner, kind: SOA, ttl, data }
}

/// The reply to the query in the packet `question`.
pub(super) fn reply(
    question: &[u8],
    flags: u16,
    answer: &[PacketRecord<'_>],
    authority: &[PacketRecord<'_>],
) -> Vec<u8> {
    let count = |entries: &[PacketRecord<'_>]| u16::try_from(entries.len()).unwrap().to_be_bytes();
    let mut packet = question[..2].to_vec();
    packet.extend(flags.to_be_bytes());
    packet.extend([0, 1]);
    packet.extend(count(answer));
    packet.extend(count(authority));
    packet.extend([0, 0]);
    packet.extend(&question[12..]);
    for entry in answer.iter().chain(authority) {
        packet.extend(name(entry.owner));
        packet.extend(entry.kind.to_be_bytes());
        packet.extend([0, 1]);
        packet.extend(entry.ttl.to_be_bytes());
        packet.extend(u16::try_from(entry.data.len()).unwrap().to_be_bytes());
        packet.extend(&entry.data);
    }
    packet
}

/// The name and the type of a query packet.
pub(super) fn asked(packet: &[u8]) -> (String, u16) {
    let (mut at, mut labels) = (12, Vec::new());
    while packet[at] != 0 {
        let end = at + 1 + usize::from(packet[at]);
        labels.push(String::from_utf8(packet[at + 1..end].to_vec()).unwrap());
        at = end;
    }
    (labels.join("."), u16::from_be_bytes([packet[at + 1], packet[at + 2]]))
}

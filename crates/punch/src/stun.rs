//! STUN Binding (RFC 8489): the response of a stateless server, and the request of a client that
//! queries its address.
//!
//! A response has one attribute, so 20 bytes of a request become 32 bytes (IPv6: 44). A request may
//! request a response from the other port of the server (RFC 5780, CHANGE-REQUEST). A request with
//! any other comprehension-required attribute gets no response: an error would be another datagram
//! to an address that anybody can forge.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use is::stun::StunMessage;
use is::{DefaultSha1HmacProvider, Sha1HmacProvider as _};

/// Maximum length of a response, in bytes.
pub const ANSWER: usize = 44;

/// The magic cookie, which distinguishes STUN from other protocols on a port.
pub const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

/// The transaction id of a request, which its response repeats.
pub type Id = [u8; 12];

const HEAD: usize = 20;
const REQUEST: [u8; 2] = [0x00, 0x01];
const SUCCESS: [u8; 2] = [0x01, 0x01];

const MAPPED_ADDRESS: u16 = 0x0001;
const CHANGE_REQUEST: u16 = 0x0003;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;
/// The first comprehension-optional attribute.
const OPTIONAL: u16 = 0x8000;

/// "Change port" of CHANGE-REQUEST.
const CHANGE_PORT: u32 = 2;

/// Whether a datagram is a STUN message. On a QUIC port no QUIC packet has the first byte of STUN
/// (RFC 9443), as long as no end greases the fixed bit.
#[must_use]
pub fn is_stun(datagram: &[u8]) -> bool {
    datagram.len() >= HEAD && datagram[0] < 4 && datagram[4..8] == COOKIE
}

/// Whether a STUN message is a request, which begins a transaction.
#[must_use]
pub fn is_request(message: &[u8]) -> bool {
    message.starts_with(&REQUEST)
}

/// Whether a datagram is a check (RFC 8445 section 7.1) for the end with this ufrag, by a peer that
/// knows the password of this end.
#[must_use]
pub fn is_check_for(datagram: &[u8], ufrag: &str, password: &str) -> bool {
    let Ok(message) = StunMessage::parse(datagram) else { return false };
    let is_named = message.split_username().is_some_and(|(receiver, _)| receiver == ufrag);
    let hmac = |key: &[u8], parts: &[&[u8]]| DefaultSha1HmacProvider.sha1_hmac(key, parts);
    message.is_binding_request() && is_named && message.verify(password.as_bytes(), hmac)
}

/// The transaction id of a message.
pub(crate) fn id(message: &[u8]) -> Option<Id> {
    message.get(8..HEAD)?.try_into().ok()
}

/// The response of a server to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    bytes: [u8; ANSWER],
    length: usize,
    /// Whether the client requests a response from the other port of the server.
    pub from_other_port: bool,
}

impl Answer {
    /// The datagram.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Returns the response to a datagram from `from`. `None` if it is not a request that this server
/// supports.
#[must_use]
pub fn answer(datagram: &[u8], from: SocketAddr) -> Option<Answer> {
    if !is_stun(datagram) || !is_request(datagram) {
        return None;
    }
    let mut from_other_port = false;
    for attribute in attributes(datagram)? {
        let (kind, value) = attribute?;
        match (kind, value) {
            (CHANGE_REQUEST, &[a, b, c, d]) => match u32::from_be_bytes([a, b, c, d]) {
                0 => {}
                CHANGE_PORT => from_other_port = true,
                _ => return None,
            },
            (OPTIONAL.., _) => {}
            _ => return None,
        }
    }
    let id = id(datagram)?;
    let mut bytes = [0; ANSWER];
    let (family, address): (u8, &[u8]) = match from.ip().to_canonical() {
        IpAddr::V4(ip) => (1, &ip.octets()),
        IpAddr::V6(ip) => (2, &ip.octets()),
    };
    let length = HEAD + 8 + address.len();
    bytes[..2].copy_from_slice(&SUCCESS);
    bytes[3] = u8::try_from(length - HEAD).unwrap_or(u8::MAX);
    bytes[4..8].copy_from_slice(&COOKIE);
    bytes[8..HEAD].copy_from_slice(&id);
    bytes[HEAD..HEAD + 2].copy_from_slice(&XOR_MAPPED_ADDRESS.to_be_bytes());
    bytes[HEAD + 3] = u8::try_from(4 + address.len()).unwrap_or(u8::MAX);
    bytes[HEAD + 5] = family;
    bytes[HEAD + 6..HEAD + 8].copy_from_slice(&from.port().to_be_bytes());
    bytes[HEAD + 8..length].copy_from_slice(address);
    let value = &mut bytes[HEAD + 6..length];
    value[..2].iter_mut().zip(COOKIE).for_each(|(byte, key)| *byte ^= key);
    value[2..].iter_mut().zip(keys(&id)).for_each(|(byte, key)| *byte ^= key);
    Some(Answer { bytes, length, from_other_port })
}

/// The bytes that obfuscate an address, for NATs that rewrite addresses in payloads.
fn keys(id: &Id) -> impl Iterator<Item = u8> {
    COOKIE.into_iter().chain(*id)
}

/// Encodes a Binding request.
#[must_use]
pub fn request(id: Id) -> [u8; HEAD] {
    let mut bytes = [0; HEAD];
    bytes[..2].copy_from_slice(&REQUEST);
    bytes[4..8].copy_from_slice(&COOKIE);
    bytes[8..].copy_from_slice(&id);
    bytes
}

/// Encodes a request for a response from the other port of the server.
#[must_use]
pub fn request_from_other_port(id: Id) -> [u8; HEAD + 8] {
    let mut bytes = [0; HEAD + 8];
    bytes[..HEAD].copy_from_slice(&request(id));
    bytes[3] = 8;
    bytes[HEAD..HEAD + 2].copy_from_slice(&CHANGE_REQUEST.to_be_bytes());
    bytes[HEAD + 3] = 4;
    bytes[HEAD + 4..].copy_from_slice(&CHANGE_PORT.to_be_bytes());
    bytes
}

/// Decodes a response of a server: the transaction id and our mapped address.
#[must_use]
pub fn answered(datagram: &[u8]) -> Option<(Id, SocketAddr)> {
    if !is_stun(datagram) || !datagram.starts_with(&SUCCESS) {
        return None;
    }
    let id = id(datagram)?;
    let mut plain = None;
    for attribute in attributes(datagram)? {
        match attribute? {
            (XOR_MAPPED_ADDRESS, value) => return Some((id, address(value, Some(&id))?)),
            (MAPPED_ADDRESS, value) => plain = address(value, None),
            _ => {}
        }
    }
    Some((id, plain?))
}

fn address(value: &[u8], hidden: Option<&Id>) -> Option<SocketAddr> {
    let (&[_, family, high, low], ip) = value.split_first_chunk::<4>()?;
    let mut bytes = [0; 18];
    let whole = bytes.get_mut(..2 + ip.len())?;
    whole[..2].copy_from_slice(&[high, low]);
    whole[2..].copy_from_slice(ip);
    if let Some(id) = hidden {
        whole[..2].iter_mut().zip(COOKIE).for_each(|(byte, key)| *byte ^= key);
        whole[2..].iter_mut().zip(keys(id)).for_each(|(byte, key)| *byte ^= key);
    }
    let port = u16::from_be_bytes([whole[0], whole[1]]);
    let ip: IpAddr = match (family, ip.len()) {
        (1, 4) => Ipv4Addr::from(<[u8; 4]>::try_from(&whole[2..]).ok()?).into(),
        (2, 16) => Ipv6Addr::from(<[u8; 16]>::try_from(&whole[2..]).ok()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

type Attribute<'a> = Option<(u16, &'a [u8])>;

/// The attributes of a message; a malformed attribute is a `None`, and the last item. `None` if the
/// length field does not match the datagram.
fn attributes(message: &[u8]) -> Option<impl Iterator<Item = Attribute<'_>>> {
    let length = usize::from(u16::from_be_bytes([*message.get(2)?, *message.get(3)?]));
    let mut rest = message.get(HEAD..)?;
    if rest.len() != length || !length.is_multiple_of(4) {
        return None;
    }
    Some(std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let next = first(rest);
        rest = next.map_or(&[], |(.., rest)| rest);
        Some(next.map(|(kind, value, _)| (kind, value)))
    }))
}

fn first(attributes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (&[a, b, c, d], rest) = attributes.split_first_chunk::<4>()?;
    let length = usize::from(u16::from_be_bytes([c, d]));
    let rest_at = length.next_multiple_of(4);
    Some((u16::from_be_bytes([a, b]), rest.get(..length)?, rest.get(rest_at..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Id = *b"abcdefghijkl";

    fn from(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_reads_its_address_from_the_answer() {
        for (address, length) in [("192.0.2.1:4711", 32), ("[2001:db8::1]:4711", 44)] {
            let answer = answer(&request(ID), from(address)).unwrap();
            assert_eq!(answer.bytes().len(), length, "{address}");
            assert!(!answer.from_other_port);
            assert_eq!(answered(answer.bytes()), Some((ID, from(address))));
        }
        let mapped = answer(&request(ID), from("[::ffff:192.0.2.1]:9")).unwrap();
        assert_eq!(answered(mapped.bytes()), Some((ID, from("192.0.2.1:9"))));
    }

    /// The bytes of lines of hexadecimal digits.
    fn bytes(lines: &[&str]) -> Vec<u8> {
        let digits = lines.concat().replace(' ', "");
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(byte).collect()
    }

    /// RFC 5769 section 2.2: a sample answer, with SOFTWARE before the address.
    #[test]
    fn the_sample_of_the_rfc_is_read() {
        let sample = bytes(&[
            "0101003c2112a442b7e7a701bc34d686fa87dfae802200 0b7465737420766563746f7220",
            "002000080001a147e112a643000800142b91f599fd9e90c38c7489f92af9ba53f06be7d7",
            "80280004c07d4c96",
        ]);
        let (_, address) = answered(&sample).unwrap();
        assert_eq!(address, from("192.0.2.1:32853"));
    }

    /// RFC 5769 section 2.1: a sample request with a name and a password.
    #[test]
    fn a_check_needs_the_name_and_the_password() {
        let sample = bytes(&[
            "000100582112a442b7e7a701bc34d686fa87dfae802200105354554e207465737420636c69656e74",
            "002400046e0001ff80290008932ff9b151263b36000600096576746a3a683676592020200008001 4",
            "9aeaa70cbfd8cb56781ef2b5b2d3f249c1b571a280280004e57a3bcf",
        ]);
        let password = "VOkJxbRl1RmTxUk/WvJxBt";
        assert!(is_check_for(&sample, "evtj", password));
        assert!(!is_check_for(&sample, "h6vY", password), "the name of the other end");
        assert!(!is_check_for(&sample, "evtj", "VOkJxbRl1RmTxUk/WvJxBT"));
        assert!(!is_check_for(&request(ID), "evtj", password), "neither");
        let mut answer = sample;
        answer[0] = 1;
        assert!(!is_check_for(&answer, "evtj", password));
    }

    #[test]
    fn an_answer_may_be_asked_for_from_the_other_port() {
        let answer = answer(&request_from_other_port(ID), from("192.0.2.1:9")).unwrap();
        assert!(answer.from_other_port && answer.bytes().len() == 32);
    }

    #[test]
    fn what_is_not_understood_gets_no_answer() {
        let address = from("192.0.2.1:9");
        let with = |attributes: &[u8]| {
            let mut bytes = request(ID).to_vec();
            bytes[3] = attributes.len() as u8;
            bytes.extend_from_slice(attributes);
            bytes
        };
        assert!(
            answer(&with(&[0x80, 0x22, 0, 2, b'a', b'b', 0, 0]), address).is_some(),
            "SOFTWARE"
        );
        assert!(answer(&with(&[0, 6, 0, 1, b'a', 0, 0, 0]), address).is_none(), "USERNAME");
        assert!(answer(&with(&[0, 3, 0, 4, 0, 0, 0, 4]), address).is_none(), "change IP");
        assert!(
            answer(&with(&[0x80, 0x22, 0, 9, 0, 0, 0, 0]), address).is_none(),
            "a lying length"
        );
        assert!(answer(&with(&[0x80, 0x22, 0]), address).is_none(), "no whole attribute");
        let mut other = request(ID);
        other[1] = 0x11;
        assert!(answer(&other, address).is_none(), "an indication");
        other = request(ID);
        other[4] = 0;
        assert!(answer(&other, address).is_none(), "no cookie");
        assert!(answer(&request(ID)[..19], address).is_none());
        let reply = answer(&request(ID), address).unwrap();
        assert!(answer(reply.bytes(), address).is_none(), "servers do not answer each other");
    }
}
